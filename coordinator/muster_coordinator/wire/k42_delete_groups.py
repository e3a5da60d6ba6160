"""DeleteGroups (42), versions 0 to 2, flexible from 2 (KIP-229).

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: flexible
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import DeleteGroupsRequest, DeleteGroupsResponse
from muster_coordinator.requests.groups import DeleteGroupResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DeleteGroupsRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    group_ids = reader.array(reader.string)
    reader.tagged_fields()
    return DeleteGroupsRequest(group_ids)


def encode_response(version: int, response: DeleteGroupsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def result(value: DeleteGroupResponse) -> None:
        writer.string(value.group_id)
        writer.int16(value.error_code)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.results, result)
    return writer.done()


API = Api(42, "DeleteGroups", 0, 2, 2, decode_request, encode_response)
