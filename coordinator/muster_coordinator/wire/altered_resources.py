"""The answer to AlterConfigs (33) and to IncrementalAlterConfigs (44), which is the same in all their versions."""

from __future__ import annotations

from muster_coordinator.requests.configs import AlterConfigsResponse, AlteredResource
from muster_coordinator.wire.codec import Reader, Writer


def encode_altered(flexible: bool, response: AlterConfigsResponse) -> bytes:
    writer = Writer(flexible)

    def resource(value: AlteredResource) -> None:
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.int8(value.resource_type)
        writer.string(value.name)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.results, resource)
    return writer.done()


def decode_altered(reader: Reader) -> AlterConfigsResponse:
    """The answer of another pod. Raises what `Reader` raises."""

    def resource() -> AlteredResource:
        code, message = reader.int16(), reader.nullable_string()
        value = AlteredResource(reader.int8(), reader.string(), code, message)
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    return AlterConfigsResponse(reader.array(resource))
