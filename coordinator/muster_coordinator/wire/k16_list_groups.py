"""ListGroups (16), versions 0 to 5, flexible from 3.

- v1: throttle_time_ms in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: flexible
- v4: states_filter, and the state of each group (KIP-518)
- v5: types_filter, and the type of each group (KIP-848)
"""

from __future__ import annotations

from collections.abc import Iterator

from muster_coordinator.requests.groups import ListGroupsRequest, ListGroupsResponse
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ListGroupsRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    states_filter = reader.array(reader.string) if version >= 4 else ()
    types_filter = reader.array(reader.string) if version >= 5 else ()
    reader.tagged_fields()
    return ListGroupsRequest(states_filter, types_filter)


def encode_response(version: int, response: ListGroupsResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: ListGroupsResponse) -> Iterator[bytes] | None:
    return _slices(version, response) if len(response.groups) > SLICE_ENTRIES else None


def _slices(version: int, response: ListGroupsResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))
    if version >= 1:
        writer.int32(0)
    writer.int16(response.error_code)
    writer.array_length(len(response.groups))
    for value in response.groups:
        writer.string(value.group_id)
        writer.string(value.protocol_type)
        if version >= 4:
            writer.string(value.group_state)
        if version >= 5:
            writer.string(value.group_type)
        writer.tagged_fields()
        if writer.is_full():
            yield writer.taken()
    yield writer.done()


API = Api(16, "ListGroups", 0, 5, 3, decode_request, encode_response, slices)
