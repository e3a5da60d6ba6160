"""AddPartitionsToTxn (24), versions 0 to 5, flexible from 3.

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: PRODUCER_FENCED. An earlier client is answered INVALID_PRODUCER_EPOCH in its place
- v3: flexible
- v4: several transactions, verify_only; sent by brokers (KIP-890)
- v5: TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from muster_coordinator.requests.transactions import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded, producer_error
from muster_coordinator.wire.codec import Reader, Writer

_FENCED_SINCE = 2
_BATCHES_SINCE = 4


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> AddPartitionsToTxnRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)

    def transaction() -> AddPartitionsRequest:
        transactional_id, producer_id, producer_epoch = reader.string(), reader.int64(), reader.int16()
        verify_only = reader.boolean() if version >= _BATCHES_SINCE else False
        topics = reader.array(reader.topic)
        if version >= _BATCHES_SINCE:
            reader.tagged_fields()
        return AddPartitionsRequest(transactional_id, producer_id, producer_epoch, topics, version, verify_only)

    transactions = reader.array(transaction) if version >= _BATCHES_SINCE else (transaction(),)
    reader.tagged_fields()
    return AddPartitionsToTxnRequest(transactions)


def encode_response(version: int, response: AddPartitionsToTxnResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def partition(value: tuple[int, int]) -> None:
        writer.int32(value[0])
        writer.int16(producer_error(value[1], knows_fenced=version >= _FENCED_SINCE))
        writer.tagged_fields()

    def topic(value: tuple[str, tuple[tuple[int, int], ...]]) -> None:
        writer.string(value[0])
        writer.array(value[1], partition)
        writer.tagged_fields()

    def transaction(value: AddPartitionsResponse) -> None:
        writer.string(value.transactional_id)
        writer.array(value.topics, topic)
        writer.tagged_fields()

    writer.int32(0)
    if version >= _BATCHES_SINCE:
        writer.int16(response.error_code)
        writer.array(response.transactions, transaction)
    else:
        (only,) = response.transactions
        writer.array(only.topics, topic)
    return writer.done()


def encode_request(version: int, request: AddPartitionsToTxnRequest) -> bytes:
    """The body of a request to another pod, from version 4 on."""
    writer = Writer(API.flexible(version))

    def topic(value: tuple[str, tuple[int, ...]]) -> None:
        writer.string(value[0])
        writer.int32_array(value[1])
        writer.tagged_fields()

    def transaction(value: AddPartitionsRequest) -> None:
        writer.string(value.transactional_id)
        writer.int64(value.producer_id)
        writer.int16(value.producer_epoch)
        writer.boolean(value.verify_only)
        writer.array(value.topics, topic)
        writer.tagged_fields()

    writer.array(request.transactions, transaction)
    return writer.done()


def decode_response(reader: Reader) -> AddPartitionsToTxnResponse:
    """The answer of another pod, from version 4 on. Raises what `Reader` raises."""

    def partition() -> tuple[int, int]:
        value = (reader.int32(), reader.int16())
        reader.tagged_fields()
        return value

    def topic() -> tuple[str, tuple[tuple[int, int], ...]]:
        value = (reader.string(), reader.array(partition))
        reader.tagged_fields()
        return value

    def transaction() -> AddPartitionsResponse:
        value = AddPartitionsResponse(reader.string(), reader.array(topic))
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    code = reader.int16()
    return AddPartitionsToTxnResponse(reader.array(transaction), code)


API = Api(24, "AddPartitionsToTxn", 0, 5, 3, decode_request, encode_response)
