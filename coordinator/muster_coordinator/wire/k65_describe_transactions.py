"""DescribeTransactions (65), version 0, flexible (KIP-664)."""

from __future__ import annotations

from muster_coordinator.requests.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeTransactionsRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = DescribeTransactionsRequest(reader.array(reader.string))
    reader.tagged_fields()
    return request


def encode_response(version: int, response: DescribeTransactionsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def topic(value: tuple[str, tuple[int, ...]]) -> None:
        writer.string(value[0])
        writer.int32_array(value[1])
        writer.tagged_fields()

    def transaction(value: DescribedTransaction) -> None:
        writer.int16(value.error_code)
        writer.string(value.transactional_id)
        writer.string(value.state)
        writer.int32(value.timeout_ms)
        writer.int64(value.start_ms)
        writer.int64(value.producer_id)
        writer.int16(value.producer_epoch)
        writer.array(value.topics, topic)
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.transactions, transaction)
    return writer.done()


API = Api(65, "DescribeTransactions", 0, 0, 0, decode_request, encode_response)
