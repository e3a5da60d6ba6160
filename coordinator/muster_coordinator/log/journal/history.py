"""The journal's knowledge of one log when a pod starts: the input of recovery.

Built by `HistoryBuilder` from the journal's entries, oldest first.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from muster_coordinator.log.journal.format import APPEND, END, TRUNCATE, Entry


class JournaledBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch in a journal file. `boot_id`: of the run of the machine in which it was written. Without `data` it is
    a gap: the log goes on after it.
    """

    base_offset: int
    end_offset: int
    file: Path
    position: int
    data: bytes
    boot_id: str


@dataclass(frozen=True)
class History:
    """`batches` are contiguous unless the journal was damaged; what a truncation removed is not among them.

    `known_end`: the log held everything below it durably; -1: the journal says nothing.
    `truncated_to`: lowest offset that the log was cut to, None if it was not.
    `doubt`: why entries of this log may be missing at the end of the journal, "" if none are. `cache_lost`: under
    flush os the power was lost since the last write, so neither journal nor segments are known to be whole.
    `has_hole`: entries are missing somewhere, perhaps of this log, also of a time before those that it has.
    """

    boot_id: str
    batches: tuple[JournaledBatch, ...] = ()
    known_end: int = -1
    truncated_to: int | None = None
    doubt: str = ""
    cache_lost: bool = False
    has_hole: bool = False

    def next_batch(self, offset: int) -> JournaledBatch | None:
        """The batch that the log goes on with at `offset`, gaps passed over; None if the journal has none."""
        batch = self._by_base.get(offset)
        while batch is not None and not batch.data:
            batch = self._by_base.get(batch.end_offset)
        return batch

    @cached_property
    def _by_base(self) -> dict[int, JournaledBatch]:
        return {batch.base_offset: batch for batch in self.batches}

    def after(self, offset: int) -> History:
        """This history from `offset` on, which lies between two batches: below it the segments are complete."""
        batches = tuple(batch for batch in self.batches if batch.base_offset >= offset)
        truncated_to = None if self.truncated_to is None else max(self.truncated_to, offset)
        return replace(self, batches=batches, truncated_to=truncated_to)


@dataclass
class _Log:
    batches: list[JournaledBatch] = field(default_factory=list)
    known_end: int = -1
    truncated_to: int | None = None
    doubt: str = ""
    has_hole: bool = False


class HistoryBuilder:
    """Collects the entries of all logs."""

    def __init__(self) -> None:
        self._logs: dict[tuple[int, int], _Log] = {}
        self._doubt = ""  # concerns logs that no entry named yet
        self._cache_lost = False
        self._has_hole = False

    @property
    def known_ends(self) -> dict[tuple[int, int], int]:
        """(partition, log id hash) -> known end, for the marks of the next file."""
        return {key: log.known_end for key, log in self._logs.items()}

    def add(self, entry: Entry, file: Path, boot_id: str) -> None:
        """The next entry of kind APPEND, TRUNCATE or END."""
        log = self._logs.setdefault((entry.partition, entry.log_hash), _Log(has_hole=self._has_hole))
        log.doubt = ""  # recovery checks that the log reaches this entry without a gap
        if entry.kind == APPEND:
            log.batches.append(
                JournaledBatch(entry.base_offset, entry.end_offset, file, entry.position, entry.data, boot_id)
            )
            log.known_end = entry.end_offset
        elif entry.kind == TRUNCATE:
            while log.batches and log.batches[-1].end_offset > entry.end_offset:
                log.batches.pop()
            log.known_end = entry.end_offset
            earlier = log.truncated_to
            log.truncated_to = entry.end_offset if earlier is None else min(earlier, entry.end_offset)
        elif entry.kind == END:
            log.known_end = entry.end_offset

    def doubt_all(self, reason: str) -> None:
        """Entries are missing here, of which logs is not known."""
        self._doubt = reason
        self._has_hole = True
        for log in self._logs.values():
            log.doubt, log.has_hole = reason, True

    def cache_was_lost(self) -> None:
        """See `History.cache_lost`."""
        self._cache_lost = True

    def all_logs_follow(self) -> None:
        """A START entry: the ends of all logs that the journal ever named stand after it."""
        self._doubt = ""

    def take_rest(self, boot_id: str, waiting: Set[int]) -> dict[int, list[History]]:
        """partition -> history of each of its logs that has batches and was not taken; none of those in `waiting`."""
        rest: dict[int, list[History]] = {}
        left = [key for key, log in self._logs.items() if log.batches and key[0] not in waiting]
        for partition, log_hash in left:
            rest.setdefault(partition, []).append(self.take(partition, log_hash, boot_id))
        return rest

    def take(self, partition: int, log_hash: int, boot_id: str) -> History:
        """The history of one log; its batches are forgotten here."""
        log = self._logs.pop((partition, log_hash), None)
        if log is None:
            return History(boot_id, doubt=self._doubt, cache_lost=self._cache_lost)
        batches = tuple(log.batches)
        return History(boot_id, batches, log.known_end, log.truncated_to, log.doubt, self._cache_lost, log.has_hole)
