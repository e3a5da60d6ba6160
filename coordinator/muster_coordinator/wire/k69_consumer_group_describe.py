"""ConsumerGroupDescribe (69), versions 0 to 1, flexible: groups of the consumer protocol (KIP-848).

- v1: member_type (KIP-1099)
"""

from __future__ import annotations

from muster_coordinator.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeConsumerGroupRequest,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    NamedPartitions,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

MIRROR_VERSION = 1
"""The one in which brokers are asked for a group that moves: Kafka 4.0 and later."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ConsumerGroupDescribeRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    groups = reader.array(lambda: DescribeConsumerGroupRequest(reader.string()))
    include_authorized_operations = reader.boolean()
    reader.tagged_fields()
    return ConsumerGroupDescribeRequest(groups, include_authorized_operations)


def encode_response(version: int, response: ConsumerGroupDescribeResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def group(value: DescribedConsumerGroup) -> None:
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.string(value.group_id)
        writer.string(value.group_state)
        writer.int32(value.group_epoch)
        writer.int32(value.assignment_epoch)
        writer.string(value.assignor_name)
        writer.array(value.members, lambda each: _member(writer, version, each))
        operations = value.authorized_operations
        writer.int32(response.authorized_operations if operations is None else operations)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.groups, group)
    return writer.done()


def _member(writer: Writer, version: int, value: DescribedConsumerMember) -> None:
    writer.string(value.member_id)
    writer.nullable_string(value.instance_id)
    writer.nullable_string(value.rack_id)
    writer.int32(value.member_epoch)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(value.subscribed_topic_names, writer.string)
    writer.nullable_string(value.subscribed_topic_regex)
    for assignment in (value.assignment, value.target_assignment):
        writer.array(assignment, lambda each: _topic(writer, each))
        writer.tagged_fields()
    if version >= 1:
        writer.int8(value.member_type)
    writer.tagged_fields()


def _topic(writer: Writer, value: NamedPartitions) -> None:
    topic_id, name, partitions = value
    writer.uuid(topic_id)
    writer.string(name)
    writer.int32_array(partitions)
    writer.tagged_fields()


def encode_request(group_id: str) -> bytes:
    """The body of a request to a broker for one group, in MIRROR_VERSION."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.array((group_id,), writer.string)
    writer.boolean(False)  # include_authorized_operations
    writer.tagged_fields()
    return writer.done()


def decode_response(reader: Reader) -> tuple[DescribedConsumerGroup, ...]:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""

    def topic() -> NamedPartitions:
        value = reader.uuid(), reader.string(), reader.array(reader.int32)
        reader.tagged_fields()
        return value

    def assignment() -> tuple[NamedPartitions, ...]:
        value = reader.array(topic)
        reader.tagged_fields()
        return value

    def member() -> DescribedConsumerMember:
        value = DescribedConsumerMember(
            reader.string(),
            reader.nullable_string(),
            reader.nullable_string(),
            reader.int32(),
            reader.string(),
            reader.string(),
            reader.array(reader.string),
            reader.nullable_string(),
            assignment(),
            assignment(),
            reader.int8(),
        )
        reader.tagged_fields()
        return value

    def group() -> DescribedConsumerGroup:
        code, message = reader.int16(), reader.nullable_string()
        value = DescribedConsumerGroup(
            reader.string(),
            code,
            message,
            reader.string(),
            reader.int32(),
            reader.int32(),
            reader.string(),
            reader.array(member),
            reader.int32(),
        )
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    return reader.array(group)


API = Api(69, "ConsumerGroupDescribe", 0, 1, 0, decode_request, encode_response)
