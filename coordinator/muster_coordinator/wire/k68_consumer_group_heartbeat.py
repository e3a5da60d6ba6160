"""ConsumerGroupHeartbeat (68), versions 0 to 1, flexible: the consumer protocol (KIP-848).

- v1: subscribed_topic_regex; the client makes its member id (KIP-1082)

Always refused: UNSUPPORTED_VERSION, and a text. Kafka answers so where the protocol is switched off, and clients tell
their application to use the classic protocol. librdkafka waits for ever for a coordinator that does not have the API.
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import OtherProtocolRequest, OtherProtocolResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> OtherProtocolRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def topic() -> None:
        reader.uuid()
        reader.array(reader.int32)
        reader.tagged_fields()

    request = OtherProtocolRequest(reader.string(), reader.string())
    reader.int32()  # member_epoch
    reader.nullable_string()  # instance_id
    reader.nullable_string()  # rack_id
    reader.int32()  # rebalance_timeout_ms
    reader.nullable_array(reader.string)  # subscribed_topic_names
    if header.api_version >= 1:
        reader.nullable_string()  # subscribed_topic_regex
    reader.nullable_string()  # server_assignor
    reader.nullable_array(topic)  # topic_partitions
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


API = Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, decode_request, encode_response)
