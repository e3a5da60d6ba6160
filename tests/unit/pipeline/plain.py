"""The plain decoder that numpy's is checked against: one record after the other, with nothing but `records`.

Kafka's own rules for a record are stricter than the coordinator's reader: its integers have at most five bytes, and its
fields stay inside it (DefaultRecord). Damage is followed by the rules of `decode.scan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from muster_coordinator.records import consumer_group
from muster_coordinator.records.batch import HEADER_BYTES, CorruptBatchError, RecordBatch, read_batch
from muster_coordinator.records.compression import decompress
from muster_coordinator.records.consumer_group_codec import decode_consumer_group_record
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.records.decode import UnknownRecord, decode_record
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord

Row = dict[str, Any]


def plain_rows(data: bytes) -> list[Row]:
    """Rows as (position, offset, kind, ...) dictionaries without the columns that are null."""
    rows: list[Row] = []
    position = 0
    while position < len(data):
        try:
            batch = read_batch(data, position)
        except CorruptBatchError:
            size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + 12
            left = len(data) - position
            if left < HEADER_BYTES or not HEADER_BYTES <= size <= left:
                zeros = not any(data[position:])
                rows.append({"position": position, "kind": "damaged", "bytes": left, "zeros": zeros})
                return rows
            rows.append({"position": position, "kind": "damaged", "bytes": size, "zeros": False})
            position += size
            continue
        try:
            rows += [batch_row(batch, position, *record) for record in strict_records(batch)]
        except (ValueError, IndexError):
            rows.append({"position": position, "kind": "damaged", "bytes": len(batch.data), "zeros": False})
        position += len(batch.data)
    return rows


def strict_records(batch: RecordBatch) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, timestamp, key, value)."""
    codec = batch.attributes & 7
    raw = batch.data[HEADER_BYTES:]
    body = decompress(codec, raw) if codec else raw
    out = []
    position = 0
    for _ in range(batch.records_count):
        length, position = varint(body, position, 5)
        end = position + length
        if length < 0 or end > len(body):
            raise ValueError("record leaves its batch")
        delta_ms, at = varint(body, position + 1, 10)
        offset_delta, at = varint(body, at, 5)
        key, at = field(body, at, end)
        value, at = field(body, at, end)
        timestamp = batch.base_timestamp_ms + delta_ms
        if batch.attributes & 8:
            timestamp = batch.max_timestamp_ms
        out.append((batch.base_offset + offset_delta, wrap(timestamp), key, value))
        position = end
    if position != len(body):
        raise ValueError("bytes after the last record")
    return out


def field(body: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    size, position = varint(body, position, 5)
    end = position + max(size, 0)
    if end > limit:
        raise ValueError("field leaves its record")
    return (None if size < 0 else body[position:end]), end


def varint(body: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    raw = 0
    for index in range(max_bytes):
        byte = body[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            raw &= 0xFFFF_FFFF_FFFF_FFFF
            return wrap((raw >> 1) ^ (0xFFFF_FFFF_FFFF_FFFF if raw & 1 else 0)), position + index + 1
    raise ValueError("varint too long")


def wrap(value: int) -> int:
    """As a signed 64-bit number."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


def batch_row(
    batch: RecordBatch, position: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None
) -> Row:
    row: Row = {"position": position, "offset": wrap(offset), "timestamp_ms": timestamp, "epoch": batch.leader_epoch}
    if batch.is_transactional or batch.is_control:
        row |= {"producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch}
    try:
        return row | dict(control_items(key, value) if batch.is_control else record_items(key, value))
    except UnsupportedValueVersionError:
        return row | {"kind": "unreadable", "problem": "unsupported_version"}
    except RecordDecodeError:
        return row | {"kind": "unreadable", "problem": "bad_record"}


def control_items(key: bytes | None, value: bytes | None) -> Iterator[tuple[str, Any]]:
    if key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big", signed=True) not in (0, 1):
        yield "kind", "control"  # the pipeline does not look into other control records
        return
    marker = decode_control(key, value)
    assert isinstance(marker, EndTxnMarker)
    yield "kind", "txn_commit" if marker.committed else "txn_abort"


def record_items(key: bytes | None, value: bytes | None) -> Iterator[tuple[str, Any]]:
    if key is not None and int.from_bytes(key[:2], "big", signed=True) in consumer_group.TYPES and len(key) >= 2:
        record = decode_consumer_group_record(key, value)
        yield from {"group": record.group_id, "record_type": record.type, "name": record.name}.items()
        yield "kind", "consumer_group_tombstone" if value is None else "consumer_group"
        return
    change = decode_record(key, value)
    if isinstance(change, UnknownRecord):
        yield from {"kind": "unknown", "record_type": change.type}.items()
    elif isinstance(change, OffsetCommitRecord):
        yield from {"group": change.group_id, "topic": change.topic, "partition": change.partition}.items()
        if change.value is None:
            yield "kind", "offset_tombstone"
        else:
            yield "kind", "offset_commit"
            # The pipeline has no column for the id of the topic.
            yield "offset_value", msgspec.structs.replace(change.value, topic_id=NO_TOPIC_ID)
    else:
        yield "group", change.group_id
        yield "kind", "group_tombstone" if change.value is None else "group_metadata"
        if change.value is not None:
            yield "group_value", change.value
