"""Transactions: TransactionLogKey 0 and TransactionLogValue 0-1, the records of `__transaction_state`.

Key: version i16 (0) | transactionalId str.
Value: version i16 | producerId i64 | producerEpoch i16 | transactionTimeout i32 | status i8 | partitions narray of
(topic str, array of i32) | lastUpdateTimestamp i64 | startTimestamp i64 | tagged fields (1): 0 previousProducerId i64,
1 nextProducerId i64, 2 clientTransactionVersion i16. Version 1 is flexible. Written: value 1, as by every broker since
transaction.version 1. Kafka 4.1 did not write the tagged fields 0 and 1 yet.
Source: TransactionLogKey.json, TransactionLogValue.json, TransactionLog.scala.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

import msgspec

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.primitives import INT16, INT32, INT64, MAX_STRING_BYTES, Cursor, encode_string
from muster_coordinator.records.structs import UnknownRecord
from muster_coordinator.records.varint import encode_unsigned

WRITTEN_VERSION = 1
FLEXIBLE_VERSION = 1
LATEST_VERSION = 1

KEY_VERSION = 0
_HEAD = Struct(">hqhib")  # version, producer id, epoch, time-out, status
_TIMES = Struct(">qq")
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2  # tags

Partitions = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, partitions), each topic once."""


class TransactionStatus(IntEnum):
    """Kafka's TransactionState by its id. Dead (6) and PrepareEpochFence (7) exist in a broker's memory only."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


class TransactionLogValue(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """State of one transactional id. Times are ms since 1970; `start_ms` -1: no transaction has begun.

    `previous_producer_id`: the producer id of the record before. `next_producer_id`: the one that a transaction which
    ends takes then, because the epochs of its own are used up. Both are -1 if there is none. `client_version`: the
    transaction version of the client that began or ended the transaction (0 or 2, KIP-890).
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: Partitions
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_version: int = 0


class TransactionRecord(msgspec.Struct, frozen=True, gc=False):
    """`value` None: tombstone, the transactional id has expired."""

    transactional_id: str
    value: TransactionLogValue | None


def encode_transaction_key(transactional_id: str) -> bytes:
    """ValueError if the id does not fit its int16 length."""
    return INT16.pack(KEY_VERSION) + encode_string(transactional_id)


def encode_transaction_value(value: TransactionLogValue) -> bytes:
    """Version 1. ValueError if a topic's name does not fit a string of Kafka."""
    parts = [
        _HEAD.pack(WRITTEN_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.status),
        _encode_partitions(value),
        _TIMES.pack(value.last_update_ms, value.start_ms),
    ]
    tagged: list[tuple[int, bytes]] = []
    if value.previous_producer_id != -1:
        tagged.append((_PREVIOUS_PRODUCER_ID, INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != -1:
        tagged.append((_NEXT_PRODUCER_ID, INT64.pack(value.next_producer_id)))
    if value.client_version:
        tagged.append((_CLIENT_VERSION, INT16.pack(value.client_version)))
    parts.append(encode_unsigned(len(tagged)))
    for tag, content in tagged:
        parts += (encode_unsigned(tag), encode_unsigned(len(content)), content)
    return b"".join(parts)


def _encode_partitions(value: TransactionLogValue) -> bytes:
    """A compact array. Null in state Empty, as Kafka writes it."""
    if value.status is TransactionStatus.EMPTY:
        return b"\x00"
    parts = [encode_unsigned(len(value.partitions) + 1)]
    for topic, indexes in value.partitions:
        raw = topic.encode()
        if len(raw) > MAX_STRING_BYTES:
            raise ValueError(f"topic of {len(raw)} bytes, at most {MAX_STRING_BYTES} fit")
        parts += (encode_unsigned(len(raw) + 1), raw, encode_unsigned(len(indexes) + 1))
        parts += [INT32.pack(index) for index in indexes]
        parts.append(b"\x00")  # no tagged fields
    return b"".join(parts)


def decode_transaction_record(key: bytes | None, value: bytes | None) -> TransactionRecord | UnknownRecord:
    """Raises RecordDecodeError (a null key included), UnsupportedValueVersionError. A key of another version is an
    unknown record, which Kafka skips too."""
    if key is None or len(key) < 2:
        raise RecordDecodeError("record without a key" if key is None else f"key of {len(key)} bytes")
    version = int.from_bytes(key[:2], "big", signed=True)
    if version != KEY_VERSION:
        return UnknownRecord(version, "")
    transactional_id = Cursor(key, 2, "TransactionLogKey").string()
    return TransactionRecord(transactional_id, None if value is None else decode_transaction_value(value))


def decode_transaction_value(value: bytes) -> TransactionLogValue:
    """Raises UnsupportedValueVersionError, RecordDecodeError."""
    if len(value) < 2:
        raise RecordDecodeError(f"TransactionLogValue of {len(value)} bytes")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= LATEST_VERSION:
        raise UnsupportedValueVersionError("TransactionLogValue", version)
    cursor = Cursor(value, 2, f"TransactionLogValue v{version}", flexible=version >= FLEXIBLE_VERSION)
    producer_id, producer_epoch, timeout_ms = cursor.int64(), cursor.int16(), cursor.int32()
    status = _status(cursor.int8())
    partitions = tuple([_decode_topic(cursor) for _ in range(cursor.nullable_array_length() or 0)])
    last_update_ms, start_ms = cursor.int64(), cursor.int64()
    tagged = cursor.tagged_fields()
    return TransactionLogValue(
        producer_id,
        producer_epoch,
        timeout_ms,
        status,
        partitions,
        last_update_ms,
        start_ms,
        previous_producer_id=_tagged(tagged, _PREVIOUS_PRODUCER_ID, INT64, -1),
        next_producer_id=_tagged(tagged, _NEXT_PRODUCER_ID, INT64, -1),
        client_version=_tagged(tagged, _CLIENT_VERSION, INT16, 0),
    )


def _status(number: int) -> TransactionStatus:
    try:
        return TransactionStatus(number)
    except ValueError:
        raise RecordDecodeError(f"TransactionLogValue: status {number}, which no broker writes") from None


def _decode_topic(cursor: Cursor) -> tuple[str, tuple[int, ...]]:
    topic = cursor.string()
    indexes = tuple([cursor.int32() for _ in range(cursor.array_length())])
    cursor.skip_tagged_fields()
    return topic, indexes


def _tagged(fields: dict[int, bytes], tag: int, form: Struct, default: int) -> int:
    content = fields.get(tag)
    if content is None:
        return default
    if len(content) != form.size:
        raise RecordDecodeError(f"TransactionLogValue: tagged field {tag} of {len(content)} bytes")
    number: int = form.unpack(content)[0]
    return number
