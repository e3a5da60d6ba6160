"""DescribeAcls (29), versions 1 to 3, flexible from 2 (KIP-140).

- v1: pattern types (KIP-290; v0 is gone: KIP-896)
- v2: flexible
- v3: resources of type USER (KIP-373)
"""

from __future__ import annotations

from itertools import groupby

from muster_coordinator.requests.security import AclBinding, DescribeAclsRequest, DescribeAclsResponse
from muster_coordinator.wire.acl_fields import read_filter, write_entry
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeAclsRequest:
    return DescribeAclsRequest(read_filter(Reader(frame, header.body_position, header.flexible)))


def encode_response(version: int, response: DescribeAclsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def resource(value: tuple[tuple[int, str, int], list[AclBinding]]) -> None:
        (resource_type, name, pattern), acls = value
        writer.int8(resource_type)
        writer.string(name)
        writer.int8(pattern)
        writer.array(acls, lambda acl: write_entry(writer, acl))
        writer.tagged_fields()

    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    by_resource = groupby(response.acls, lambda acl: (acl.resource_type, acl.name, acl.pattern))
    writer.array([(key, list(acls)) for key, acls in by_resource], resource)
    return writer.done()


API = Api(29, "DescribeAcls", 1, 3, 2, decode_request, encode_response)
