"""The choice of the records of `__consumer_offsets` that compaction keeps. Pure: batches in, batches out.

`note` every batch from the start of the log on, then `keep` the same batches in the same order. Kept are

- the last record of each key, as replay counts it: an offset of a transaction counts from its COMMIT marker on, and
  then only if nothing with a higher offset overtook it; an aborted one never does;
- a tombstone for `delete_retention_ms` after it was written, and a group's as long as an offset of that group is
  left in front of it (an offset alone would bring the group back);
- every offset of a transaction that has no marker yet, unless a tombstone after it removed it;
- a marker as long as an offset is left that it decides about, and else for `delete_retention_ms`;
- every other control record, and every record without a key.

Because each record goes for the sake of one after it, replacing segments one after the other, first to last, leaves
at every moment a log that says the same. Source: Cleaner, CleanedTransactionMetadata; reference, section 3.5.
"""

from __future__ import annotations

from muster_coordinator.records import group_metadata, offset_commit
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.records.retain import retain
from muster_coordinator.records.structs import BatchRecord

_OFFSET_TYPES = (offset_commit.KEY_TYPE, offset_commit.LEGACY_KEY_TYPE)
_OFFSET_PREFIX = offset_commit.KEY_TYPE.to_bytes(2, "big")


class Compaction:
    """One pass over one log. `now_ms`: wall clock."""

    def __init__(self, now_ms: int, delete_retention_ms: int) -> None:
        self.horizon = 0
        """The horizon after `note`: a reader that has the log up to here misses nothing that is dropped. All tombstones
        and markers that go because of their age lie below it, and those tombstones that a later record makes
        superfluous but that also removed a pending offset.
        """
        self._expired_before_ms = now_ms - delete_retention_ms
        self._latest: dict[bytes, int] = {}  # key -> offset of the record that counts
        self._tombstones: dict[bytes, int] = {}  # key -> offset of its last tombstone
        self._pending: dict[int, dict[bytes, int]] = {}  # producer id -> key -> offset, of open transactions
        self._last_marker: dict[int, int] = {}  # producer id -> offset
        self._deleted_groups: set[bytes] = set()  # those with a tombstone that is old enough to go
        self._offsets_kept_of: set[bytes] = set()  # of these groups: offsets were kept so far
        self._undecided: set[int] = set()  # producers of which records were kept that a later marker decides about

    def note(self, batch: RecordBatch) -> None:
        """Raises CorruptBatchError, RecordDecodeError."""
        if batch.is_control:
            for record in batch.records():
                marker = decode_control(record.key, record.value)
                if isinstance(marker, EndTxnMarker):
                    self._note_marker(batch.producer_id, marker.committed, record)
            return
        producer = _producer(batch)
        for record in batch.records():
            key = record.key
            if key is None:
                continue
            key = _canonical(key)
            if record.value is None:
                self._latest[key] = self._tombstones[key] = record.offset
                if self._removes_pending(key) or self._is_expired(record):
                    self.horizon = max(self.horizon, record.offset + 1)
                if _type(key) == group_metadata.KEY_TYPE and self._is_expired(record):
                    self._deleted_groups.add(_group(key))
            elif producer >= 0 and _is_offset(key):
                self._pending.setdefault(producer, {})[key] = record.offset
            else:
                self._latest[key] = record.offset

    def _removes_pending(self, key: bytes) -> bool:
        removed = [pending.pop(key, None) for pending in self._pending.values()]
        return any(offset is not None for offset in removed)

    def _note_marker(self, producer: int, committed: bool, record: BatchRecord) -> None:
        decided = self._pending.pop(producer, {})
        self._last_marker[producer] = record.offset
        if committed:
            for key, offset in decided.items():
                if offset > self._latest.get(key, -1):
                    self._latest[key] = offset
        if self._is_expired(record):
            self.horizon = max(self.horizon, record.offset + 1)

    def keep(self, batch: RecordBatch) -> bytes:
        """The rest of the batch, b"" if nothing is."""
        if batch.is_control:
            return retain(batch, {record.offset for record in batch.records() if self._keeps_control(batch, record)})
        producer = _producer(batch)
        offsets = {record.offset for record in batch.records() if self._keeps(record, producer)}
        if offsets and producer >= 0:
            self._undecided.add(producer)
        return retain(batch, offsets)

    def _keeps_control(self, batch: RecordBatch, record: BatchRecord) -> bool:
        if not isinstance(decode_control(record.key, record.value), EndTxnMarker):
            return True
        if batch.producer_id in self._undecided:
            self._undecided.discard(batch.producer_id)
            return True
        return not self._is_expired(record)

    def _keeps(self, record: BatchRecord, producer: int) -> bool:
        if record.key is None:
            return True
        key = _canonical(record.key)
        if record.value is None:
            return self._latest[key] == record.offset and not self._may_go(key, record)
        if producer >= 0 and _is_offset(key) and record.offset > self._last_marker.get(producer, -1):
            kept = record.offset > self._tombstones.get(key, -1)
        else:
            kept = self._latest.get(key) == record.offset
        if kept and self._deleted_groups and _is_offset(key):
            group = _group(key)
            if group in self._deleted_groups:
                self._offsets_kept_of.add(group)
        return kept

    def _may_go(self, key: bytes, tombstone: BatchRecord) -> bool:
        if not self._is_expired(tombstone):
            return False
        return _type(key) != group_metadata.KEY_TYPE or _group(key) not in self._offsets_kept_of

    def _is_expired(self, record: BatchRecord) -> bool:
        return record.timestamp_ms <= self._expired_before_ms


def _producer(batch: RecordBatch) -> int:
    """The producer id of a transaction's batch; -1 for a batch outside of one."""
    return batch.producer_id if batch.is_transactional else -1


def _canonical(key: bytes) -> bytes:
    """Key versions 0 and 1 of an offset commit have one layout and name the same offset."""
    return _OFFSET_PREFIX + key[2:] if _is_offset(key) else key


def _type(key: bytes) -> int:
    return int.from_bytes(key[:2], "big", signed=True)


def _is_offset(key: bytes) -> bool:
    return _type(key) in _OFFSET_TYPES


def _group(key: bytes) -> bytes:
    """The group id with its length: the first field of a group's key and of an offset's."""
    return key[2 : 4 + int.from_bytes(key[2:4], "big", signed=True)]
