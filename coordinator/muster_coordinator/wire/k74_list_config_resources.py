"""ListConfigResources (74), versions 0 to 1, flexible (KIP-714, where it was ListClientMetricsResources).

- v1: resource_types, none for all of them, and the type of each resource (KIP-1142); v0 is about client metrics alone
"""

from __future__ import annotations

from collections.abc import Iterator

from muster_coordinator.requests.configs import (
    ConfigResourceType,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedResource,
)
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter, Writer

_CLIENT_METRICS = (int(ConfigResourceType.CLIENT_METRICS),)


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ListConfigResourcesRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    types = reader.array(reader.int8) if header.api_version >= 1 else _CLIENT_METRICS
    reader.tagged_fields()
    return ListConfigResourcesRequest(types)


def encode_response(version: int, response: ListConfigResourcesResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: ListConfigResourcesResponse) -> Iterator[bytes] | None:
    return _slices(version, response) if len(response.resources) > SLICE_ENTRIES else None


def _slices(version: int, response: ListConfigResourcesResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))
    writer.int32(0)
    writer.int16(response.error_code)
    writer.array_length(len(response.resources))
    for value in response.resources:
        writer.string(value.name)
        if version >= 1:
            writer.int8(value.resource_type)
        writer.tagged_fields()
        if writer.is_full():
            yield writer.taken()
    yield writer.done()


def encode_request(version: int, request: ListConfigResourcesRequest) -> bytes:
    """The body of a request to another pod, from version 1 on."""
    writer = Writer(API.flexible(version))
    writer.array(request.resource_types, writer.int8)
    return writer.done()


def decode_response(reader: Reader) -> ListConfigResourcesResponse:
    """The answer of another pod or of a broker, from version 1 on. Raises what `Reader` raises."""

    def resource() -> ListedResource:
        name = reader.string()
        value = ListedResource(reader.int8(), name)
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    return ListConfigResourcesResponse(reader.int16(), reader.array(resource))


API = Api(74, "ListConfigResources", 0, 1, 0, decode_request, encode_response, slices)
