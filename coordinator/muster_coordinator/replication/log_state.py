"""The core's knowledge of a replica's log: its end, its durable end, epochs, sets. Never a record.

Last epoch, end and match are answered from the epoch cache and the logical end, so cleaning is invisible here.
Source: replication.md, "Compaction and checkpoints"; KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from muster_coordinator.records.epoch_cache import EpochCache
from muster_coordinator.replication.messages import Batch, Run
from muster_coordinator.replication.sets import Sets


class LogState:
    """`end`: logical end; `durable_end`: what survives a crash; `horizon`: tombstones below it may be gone.

    `copy_mark`: while it is the same, ranges below the horizon that were read one after the other go together in a full
    copy. It changes when the log was cleaned in between, or opened again: then an earlier range may have a value whose
    tombstone a later one lacks.
    """

    def __init__(
        self,
        end: int = 0,
        epochs: Iterable[Run] = (),
        sets: Iterable[tuple[int, Sets]] = (),
        horizon: int = 0,
        copy_mark: int = 0,
    ) -> None:
        """`sets`: (offset, sets) of the leader-change and set records of the log. All that is given is durable."""
        self.end = end
        self.durable_end = end
        self.horizon = horizon
        self.copy_mark = copy_mark
        self.generation = 0  # changes when offsets may come to mean other records
        self._epochs = EpochCache(epochs)
        self._sets = list(sets)

    @property
    def last_epoch(self) -> int:
        return self._epochs.last_epoch

    @property
    def sets(self) -> Sets | None:
        """Those of the last record that names some, committed or not."""
        return self._sets[-1][1] if self._sets else None

    @property
    def loss_epoch(self) -> int:
        """The last epoch of this history whose leader was elected in spite of a loss of data; -1: none was."""
        return max((sets.loss_epoch for _, sets in self._sets), default=-1)

    @property
    def sets_offset(self) -> int:
        return self._sets[-1][0] if self._sets else -1

    def epoch_before(self, offset: int) -> int:
        """Epoch of the record before `offset`; -1 at the start of the log."""
        return self._epochs.epoch_at(offset - 1) if offset > 0 else -1

    def append(self, batch: Batch) -> None:
        """Take a batch at the end of the log; its epoch is the last one or a higher one."""
        if batch.base_offset != self.end or batch.epoch < self.last_epoch:
            raise AssertionError(f"batch {batch.base_offset} epoch {batch.epoch} after {self.end} {self.last_epoch}")
        self._epochs.assign(batch.epoch, batch.base_offset)
        if batch.sets is not None:
            self._sets.append((batch.base_offset, batch.sets))
        self.end = batch.end_offset

    def append_range(self, end: int, runs: tuple[Run, ...], batches: tuple[Batch, ...], source_horizon: int) -> None:
        """Take the part of a range up to `end` that lies after the end of the log.

        The runs tell the epochs of records that cleaning has removed. `source_horizon` is the horizon of the log that
        the range is copied from: batches from below it lack tombstones here too.
        """
        if self.end < source_horizon:
            self.horizon = max(self.horizon, source_horizon)
        for epoch, start in runs:
            if start >= self.end or epoch > self.last_epoch:
                self._epochs.assign(epoch, max(start, self.end))
        for batch in batches:
            if batch.sets is not None:
                self._sets.append((batch.base_offset, batch.sets))
        self.end = end

    def cleaned(self, horizon: int) -> None:
        """Segments of the log were replaced, or are about to be and tombstones below `horizon` to go with them."""
        self.horizon = max(self.horizon, horizon)
        self.copy_mark += 1

    def truncate(self, end: int) -> None:
        self.end = end
        self.durable_end = min(self.durable_end, end)
        self.horizon = min(self.horizon, end)
        self.generation += 1
        self._epochs.truncate_to(end)
        while self._sets and self._sets[-1][0] >= end:
            self._sets.pop()

    def runs(self, start: int, end: int) -> tuple[Run, ...]:
        """Epochs of [start, end): the first run begins at `start`."""
        if start >= end:
            return ()
        epoch, since = self._epochs.last
        if since <= start:  # the usual case: the present epoch
            return ((epoch, start),)
        entries = self._epochs.entries
        index = bisect_right(entries, start, key=lambda entry: entry[1])
        first = (entries[index - 1][0] if index else -1, start)
        return (first, *(entry for entry in entries[index:] if entry[1] < end))

    def agreement(self, start: int, end: int, runs: tuple[Run, ...]) -> int:
        """First offset of [start, end) at which this log has another epoch; the end of the shorter one if none.

        Equal epoch at an offset means an equal record there, and an equal log before it.
        """
        limit = min(end, self.end)
        if limit <= start:
            return start  # all of it is new: the usual case
        mine = self.runs(start, limit)
        cuts = sorted({offset for _, offset in (*mine, *runs) if start <= offset < limit})
        for offset in cuts:
            if _epoch_in(mine, offset) != _epoch_in(runs, offset):
                return offset
        return limit

    def entry_for(self, start: int, previous_epoch: int) -> Run:
        """(epoch, end) from which an appender that does not match at `start` should go on."""
        if start > self.end:
            return self.last_epoch, self.end
        return self._epochs.end_of(previous_epoch, self.end)

    def end_of_epoch(self, epoch: int) -> Run:
        """(largest epoch at or below `epoch`, where it ends); (-1, 0) if there is none."""
        found, end = self._epochs.end_of(epoch, self.end)
        return found, max(end, 0)


def _epoch_in(runs: tuple[Run, ...], offset: int) -> int:
    index = bisect_right(runs, offset, key=lambda run: run[1])
    return runs[index - 1][0] if index else -1
