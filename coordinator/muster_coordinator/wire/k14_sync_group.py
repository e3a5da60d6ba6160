"""SyncGroup (14), versions 0 to 5, flexible from 4.

- v1: throttle_time_ms in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: group_instance_id (KIP-345)
- v4: flexible
- v5: protocol_type and protocol_name in request and response (KIP-559)
"""

from __future__ import annotations

from muster_coordinator.requests.groups import SyncGroupRequest, SyncGroupResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> SyncGroupRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    group_id = reader.string()
    generation_id = reader.int32()
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    protocol_type, protocol_name = (
        (reader.nullable_string(), reader.nullable_string()) if version >= 5 else (None, None)
    )
    assignments = reader.array(reader.named_bytes)
    reader.tagged_fields()
    return SyncGroupRequest(
        group_id, generation_id, member_id, group_instance_id, protocol_type, protocol_name, assignments, version
    )


def encode_response(version: int, response: SyncGroupResponse) -> bytes:
    writer = Writer(API.flexible(version))
    if version >= 1:
        writer.int32(0)
    writer.int16(response.error_code)
    if version >= 5:
        writer.nullable_string(response.protocol_type)
        writer.nullable_string(response.protocol_name)
    writer.byte_string(response.assignment)
    return writer.done()


API = Api(14, "SyncGroup", 0, 5, 4, decode_request, encode_response)
