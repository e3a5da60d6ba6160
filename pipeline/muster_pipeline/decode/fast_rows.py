"""Makes the rows of records that numpy can read alone: committed offsets, tombstones, markers, record types of other
protocols. It leaves all other records, and records that look damaged, to `slow_rows`.

The kind of a record is decided from its bytes alone, before any column or row is selected. So texts are checked even if
their column was not selected.

Layouts in `muster_coordinator.records.offset_commit`, `group_metadata` and `control`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muster_coordinator.records import consumer_group, group_metadata, offset_commit, transaction_log
from muster_pipeline.decode.columns import Ints, Mask, Source, number_array, same_text, text_array, texts
from muster_pipeline.decode.schema import SCHEMA, Kind
from muster_pipeline.decode.structure import CONTROL, MAX_INT_BYTES, TRANSACTIONAL, Records, Window

_EXPIRE_VERSION = 1
_LEADER_EPOCH_VERSION = 3
_TAGGED_TOPIC_ID = 0x0010  # what stands behind one tagged field's number: its tag 0, its size of 16 bytes
_TAGGED_TOPIC_ID_BYTES = 19
_UNKNOWN_EPOCH = -1
_NO_TIMESTAMP = -1
_MARKER_VALUE_BYTES = 6
_ABORT_TYPE, _COMMIT_TYPE = 0, 1
_CONSUMER_GROUP_TYPES = sorted(consumer_group.TYPES)
_EMPTY_ID_BYTES = 4  # of a key: its version, and the length of the empty transactional id

KIND_NAMES = [
    Kind.OFFSET_COMMIT,
    Kind.OFFSET_TOMBSTONE,
    Kind.GROUP_METADATA,
    Kind.GROUP_TOMBSTONE,
    Kind.TXN_COMMIT,
    Kind.TXN_ABORT,
    Kind.CONTROL,
    Kind.UNKNOWN,
    Kind.TRANSACTION_STATE,
    Kind.TRANSACTION_TOMBSTONE,
    Kind.PRODUCER_IDS,
    Kind.CONSUMER_GROUP,
    Kind.CONSUMER_GROUP_TOMBSTONE,
]
_KIND_TEXTS = texts(KIND_NAMES)
_ONLY_SLOW = SCHEMA.names[SCHEMA.names.index("protocol_type") :]
"""Columns that no row has which numpy reads."""
_COMMIT, _OFFSET_TOMBSTONE, _GROUP, _GROUP_TOMBSTONE, _TXN_COMMIT, _TXN_ABORT, _CONTROL, _UNKNOWN = range(8)
_TRANSACTION, _TRANSACTION_TOMBSTONE, _PRODUCER_IDS, _CONSUMER, _CONSUMER_TOMBSTONE = range(8, 13)
_OF_GROUPS = [_GROUP, _CONSUMER, _CONSUMER_TOMBSTONE]
_HAS_GROUP = np.isin(np.arange(len(KIND_NAMES)), [_COMMIT, _OFFSET_TOMBSTONE, _GROUP_TOMBSTONE, *_OF_GROUPS])
_IS_SLOW = np.isin(np.arange(len(KIND_NAMES)), _OF_GROUPS)
_HAS_TOPIC = np.isin(np.arange(len(KIND_NAMES)), [_COMMIT, _OFFSET_TOMBSTONE])


@dataclass(frozen=True)
class Origin:
    """The origin of a window: the log of a partition of one of the two topics. `position` is its first byte in the
    file."""

    file: str
    offsets_partition: int | None = None
    transaction_partition: int | None = None
    position: int = 0

    @property
    def place(self) -> dict[str, Any]:
        """The columns that say which file it is, and of which log."""
        return {
            "file": self.file,
            "offsets_partition": self.offsets_partition,
            "transaction_partition": self.transaction_partition,
        }


@dataclass(frozen=True)
class Parse:
    """The kind of every record (index into KIND_NAMES) and the positions of its fields.

    `slow`: not for numpy; the kind is then what it looks like, and `group` its group if it can be read at all.
    Texts are null where a record has none. Places lie inside the record even where they mean nothing, and rise from
    record to record.
    """

    kind: NDArray[np.int8]
    slow: Mask
    record_type: Ints
    version: Ints
    topic_end: Ints
    metadata_end: Ints
    group: pa.Array
    topic: pa.Array
    metadata: pa.Array

    def __getitem__(self, index: Ints) -> Parse:
        return Parse(*(_taken(getattr(self, one.name), index) for one in fields(self)))


def _taken(column: pa.Array | NDArray[Any], index: Ints) -> pa.Array | NDArray[Any]:
    return column.take(number_array(index, pa.int64())) if isinstance(column, pa.Array) else column[index]


def parse_records(window: Window, records: Records, *, of_transactions: bool = False) -> Parse:
    """`of_transactions`: the log is of `__transaction_state`, of which numpy reads control records only."""
    source = window.source
    key_start, key_end = records.key_start, np.maximum(records.key_end, records.key_start)
    # What a place holds is read before it is sure that it exists: the buffer is padded, and `slow` says what counts.
    record_type = source.int16(key_start)
    slow = key_end - key_start < 2
    control = (window.headers["attributes"] & CONTROL != 0)[records.batch]
    if of_transactions:
        kind = _transaction_kinds(record_type, key_end - key_start, records.value_end < 0)
        slow |= (kind != _UNKNOWN) & ~control
    else:
        kind = _kinds(record_type, records.value_end < 0)
        slow |= _IS_SLOW[kind] & ~control
    if control.any():
        record_type, kind, wrong = _control_kinds(source, records, control, record_type, kind)
        slow |= wrong
    group_start, group_end, wrong = _string(source, key_start + 2, key_end, 0)
    slow |= _HAS_GROUP[kind] & wrong
    topic_start, topic_end, wrong = _string(source, group_end, key_end, 4)
    slow |= _HAS_TOPIC[kind] & wrong
    value_start, value_end = records.value_start, np.maximum(records.value_end, records.value_start)
    version = source.int16(value_start)
    metadata_start, metadata_end, wrong = _metadata(source, version, value_start, value_end)
    slow |= (kind == _COMMIT) & wrong
    found = []
    for starts, ends, has in (
        (group_start, group_end, _HAS_GROUP[kind]),
        (topic_start, topic_end, _HAS_TOPIC[kind]),
        (metadata_start, metadata_end, kind == _COMMIT),
    ):
        column, invalid = text_array(source, starts, ends, has)
        found.append(column)
        slow[invalid] = True
    return Parse(kind, slow, record_type, version, topic_end, metadata_end, *found)


def _control_kinds(
    source: Source, records: Records, control: Mask, record_type: Ints, kind: NDArray[np.int8]
) -> tuple[Ints, NDArray[np.int8], Mask]:
    """(types, kinds, wrong): those of control batches put in place of what their bytes would be elsewhere."""
    control_type = source.int16(records.key_start + 2)
    marker = (control_type == _ABORT_TYPE) | (control_type == _COMMIT_TYPE)
    marker_kind = np.where(control_type == _COMMIT_TYPE, _TXN_COMMIT, _TXN_ABORT)
    kind = np.where(control, np.where(marker, marker_kind, _CONTROL), kind).astype(np.int8)
    no_marker = marker & (records.value_end - records.value_start < _MARKER_VALUE_BYTES)
    wrong = control & ((records.key_end - records.key_start < 4) | no_marker)
    return np.where(control, control_type, record_type), kind, wrong


def _kinds(record_type: Ints, null: Mask) -> NDArray[np.int8]:
    """Return the kinds of all records, ignoring control batches."""
    kind = np.full(len(record_type), _UNKNOWN, np.int8)
    is_offset = (record_type == offset_commit.KEY_TYPE) | (record_type == offset_commit.LEGACY_KEY_TYPE)
    is_group = record_type == group_metadata.KEY_TYPE
    kind[is_offset] = _COMMIT
    kind[is_offset & null] = _OFFSET_TOMBSTONE
    kind[is_group] = _GROUP
    kind[is_group & null] = _GROUP_TOMBSTONE
    is_consumer_group = np.isin(record_type, _CONSUMER_GROUP_TYPES)
    kind[is_consumer_group] = _CONSUMER
    kind[is_consumer_group & null] = _CONSUMER_TOMBSTONE
    return kind


def _transaction_kinds(record_type: Ints, key_bytes: Ints, null: Mask) -> NDArray[np.int8]:
    """The same of `__transaction_state`."""
    is_state = record_type == transaction_log.KEY_VERSION
    kind = np.where(is_state, np.where(null, _TRANSACTION_TOMBSTONE, _TRANSACTION), _UNKNOWN)
    kind[is_state & ~null & (key_bytes == _EMPTY_ID_BYTES)] = _PRODUCER_IDS
    return kind.astype(np.int8)


def _string(source: Source, at: Ints, end: Ints, behind: Ints | int) -> tuple[Ints, Ints, Mask]:
    """(start, end, wrong) of the int16-length strings at `at`, with `behind` more bytes before `end`."""
    return _bounds(at + 2, source.int16(np.minimum(at, end)), end, behind)


def _bounds(start: Ints, size: Ints, end: Ints, behind: Ints | int) -> tuple[Ints, Ints, Mask]:
    stop = start + size
    wrong = (size < 0) | (stop + behind > end)
    start = np.minimum(start, end)
    return start, np.where(wrong, start, stop), wrong


def _metadata(source: Source, version: Ints, value_start: Ints, value_end: Ints) -> tuple[Ints, Ints, Mask]:
    """(start, end, wrong) of the metadata of committed offsets. `wrong` as well: a version that does not exist, and
    tagged fields other than a topic id."""
    at = value_start + 10 + 4 * (version >= _LEADER_EPOCH_VERSION)
    flexible = version == offset_commit.FLEXIBLE_VERSION
    behind = 8 + 8 * (version == _EXPIRE_VERSION) + flexible
    start, size = at + 2, source.int16(np.minimum(at, value_end))
    unread = (version < 0) | (version > offset_commit.LATEST_VERSION)
    if flexible.any():
        length, after, too_long = source.unsigned_varints(np.minimum(at, value_end), MAX_INT_BYTES)
        start, size = np.where(flexible, after, start), np.where(flexible, length - 1, size)
        if too_long is not None:
            unread |= flexible & too_long
    start, stop, wrong = _bounds(start, size, value_end, behind)
    tags_at = stop + 8
    tags = source.buffer[tags_at]
    is_topic_id = (source.int16(tags_at + 1) == _TAGGED_TOPIC_ID) & (tags_at + _TAGGED_TOPIC_ID_BYTES <= value_end)
    unread |= flexible & (tags != 0) & ~((tags == 1) & is_topic_id)
    return start, stop, wrong | unread


def fast_rows(window: Window, records: Records, parse: Parse, origin: Origin, schema: pa.Schema) -> pa.RecordBatch:
    """Decode one row for each record; none of them may be `slow`."""
    columns = _columns(window, records, parse, origin)
    return pa.record_batch([columns[field.name]() for field in schema], schema=schema)


def _columns(window: Window, records: Records, parse: Parse, origin: Origin) -> Mapping[str, Callable[[], pa.Array]]:
    """Return a function for each column, so that only selected columns are decoded."""
    source, headers, batch = window.source, window.headers, records.batch
    count = len(records)
    is_commit = parse.kind == _COMMIT
    transactional = (headers["attributes"] & (TRANSACTIONAL | CONTROL) != 0)[batch]
    with_epoch = parse.version >= _LEADER_EPOCH_VERSION

    def header(name: str) -> Ints:
        column: Ints = headers[name].astype(np.int64)[batch]
        return column

    def expire() -> Ints:
        return np.where(parse.version == _EXPIRE_VERSION, source.int64(parse.metadata_end + 8), _NO_TIMESTAMP)

    def partition(number: int | None) -> pa.Array:
        if number is None:
            return pa.nulls(count, pa.int32())
        return number_array(np.full(count, number, np.int32), pa.int32())

    def nulls(kind: pa.DataType) -> Callable[[], pa.Array]:
        return lambda: pa.nulls(count, kind)

    return {
        "file": lambda: same_text(origin.file, count),
        "offsets_partition": lambda: partition(origin.offsets_partition),
        "transaction_partition": lambda: partition(origin.transaction_partition),
        "position": lambda: number_array(window.positions[batch] + origin.position, pa.int64()),
        "offset": lambda: number_array(records.offset, pa.int64()),
        "leader_epoch": lambda: number_array(header("leader_epoch"), pa.int32()),
        "timestamp_ms": lambda: number_array(records.timestamp_ms, pa.int64()),
        "kind": lambda: _KIND_TEXTS.take(number_array(parse.kind, pa.int8())),
        "record_type": lambda: number_array(parse.record_type, pa.int16()),
        "value_version": lambda: number_array(parse.version, pa.int16(), is_commit),
        "producer_id": lambda: number_array(header("producer_id"), pa.int64(), transactional),
        "producer_epoch": lambda: number_array(header("producer_epoch"), pa.int16(), transactional),
        "group": lambda: parse.group,
        "topic": lambda: parse.topic,
        "partition": lambda: number_array(source.int32(parse.topic_end), pa.int32(), _HAS_TOPIC[parse.kind]),
        "committed_offset": lambda: number_array(source.int64(records.value_start + 2), pa.int64(), is_commit),
        "committed_leader_epoch": lambda: number_array(
            np.where(with_epoch, source.int32(records.value_start + 10), _UNKNOWN_EPOCH), pa.int32(), is_commit
        ),
        "metadata": lambda: parse.metadata,
        "commit_timestamp_ms": lambda: number_array(source.int64(parse.metadata_end), pa.int64(), is_commit),
        "expire_timestamp_ms": lambda: number_array(expire(), pa.int64(), is_commit),
        **{name: nulls(SCHEMA.field(name).type) for name in _ONLY_SLOW},
    }
