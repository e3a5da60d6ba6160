"""CreateAcls (30), versions 1 to 3, flexible from 2 (KIP-140). ACLs are kept in a file, and never changed by a request
(ADR 36).

- v1: pattern types (KIP-290; v0 is gone: KIP-896)
- v2: flexible
- v3: resources of type USER (KIP-373)
"""

from __future__ import annotations

from muster_coordinator.requests.security import AclChange, CreateAclsRequest, CreateAclsResponse
from muster_coordinator.wire.acl_fields import read_acl
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> CreateAclsRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    creations = reader.array(lambda: read_acl(reader))
    reader.tagged_fields()
    return CreateAclsRequest(creations)


def encode_response(version: int, response: CreateAclsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def result(value: AclChange) -> None:
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.results, result)
    return writer.done()


API = Api(30, "CreateAcls", 1, 3, 2, decode_request, encode_response)
