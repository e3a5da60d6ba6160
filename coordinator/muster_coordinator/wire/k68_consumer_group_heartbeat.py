"""ConsumerGroupHeartbeat (68), versions 0 to 1, flexible: the consumer protocol (KIP-848).

- v1: subscribed_topic_regex; the client makes its member id (KIP-1082)
"""

from __future__ import annotations

from muster_coordinator.requests.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

_PRESENT, _NULL = 1, -1  # of a structure that may be null


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ConsumerGroupHeartbeatRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def topic() -> TopicPartitions:
        value = (reader.uuid(), reader.array(reader.int32))
        reader.tagged_fields()
        return value

    request = ConsumerGroupHeartbeatRequest(
        group_id=reader.string(),
        member_id=reader.string(),
        member_epoch=reader.int32(),
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        subscribed_topic_names=reader.nullable_array(reader.string),
        subscribed_topic_regex=reader.nullable_string() if header.api_version >= 1 else None,
        server_assignor=reader.nullable_string(),
        topic_partitions=reader.nullable_array(topic),
        client_id=header.client_id,
        client_host=client_host,
        api_version=header.api_version,
    )
    reader.tagged_fields()
    return request


def encode_response(version: int, response: ConsumerGroupHeartbeatResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def topic(value: TopicPartitions) -> None:
        topic_id, partitions = value
        writer.uuid(topic_id)
        writer.int32_array(partitions)
        writer.tagged_fields()

    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.nullable_string(response.member_id)
    writer.int32(response.member_epoch)
    writer.int32(response.heartbeat_interval_ms)
    if response.assignment is None:
        writer.int8(_NULL)
    else:
        writer.int8(_PRESENT)
        writer.array(response.assignment, topic)
        writer.tagged_fields()
    return writer.done()


API = Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, decode_request, encode_response)
