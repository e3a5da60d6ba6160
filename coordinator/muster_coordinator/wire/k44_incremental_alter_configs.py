"""IncrementalAlterConfigs (44), versions 0 to 1, flexible from 1 (KIP-339).

- v1: flexible
"""

from __future__ import annotations

from muster_coordinator.requests.configs import (
    AlterConfigsResponse,
    ConfigChange,
    IncrementalAlterConfigsRequest,
    ResourceChanges,
)
from muster_coordinator.wire.altered_resources import decode_altered, encode_altered
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> IncrementalAlterConfigsRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def change() -> ConfigChange:
        value = ConfigChange(reader.string(), reader.int8(), reader.nullable_string())
        reader.tagged_fields()
        return value

    def resource() -> ResourceChanges:
        value = ResourceChanges(reader.int8(), reader.string(), reader.array(change))
        reader.tagged_fields()
        return value

    request = IncrementalAlterConfigsRequest(reader.array(resource), reader.boolean())
    reader.tagged_fields()
    return request


def encode_response(version: int, response: AlterConfigsResponse) -> bytes:
    return encode_altered(API.flexible(version), response)


def encode_request(version: int, request: IncrementalAlterConfigsRequest) -> bytes:
    """The body of a request to another pod."""
    writer = Writer(API.flexible(version))

    def change(value: ConfigChange) -> None:
        writer.string(value.name)
        writer.int8(value.operation)
        writer.nullable_string(value.value)
        writer.tagged_fields()

    def resource(value: ResourceChanges) -> None:
        writer.int8(value.resource_type)
        writer.string(value.name)
        writer.array(value.changes, change)
        writer.tagged_fields()

    writer.array(request.resources, resource)
    writer.boolean(request.validate_only)
    return writer.done()


decode_response = decode_altered
API = Api(44, "IncrementalAlterConfigs", 0, 1, 1, decode_request, encode_response)
