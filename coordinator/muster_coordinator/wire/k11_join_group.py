"""JoinGroup (11), versions 0 to 9, flexible from 6.

- v1: rebalance_timeout_ms; before, the session timeout stands for it (KIP-62)
- v2: throttle_time_ms in the response
- v3: as v2; a throttled answer is sent at once (KIP-219)
- v4: a member without id is answered MEMBER_ID_REQUIRED (KIP-394)
- v5: group_instance_id (KIP-345)
- v6: flexible
- v7: protocol_type in the response; protocol_name may be null there (KIP-559)
- v8: reason (KIP-800)
- v9: skip_assignment in the response (KIP-814)
"""

from __future__ import annotations

from muster_coordinator.requests.groups import JoinGroupMember, JoinGroupRequest, JoinGroupResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.primitives import STRING_MAX_BYTES

_CLIENT_ID_MAX_BYTES = STRING_MAX_BYTES - 64
"""A member id is the client id, "-" and a UUID, and must itself fit a string."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> JoinGroupRequest:
    version = header.api_version
    if len(header.client_id.encode()) > _CLIENT_ID_MAX_BYTES:
        raise WireError(f"a client id of {len(header.client_id)} characters is too long to make a member id of")
    reader = Reader(frame, header.body_position, header.flexible)
    group_id = reader.string()
    session_timeout_ms = reader.int32()
    rebalance_timeout_ms = reader.int32() if version >= 1 else session_timeout_ms
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 5 else None
    protocol_type = reader.string()
    protocols = reader.array(reader.named_bytes)
    reason = reader.nullable_string() if version >= 8 else None
    reader.tagged_fields()
    return JoinGroupRequest(
        group_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        group_instance_id,
        protocol_type,
        protocols,
        reason,
        header.client_id,
        client_host,
        version,
    )


def encode_response(version: int, response: JoinGroupResponse) -> bytes:
    writer = Writer(API.flexible(version))
    if version >= 2:
        writer.int32(0)
    writer.int16(response.error_code)
    writer.int32(response.generation_id)
    if version >= 7:
        writer.nullable_string(response.protocol_type)
        writer.nullable_string(response.protocol_name or None)
    else:
        writer.string(response.protocol_name or "")
    writer.string(response.leader)
    if version >= 9:
        writer.boolean(response.skip_assignment)
    writer.string(response.member_id)
    members: tuple[JoinGroupMember, ...] = response.members
    writer.array_length(len(members))
    for member in members:
        writer.string(member.member_id)
        if version >= 5:
            writer.nullable_string(member.group_instance_id)
        writer.byte_string(member.metadata)
        writer.tagged_fields()
    return writer.done()


API = Api(11, "JoinGroup", 0, 9, 6, decode_request, encode_response)
