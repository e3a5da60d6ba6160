"""DeleteGroups (42), versions 0 to 2 and with Kafka 4.4 to 3, flexible from 2 (KIP-229).

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: flexible
- v3: error_message of each group. Kafka has one for Streams groups only (KIP-1331), so it is null here
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster_coordinator.requests.cluster import DeleteGroupsRequest, DeleteGroupsResponse
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter

_MESSAGE_SINCE = 3


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DeleteGroupsRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    group_ids = reader.array(reader.string)
    reader.tagged_fields()
    return DeleteGroupsRequest(group_ids)


def encode_response(version: int, response: DeleteGroupsResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: DeleteGroupsResponse) -> Iterator[bytes] | None:
    return _slices(version, response) if len(response.results) > SLICE_ENTRIES else None


def _slices(version: int, response: DeleteGroupsResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))
    writer.int32(0)
    writer.array_length(len(response.results))
    for value in response.results:
        writer.string(value.group_id)
        writer.int16(value.error_code)
        if version >= _MESSAGE_SINCE:
            writer.nullable_string(None)
        writer.tagged_fields()
        if writer.is_full():
            yield writer.taken()
    yield writer.done()


API = Api(42, "DeleteGroups", 0, 2, 2, decode_request, encode_response, slices)
API_4_4 = replace(API, max_version=3)
