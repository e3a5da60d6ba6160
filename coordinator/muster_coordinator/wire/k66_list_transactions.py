"""ListTransactions (66), versions 0 to 2, flexible (KIP-664).

- v1: duration_filter (KIP-994)
- v2: transactional_id_pattern (KIP-1152)
"""

from __future__ import annotations

from muster_coordinator.requests.transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ListTransactionsRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    states, producer_ids = reader.array(reader.string), reader.array(reader.int64)
    duration_ms = reader.int64() if header.api_version >= 1 else -1
    pattern = reader.nullable_string() if header.api_version >= 2 else None
    reader.tagged_fields()
    return ListTransactionsRequest(states, producer_ids, duration_ms, pattern)


def encode_response(version: int, response: ListTransactionsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def transaction(value: ListedTransaction) -> None:
        writer.string(value.transactional_id)
        writer.int64(value.producer_id)
        writer.string(value.state)
        writer.tagged_fields()

    writer.int32(0)
    writer.int16(response.error_code)
    writer.array(response.unknown_states, writer.string)
    writer.array(response.transactions, transaction)
    return writer.done()


API = Api(66, "ListTransactions", 0, 2, 0, decode_request, encode_response)
