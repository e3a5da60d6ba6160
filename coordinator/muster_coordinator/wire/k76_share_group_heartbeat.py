"""ShareGroupHeartbeat (76), version 1, flexible: share groups (KIP-932). v0 was early access.

Always refused: UNSUPPORTED_VERSION, and a text. Kafka answers so where the protocol is switched off, and clients tell
their application so.
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import OtherProtocolRequest, OtherProtocolResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> OtherProtocolRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = OtherProtocolRequest(reader.string(), reader.string())
    reader.int32()  # member_epoch
    reader.nullable_string()  # rack_id
    reader.nullable_array(reader.string)  # subscribed_topic_names
    reader.tagged_fields()
    return request


def encode_response(version: int, response: OtherProtocolResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.nullable_string(None)  # member_id
    writer.int32(0)  # member_epoch
    writer.int32(0)  # heartbeat_interval_ms
    writer.int8(-1)  # assignment: null
    return writer.done()


API = Api(76, "ShareGroupHeartbeat", 1, 1, 1, decode_request, encode_response)
