"""A backup of a moment between two others, for `muster restore --at`: the logs of the earlier one, then what those of
the later one have up to the moment.

The times of records say where each log is cut; pods' clocks may differ, so what would tear a transaction then is left
out (`ordering`). The store is only read: what it does not have as a file is in a directory of this machine.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from time import gmtime, strftime

import msgspec

from muster_cli.backup.catalog import Catalog
from muster_cli.backup.copying import TAIL_BYTES
from muster_cli.backup.fencing import OpenOffsets, Transactions
from muster_cli.backup.manifest import Backup, PartitionCut, SegmentFile
from muster_cli.backup.ordering import BEFORE, NEVER, Decision, Edge, UnknownOrderError, Written, edges, untorn
from muster_cli.backup.restore import EPOCH_STEP
from muster_cli.backup.store import DirectoryStore, Source
from muster_cli.backup.then import batches_of, moment_of
from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_coordinator.partition_numbers import OFFSETS, index_of
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.records.epoch_cache import EpochCache
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
)
from muster_coordinator.transactions.producer_ids import BLOCK_ID
from muster_coordinator.transactions.states import PREPARED
from muster_operator.api.durations import format_time

CLOCKS_MS = 60_000
"""The difference between clocks of pods at most: a restore has all that was written so long before the moment."""
EVENTS_MAX = 4_000_000
"""Batches of transactions between two backups, each of which takes some hundred bytes of memory."""


@dataclass(frozen=True)
class AtMoment:
    """`backup`: as if it had been made at the moment. `records`: since `base`, that it has. `torn`: records that were
    written by then, and are left out because a part of their transaction, or of one before them in a log, came later.
    `after`: records of the later backup that were written after the moment. `open`: transactional ids whose
    transaction is open then."""

    backup: Backup
    base: str
    later: str
    records: int
    torn: int
    after: int
    open: tuple[str, ...]


class Overlay:
    """The files of a store, and some that only this machine has. Implements `Source`."""

    def __init__(self, below: Source, above: DirectoryStore, names: set[str]) -> None:
        self._below, self._above, self._names = below, above, names

    @property
    def address(self) -> str:
        """The address of the store."""
        return self._below.address

    def read(self, name: str) -> Iterator[bytes]:
        """See `Source`."""
        return (self._above if name in self._names else self._below).read(name)


@contextmanager
def at_moment(
    store: Source, catalog: Catalog, asked: str, at_ms: int, progress: Amount
) -> Iterator[tuple[AtMoment, Source, Catalog]]:
    """Yields the backup of the moment, its files, and the catalog with it. `asked`: the id that it must get, or
    "latest". Raises CliError."""
    base, later = _around(catalog, at_ms)
    moment_id = _id(base, later, at_ms)
    if asked not in ("latest", moment_id):
        raise CliError(f"--backup {asked}: the moment between {base.id} and {later.id} is {moment_id}")
    with TemporaryDirectory(prefix="muster-restore-") as scratch:
        above = DirectoryStore(Path(scratch))
        found = _Logs(store, base, later, at_ms).read(progress)
        made = _made(store, above, catalog, found, moment_id)
        own = above.files()
        merged = Catalog({**catalog.files, **own}, (*catalog.backups, made.backup), catalog.dropped, catalog.unreadable)
        yield made, Overlay(store, above, set(own)), merged


def _around(catalog: Catalog, at_ms: int) -> tuple[Backup, Backup]:
    """The backups before and after the time. Raises CliError."""
    if catalog.backups:
        oldest, newest = catalog.backups[0], catalog.backups[-1]
        if not oldest.taken_at_ms <= at_ms < newest.taken_at_ms:
            raise CliError(
                f"--at {_time(at_ms)}: the store has the moments from {_time(oldest.taken_at_ms)} ({oldest.id}) to"
                f" {_time(newest.taken_at_ms)} ({newest.id}), of which the last is a backup to name (--backup). While"
                " the cluster runs, `muster backup create` adds what came after"
            )
    else:
        raise CliError("the store has no backup")
    moment = moment_of(catalog, None, at_ms)
    assert moment.base is not None
    assert moment.later is not None
    return moment.base, moment.later


def _id(base: Backup, later: Backup, at_ms: int) -> str:
    """The same id in every run, because each pod's volume is restored by itself."""
    digest = hashlib.sha256(f"{base.id} {later.id} {at_ms}".encode()).hexdigest()
    return strftime("%Y%m%dT%H%M%SZ", gmtime(at_ms / 1000)) + "-" + digest[:6]


def _time(at_ms: int) -> str:
    return format_time(at_ms / 1000)


@dataclass
class _Log:
    """One partition between the two cuts. Ends are offsets: of what was written by the moment, of what was written
    so long before that no clock is that wrong, and, when it is known, of what is restored."""

    base: PartitionCut
    later: PartitionCut
    by_then: int
    floor: int
    end: int = 0


@dataclass
class _Found:
    base: Backup
    later: Backup
    at_ms: int
    logs: list[_Log]


class _Logs:
    """Reads the logs of both backups."""

    def __init__(self, store: Source, base: Backup, later: Backup, at_ms: int) -> None:
        self._store = store
        self._found = _Found(base, later, at_ms, [])
        self._written: dict[tuple[int, int], Written] = defaultdict(Written)  # by producer id and partition
        self._decided: dict[tuple[int, int], list[Decision]] = defaultdict(list)  # likewise
        self._known: set[int] = set()  # producer ids that a transaction partition here has handed out
        self._events = 0

    def read(self, progress: Amount) -> _Found:
        """Raises CliError."""
        found = self._found
        bases = {each.number: each for each in found.base.partitions}
        for done, later in enumerate(found.later.partitions):
            progress("logs read", done, len(found.later.partitions))
            base = bases[later.number]
            log = _Log(base, later, base.commit_point, base.commit_point)
            found.logs.append(log)
            try:
                if later.number in found.later.layout.offsets:
                    self._groups(log)
                else:
                    self._transactions(log)
            except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
                raise CliError(f"{found.later.id}, {later.name}: {error}") from error
        progress("logs read", len(found.logs), len(found.logs))
        by_then = {log.base.number: log.by_then for log in found.logs}
        ends = untorn(by_then, {log.base.number: log.floor for log in found.logs}, list(self._order()))
        if ends is None:
            raise CliError(
                f"transactions of {_time(found.at_ms)} are not whole in the {CLOCKS_MS // 1000} s before, as if clocks"
                f" of pods differed by more: restore {found.base.id} or {found.later.id} (--backup)"
            )
        for log in found.logs:
            log.end = ends[log.base.number]
        return found

    def _order(self) -> Iterator[Edge]:
        for (producer_id, number), written in self._written.items():
            if producer_id not in self._known:
                continue  # its transactions are coordinated elsewhere
            try:
                yield from edges(number, written, self._decided.get((producer_id, number), []))
            except UnknownOrderError:
                base, later = self._found.base.id, self._found.later.id
                raise CliError(
                    f"{later}: the transactions of producer {producer_id} cannot be told apart in partition {number}:"
                    f" restore {base} or {later} (--backup)"
                ) from None

    def _range(self, log: _Log) -> Iterator[RecordBatch]:
        """The batches after the cut of the earlier backup. Raises CliError: some are gone."""
        at_ms, expected, epoch = self._found.at_ms, log.base.commit_point, log.base.leader_epoch
        for batch in batches_of(self._store, log.later, expected):
            if batch.base_offset != expected or batch.records_count != batch.end_offset - expected:
                break
            if batch.leader_epoch >= epoch + EPOCH_STEP:
                raise CliError(
                    f"{log.later.name}: the cluster was restored between {self._found.base.id} and"
                    f" {self._found.later.id}: restore one of the two (--backup)"
                )
            expected, epoch = batch.end_offset, batch.leader_epoch
            if batch.base_timestamp_ms <= at_ms:
                log.by_then = expected
            if batch.base_timestamp_ms <= at_ms - CLOCKS_MS:
                log.floor = expected
            if batch.producer_id >= 0:
                self._count()
            yield batch
        if expected != log.later.commit_point:
            base, later = self._found.base, self._found.later
            raise CliError(
                f"{log.later.name}: compaction had removed records after offset {expected} before {later.id} was made,"
                f" so no moment between {base.id} ({_time(base.taken_at_ms)}) and {later.id}"
                f" ({_time(later.taken_at_ms)}) is whole: restore one of the two (--backup)"
            )

    def _count(self) -> None:
        self._events += 1
        if self._events > EVENTS_MAX:
            raise CliError(
                f"between {self._found.base.id} and {self._found.later.id} are more than {EVENTS_MAX}"
                " batches of transactions: restore one of the two (--backup)"
            )

    def _groups(self, log: _Log) -> None:
        number, before = log.base.number, OpenOffsets()
        for batch in batches_of(self._store, log.base):
            before.take(batch)
        for producer_id in before.epochs:
            self._written[producer_id, number].open = True
        for batch in self._range(log):
            if batch.producer_id < 0:
                continue
            written = self._written[batch.producer_id, number]
            if not batch.is_control:
                written.offsets(batch.base_offset)
                continue
            for record in batch.records():
                control = decode_control(record.key, record.value)
                if isinstance(control, EndTxnMarker):
                    written.marker(batch.base_offset, batch.producer_epoch, control.committed)

    def _transactions(self, log: _Log) -> None:
        number, before = log.base.number, Transactions(index_of(log.base.number))
        for batch in batches_of(self._store, log.base):
            before.take(batch)
        undone: dict[str, tuple[int, TransactionLogValue]] = {}  # decided, not complete: offset and value
        for name, value in before.values.items():
            self._known.add(value.producer_id)
            if value.status in PREPARED:
                undone[name] = BEFORE, value
        for batch in self._range(log):
            for record in [] if batch.is_control else batch.records():
                change = decode_transaction_record(record.key, record.value)
                if not isinstance(change, TransactionRecord) or change.transactional_id == BLOCK_ID:
                    continue
                self._count()
                name, value_now = change.transactional_id, change.value
                if name in undone:
                    self._ended(number, undone.pop(name), batch.base_offset)
                if value_now is not None:
                    self._known.add(value_now.producer_id)
                    if value_now.status in PREPARED:
                        undone[name] = batch.base_offset, value_now
        for each in undone.values():
            self._ended(number, each, NEVER)

    def _ended(self, number: int, decided: tuple[int, TransactionLogValue], completed: int) -> None:
        offset, value = decided
        committed = value.status is TransactionStatus.PREPARE_COMMIT
        decision = Decision(number, offset, value.producer_epoch, committed, completed)
        for topic, indexes in value.partitions:
            for index in indexes if topic == OFFSETS.name else ():
                self._decided[value.producer_id, self._found.later.layout.offsets_base + index].append(decision)


def _made(source: Source, above: DirectoryStore, catalog: Catalog, found: _Found, moment_id: str) -> AtMoment:
    """Raises CliError."""
    later, cuts = found.later, []
    for log in found.logs:
        try:
            files, epochs = _files(source, above, catalog, log)
        except ValueError as error:
            raise CliError(f"{later.id}, {log.later.name}: {error}") from error
        cuts.append(
            PartitionCut(log.base.number, log.later.log_id, log.end, log.later.leader_epoch, epochs, tuple(files))
        )
    backup = msgspec.structs.replace(later, id=moment_id, taken_at_ms=found.at_ms, partitions=tuple(cuts))
    overlay = Overlay(source, above, set(above.files()))
    return AtMoment(
        backup,
        found.base.id,
        later.id,
        sum(log.end - log.base.commit_point for log in found.logs),
        sum(log.by_then - log.end for log in found.logs),
        sum(log.later.commit_point - log.by_then for log in found.logs),
        tuple(sorted(_open(overlay, backup))),
    )


def _files(
    source: Source, above: DirectoryStore, catalog: Catalog, log: _Log
) -> tuple[list[SegmentFile], tuple[tuple[int, int], ...]]:
    """The segments up to the end, and where leader epochs began."""
    start, epochs = log.base.commit_point, EpochCache(log.base.epochs)
    epochs.truncate_to(start)
    if log.end == start:
        return list(log.base.segments), epochs.entries
    files = [each for each in log.base.segments if each.base_offset < start]
    bases = [each.base_offset for each in log.later.segments]

    def segment_of(batch: RecordBatch) -> int:
        return max(start, bases[bisect_right(bases, batch.base_offset) - 1])

    for base_offset, batches in groupby(batches_of(source, log.later, start, log.end), segment_of):
        pieces, end = [], base_offset
        for batch in batches:
            epochs.assign(batch.leader_epoch, batch.base_offset)
            pieces.append(batch.data)
            end = batch.end_offset
        content = b"".join(pieces)
        digest = hashlib.sha256(content).hexdigest()
        tail = hashlib.sha256(content[-TAIL_BYTES:]).hexdigest()
        files.append(SegmentFile(base_offset, len(content), end, digest, tail))
        if files[-1].name not in catalog.files:
            above.write(files[-1].name, content)
    return files, epochs.entries


def _open(source: Source, backup: Backup) -> Iterator[str]:
    for cut in backup.partitions:
        if cut.number in backup.layout.transactions:
            transactions = Transactions(index_of(cut.number))
            for batch in batches_of(source, cut):
                transactions.take(batch)
            yield from transactions.open
