"""LeaveGroup (13), versions 0 to 5, flexible from 4.

- v1: throttle_time_ms in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: a batch of members, by member id or group_instance_id (KIP-345); before, the one member's error is the answer's
- v4: flexible
- v5: reason (KIP-800)
"""

from __future__ import annotations

from muster_coordinator.requests.groups import LeaveGroupRequest, LeaveGroupResponse, LeavingMember, LeftMember
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> LeaveGroupRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    group_id = reader.string()
    if version <= 2:
        return LeaveGroupRequest(group_id, (LeavingMember(reader.string(), None),))

    def member() -> LeavingMember:
        value = LeavingMember(
            reader.string(), reader.nullable_string(), reader.nullable_string() if version >= 5 else None
        )
        reader.tagged_fields()
        return value

    members = reader.array(member)
    reader.tagged_fields()
    return LeaveGroupRequest(group_id, members)


def encode_response(version: int, response: LeaveGroupResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def member(value: LeftMember) -> None:
        writer.string(value.member_id)
        writer.nullable_string(value.group_instance_id)
        writer.int16(value.error_code)
        writer.tagged_fields()

    if version >= 1:
        writer.int32(0)
    if version >= 3:
        writer.int16(response.error_code)
        writer.array(response.members, member)
    else:
        single = response.members[0].error_code if response.members else 0
        writer.int16(response.error_code or single)
    return writer.done()


API = Api(13, "LeaveGroup", 0, 5, 4, decode_request, encode_response)
