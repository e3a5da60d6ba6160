"""DescribeProducers (61), version 0, flexible (KIP-664)."""

from __future__ import annotations

from muster_coordinator.requests.cluster import (
    DescribePartitionsProducersRequest,
    DescribePartitionsProducersResponse,
)
from muster_coordinator.requests.groups import DescribeProducersResponse, OpenProducer
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

_NO_SEQUENCE = -1
_Partition = tuple[int, DescribeProducersResponse]


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribePartitionsProducersRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = DescribePartitionsProducersRequest(reader.array(reader.topic))
    reader.tagged_fields()
    return request


def encode_response(version: int, response: DescribePartitionsProducersResponse) -> bytes:
    """Offsets are committed without a sequence number, as by Kafka's group coordinator."""
    writer = Writer(API.flexible(version))

    def producer(value: OpenProducer) -> None:
        writer.int64(value.producer_id)
        writer.int32(value.producer_epoch)
        writer.int32(_NO_SEQUENCE)
        writer.int64(value.last_ms)
        writer.int32(value.coordinator_epoch)
        writer.int64(value.start_offset)
        writer.tagged_fields()

    def partition(value: _Partition) -> None:
        writer.int32(value[0])
        writer.int16(value[1].error_code)
        writer.nullable_string(None)
        writer.array(value[1].producers, producer)
        writer.tagged_fields()

    def topic(value: tuple[str, tuple[_Partition, ...]]) -> None:
        writer.string(value[0])
        writer.array(value[1], partition)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.topics, topic)
    return writer.done()


API = Api(61, "DescribeProducers", 0, 0, 0, decode_request, encode_response)
