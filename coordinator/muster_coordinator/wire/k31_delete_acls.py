"""DeleteAcls (31), versions 1 to 3, flexible from 2 (KIP-140). ACLs are kept in a file, and never changed by a request
(ADR 36).

- v1: pattern types (KIP-290; v0 is gone: KIP-896)
- v2: flexible
- v3: resources of type USER (KIP-373)
"""

from __future__ import annotations

from muster_coordinator.requests.security import AclChange, DeleteAclsRequest, DeleteAclsResponse
from muster_coordinator.wire.acl_fields import read_filter
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DeleteAclsRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    filters = reader.array(lambda: read_filter(reader))
    reader.tagged_fields()
    return DeleteAclsRequest(filters)


def encode_response(version: int, response: DeleteAclsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def result(value: AclChange) -> None:
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.array((), lambda _: None)  # what was deleted
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.results, result)
    return writer.done()


API = Api(31, "DeleteAcls", 1, 3, 2, decode_request, encode_response)
