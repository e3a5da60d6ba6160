"""The offsets that groups had committed at a moment, from backups.

A backup has every offset as it was at its cut. For a moment between two backups, the logs of the later one are replayed
on top of the earlier one, up to the last batch that was written by then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from muster_cli.backup.catalog import Catalog
from muster_cli.backup.continuity import forked_at
from muster_cli.backup.manifest import SEGMENTS, Backup, PartitionCut
from muster_cli.backup.store import Source
from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_coordinator.groups.offset_store import OffsetStore
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, iter_batches
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.records.decode import LogDecoder
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue

Place = tuple[str, int]
"""Topic and partition."""

_PRODUCERS, _UNPACKED_GROUPS = 1_000_000, 10_000
"""The memory of one replay: producers with their epochs, and groups as objects."""


@dataclass(frozen=True)
class Moment:
    """A cut, or a time after that of `base` and not after that of `later`. `base`: None if no backup is that old.
    `at_ms`: since 1970; None: the cut of `base`."""

    base: Backup | None
    later: Backup | None = None
    at_ms: int | None = None


@dataclass
class Then:
    """`offsets`: by group and place. `removed`: records written between `base` and the moment that compaction had taken
    out before they were backed up; the groups' offsets may be older than at the moment then, by as much."""

    offsets: dict[str, dict[Place, OffsetCommitValue]] = field(default_factory=dict)
    removed: int = 0


def moment_of(catalog: Catalog, asked: str | None, at_ms: int | None) -> Moment:
    """The cut of the backup `asked`, or the time `at_ms`. Raises CliError."""
    if at_ms is None:
        return Moment(catalog.find(asked or "latest"))
    for name, why in catalog.unreadable.items():
        raise CliError(f"{name}: {why}. Name a backup (--backup) to go around it")
    later = next((each for each in catalog.backups if each.taken_at_ms > at_ms), None)
    if later is None:
        raise CliError("no backup in the store is younger than that time: run `muster backup create`, then this again")
    before = [each for each in catalog.backups if each.taken_at_ms <= at_ms]
    base = before[-1] if before else None
    if base is not None and (base.layout, base.cluster_id) != (later.layout, later.cluster_id):
        raise CliError(f"the partitions are others in {base.id} and {later.id}: name one of the two (--backup)")
    forked = None if base is None else forked_at(base, later.partitions)
    if base is not None and forked is not None:
        raise CliError(
            f"{forked.name}: {later.id} does not go on where {base.id} ends, as after a restore of an older backup:"
            " name one of the two (--backup)"
        )
    return Moment(base, later, at_ms)


def offsets_then(store: Source, moment: Moment, wanted: Callable[[str], bool], progress: Amount) -> Then:
    """The offsets of the groups that are `wanted`. Blocks. Raises CliError, also for a store that is not as written."""
    found = Then()
    newest = moment.later or moment.base
    assert newest is not None
    cuts = {} if moment.base is None else {each.number: each for each in moment.base.partitions}
    partitions = [each for each in newest.partitions if each.number in newest.layout.offsets]
    for done, cut in enumerate(partitions):
        progress("partitions read", done, len(partitions))
        replay = _Replay(wanted)
        try:
            base = cuts.get(cut.number)
            if base is not None:
                replay.take(batches_of(store, base))
            if moment.later is not None and moment.at_ms is not None:
                start = 0 if base is None else base.commit_point
                end = _end_at(store, cut, start, moment.at_ms)
                found.removed += end - start - replay.take(batches_of(store, cut, start, end))
        except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
            raise CliError(f"{newest.id}, {cut.name}: {error}") from error
        found.offsets |= replay.offsets()
    progress("partitions read", len(partitions), len(partitions))
    return found


class _Replay:
    """One partition."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._offsets = OffsetStore(_PRODUCERS, _UNPACKED_GROUPS)
        self._decode = LogDecoder().decode

    def take(self, batches: Iterator[RecordBatch]) -> int:
        """Returns how many records there were."""
        count = 0
        for batch in batches:
            count += batch.records_count
            if batch.is_control:
                self._marker(batch)
                continue
            for record in batch.records():
                change = self._decode(record.key, record.value)
                if type(change) is OffsetCommitRecord and self._wanted(change.group_id):
                    self._offset(batch, change, record.offset)
        return count

    def offsets(self) -> dict[str, dict[Place, OffsetCommitValue]]:
        found: dict[str, dict[Place, OffsetCommitValue]] = {}
        for group in self._offsets.committed:
            of_group = found[group] = {}
            for topic, of_topic in self._offsets.of_group(group).items():
                of_group |= {(topic, number): value for number, (_, value) in of_topic.items()}
        return found

    def _offset(self, batch: RecordBatch, change: OffsetCommitRecord, offset: int) -> None:
        place = (change.group_id, change.topic, change.partition)
        if change.value is None:
            self._offsets.remove(*place, offset)
        elif batch.is_transactional:
            self._offsets.put_pending(batch.producer_id, batch.producer_epoch, *place, (offset, change.value))
        else:
            self._offsets.put(*place, (offset, change.value))

    def _marker(self, batch: RecordBatch) -> None:
        for record in batch.records():
            control = decode_control(record.key, record.value)
            if isinstance(control, EndTxnMarker):
                self._offsets.end_transaction(
                    batch.producer_id, batch.producer_epoch, control.committed, control.coordinator_epoch, record.offset
                )


def batches_of(store: Source, cut: PartitionCut, start: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
    """Those that begin at `start` or later, and end at `end` or before. Raises CliError, CorruptBatchError."""
    for number, segment in enumerate(cut.segments):
        following = cut.segments[number + 1].base_offset if number + 1 < len(cut.segments) else cut.commit_point
        if following <= start:
            continue
        data = b"".join(store.read(segment.name))
        if SEGMENTS + hashlib.sha256(data).hexdigest() != segment.name:
            raise CliError(f"{segment.name}: its content has changed; `muster backup verify` says of all files")
        for batch in iter_batches(data):
            if end is not None and batch.end_offset > end:
                return
            if batch.base_offset >= start:
                yield batch


def _end_at(store: Source, cut: PartitionCut, start: int, at_ms: int) -> int:
    """The offset after the last batch that was written by that time: a clock that was set back once hides nothing."""
    end = start
    for batch in batches_of(store, cut, start):
        if batch.base_timestamp_ms <= at_ms:
            end = batch.end_offset
    return end
