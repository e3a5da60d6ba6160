"""Heartbeat (12), versions 0 to 4, flexible from 4. Hot: every member sends one every few seconds.

- v1: throttle_time_ms in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: group_instance_id (KIP-345)
- v4: flexible
"""

from __future__ import annotations

import struct

from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.primitives import (
    compact_nullable_string,
    compact_string,
    nullable_string,
    skip_tagged_fields,
    string,
)

_GENERATION = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_THROTTLE_ERROR = struct.Struct(">4xh")
_THROTTLE_ERROR_TAGS = struct.Struct(">4xhx")


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> HeartbeatRequest:
    if header.api_version >= 4:
        group_id, position = compact_string(frame, header.body_position)
        generation_id = _GENERATION.unpack_from(frame, position)[0]
        member_id, position = compact_string(frame, position + 4)
        group_instance_id, position = compact_nullable_string(frame, position)
        skip_tagged_fields(frame, position)
        return HeartbeatRequest(group_id, generation_id, member_id, group_instance_id)
    group_id, position = string(frame, header.body_position)
    generation_id = _GENERATION.unpack_from(frame, position)[0]
    member_id, position = string(frame, position + 4)
    group_instance_id = nullable_string(frame, position)[0] if header.api_version >= 3 else None
    return HeartbeatRequest(group_id, generation_id, member_id, group_instance_id)


def encode_response(version: int, response: HeartbeatResponse) -> bytes:
    if version >= 4:
        return _THROTTLE_ERROR_TAGS.pack(response.error_code)
    return (_THROTTLE_ERROR if version >= 1 else _ERROR).pack(response.error_code)


API = Api(12, "Heartbeat", 0, 4, 4, decode_request, encode_response)
