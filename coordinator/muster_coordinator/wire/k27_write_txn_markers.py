"""WriteTxnMarkers (27), versions 1 to 2, flexible. Sent by a transaction coordinator.

- v1: flexible (v0 is gone: KIP-896)
- v2: transaction_version (KIP-1228)
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import TransactionMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

_ResultTopic = tuple[str, tuple[tuple[int, int], ...]]


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> WriteTxnMarkersRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def marker() -> TransactionMarker:
        producer_id, producer_epoch, committed = reader.int64(), reader.int16(), reader.boolean()
        topics = reader.array(reader.topic)
        coordinator_epoch = reader.int32()
        transaction_version = reader.int8() if header.api_version >= 2 else 0
        reader.tagged_fields()
        return TransactionMarker(producer_id, producer_epoch, committed, coordinator_epoch, topics, transaction_version)

    markers = reader.array(marker)
    reader.tagged_fields()
    return WriteTxnMarkersRequest(markers)


def encode_response(version: int, response: WriteTxnMarkersResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def partition(value: tuple[int, int]) -> None:
        writer.int32(value[0])
        writer.int16(value[1])
        writer.tagged_fields()

    def topic(value: _ResultTopic) -> None:
        writer.string(value[0])
        writer.array(value[1], partition)
        writer.tagged_fields()

    def marker(value: tuple[int, tuple[_ResultTopic, ...]]) -> None:
        writer.int64(value[0])
        writer.array(value[1], topic)
        writer.tagged_fields()

    writer.array(response.markers, marker)
    return writer.done()


def encode_request(version: int, request: WriteTxnMarkersRequest) -> bytes:
    """The body of a request to another pod."""
    writer = Writer(API.flexible(version))

    def topic(value: tuple[str, tuple[int, ...]]) -> None:
        writer.string(value[0])
        writer.int32_array(value[1])
        writer.tagged_fields()

    def marker(value: TransactionMarker) -> None:
        writer.int64(value.producer_id)
        writer.int16(value.producer_epoch)
        writer.boolean(value.committed)
        writer.array(value.topics, topic)
        writer.int32(value.coordinator_epoch)
        if version >= 2:
            writer.int8(value.transaction_version)
        writer.tagged_fields()

    writer.array(request.markers, marker)
    return writer.done()


def decode_response(reader: Reader) -> WriteTxnMarkersResponse:
    """The answer of another pod. Raises what `Reader` raises."""

    def partition() -> tuple[int, int]:
        value = (reader.int32(), reader.int16())
        reader.tagged_fields()
        return value

    def topic() -> _ResultTopic:
        value = (reader.string(), reader.array(partition))
        reader.tagged_fields()
        return value

    def marker() -> tuple[int, tuple[_ResultTopic, ...]]:
        value = (reader.int64(), reader.array(topic))
        reader.tagged_fields()
        return value

    return WriteTxnMarkersResponse(reader.array(marker))


API = Api(27, "WriteTxnMarkers", 1, 2, 1, decode_request, encode_response)
