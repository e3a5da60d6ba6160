"""What one replica has, read after each callback of its process, and what must hold of that by itself.

- What was acked to a leader stays, as long as the replica promises no higher epoch, over crashes too, unless it says
  that it lost data (`lacks`).
- What this log id ever reported as committed is never cut and never missing in a copy, unless it rebuilds, or a person
  allowed a loss.
- A log lacks tombstones below its own tombstone horizon only (`checker.Checker.check_horizon`), and with an archive the
  cleaner takes nothing from it that the archive has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.checker import STATE_EVERY
from tests.simulation.disk_log import DiskLog
from tests.simulation.injected import Injected
from tests.simulation.machine import Machine, State, decode_batch
from tests.simulation.world import Violation

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Ack, Batch

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition

__all__ = ["Mirror", "MirrorStorage"]


class MirrorStorage:
    """What is durable. `lost`: why data that was acked may be missing, "" if none is, until the replica says so in its
    promise and has a log without damage; `power_lost`: it may be missing under flush os, until the replica says so.
    """

    def __init__(self, log_id: str) -> None:
        self.log_id = log_id
        self.promise = Promise()
        self.durable = DiskLog()
        self.lost = ""
        self.power_lost = False

    @property
    def is_damaged(self) -> bool:
        """Something that was acked may be missing, and the replica has not caught up since."""
        return bool(self.lost) or self.power_lost or self.promise.rebuilding

    def keep_promise(self, promise: Promise) -> None:
        """A bit that is flipped stays so, and unnoticed perhaps, until all of the log was read, or another one is in
        its place (`lost`)."""
        self.promise = promise
        if promise.rebuilding:
            self.power_lost = False


@dataclass(frozen=True)
class _Acked:
    """The highest end that was acked in `epoch`, or counted by its leader, by this incarnation of the log."""

    epoch: int = -1
    end: int = 0
    incarnation: int = 0

    def up_to(self, epoch: int, end: int, incarnation: int) -> _Acked:
        same = (epoch, incarnation) == (self.epoch, self.incarnation)
        return _Acked(epoch, max(end, self.end) if same else end, incarnation)

    def holds_for(self, promise: Promise) -> bool:
        """Nothing but a leader of a higher epoch may take it back."""
        return (promise.epoch, promise.incarnation) == (self.epoch, self.incarnation)


class _AtRest:
    """The materialised state of a replica at rest, as `Machine` shows it."""

    def __init__(self, replayed: int, coordinator: Any) -> None:
        self.replayed = replayed
        self._coordinator = coordinator

    def state(self) -> State:
        state: State = self._coordinator.durable_state()
        return state


EMPTY = _AtRest(0, Machine(Random(0)).coordinator)


class Mirror:
    """`log`: what the process has in memory and on disk; `lacks`: what of it was acked before and is missing now."""

    def __init__(self, name: str, partition: Partition) -> None:
        self.name = name
        self.partition = partition
        self.world = partition.world
        self.machine = EMPTY
        self.becomes("")

    def becomes(self, log_id: str) -> None:
        """Another replica, with a log of its own."""
        self.storage = MirrorStorage(log_id)
        self.log = DiskLog()
        self.lacks = ""
        self._acked = _Acked()
        self._committed = 0  # highest commit point that it ever reported
        self._kept = 0  # of that, what was durable here
        self._held: list[DiskLog] = []  # what was durable here when data was lost, until it is rebuilt
        self._forget()

    def _forget(self) -> None:
        self._open: PartitionLog | None = None
        self._reported = 0  # commit point, by this process
        self._active = -1
        self._compared = -1
        self._cleaned_to: Any = None
        self._copied_to = 0  # end of the copy that took the log's place

    def durable_to(self, log: PartitionLog) -> int:
        """A copy is synced before it takes the log's place; a write that was staged before may be reported after."""
        return max(log.journaled_end, self._copied_to)

    def starts(self) -> None:
        """A process."""
        self._forget()
        self.partition.checker.restarted(self.storage.log_id)

    def ends(self) -> None:
        self.log = self.storage.durable.copy()
        self.machine = EMPTY

    # -- what happened ------------------------------------------------------------------------------------------------

    def look_at(self, host: ReplicaHost) -> None:
        if host.replica.log_id != self.storage.log_id:
            self.world.log(f"{self.name} is a new replica {host.replica.log_id[:4]}")
            self.becomes(host.replica.log_id)
        log = host.open_log
        core = host.core
        if log is None or core is None:
            return  # nothing is answered with what is here
        self._look_at_promise(host.replica.promise)
        self._look_at_log(log, core)
        if self._held and not self.storage.promise.rebuilding:
            self._rebuilt()
        if self._reported < host.commit_point:
            self._reported = host.commit_point
            self._committed = max(self._committed, self._reported)
            self._kept = max(self._kept, min(self._reported, self.durable_to(log)))
            self.partition.checker.committed(self, self._reported)
        if core.is_active and self._active != core.leading_epoch:
            self._active = core.leading_epoch
            self.world.log(f"{self.name} is ACTIVE in {self._active}")
            self.partition.checker.active(self, self._active)
        self.compare(host)

    def _look_at_promise(self, promise: Promise) -> None:
        if promise == self.storage.promise:
            return
        self.world.log(f"{self.name} promises {promise.epoch} to {promise.leader[:4]}")
        self.partition.checker.promised(self.storage, promise)
        if promise.rebuilding:
            self.lacks, self._committed, self._kept = "", 0, 0
        if promise.incarnation > self.storage.promise.incarnation:
            self._held.append(self.storage.durable)
        self.storage.keep_promise(promise)

    def _look_at_log(self, log: PartitionLog, core: ReplicaCore) -> None:
        if log is not self._open:
            self._opened(log)
        elif log.cleaned_to != self._cleaned_to:
            self._cleaned(log)
        end = log.end_offset
        if end < self.log.end:
            self.world.log(f"{self.name} cuts its log from {self.log.end} to {end}")
            self._must_keep(end, "cuts its log")
            self.log.cut(end)
            self._copied_to = min(self._copied_to, end)
        if end > self.log.end:
            self._follow(log, core)
        durable, durable_to = self.storage.durable, self.durable_to(log)
        if durable.end != durable_to:
            durable = DiskLog(self.log.batches, self.log.runs, durable_to, self.log.horizon)
            if len(self.log.batches) and durable_to < self.log.end:
                durable = self.log.copy()
                durable.cut(durable_to)
            self.storage.durable = durable
        if core.leading_epoch >= 0:
            self._acked = self._acked.up_to(core.leading_epoch, durable_to, self.storage.promise.incarnation)

    def _opened(self, log: PartitionLog) -> None:
        """The log was recovered, or a copy took its place."""
        before, swapped = self.log, self._open is not None
        self._open = log
        is_whole = self._read(log, swapped=swapped)
        self.storage.durable = self.log.copy()
        self.partition.checker.restarted(self.storage.log_id)
        if swapped:
            self.world.injected[Injected.COPIED] += 1
            self.world.log(f"{self.name} swaps its log (end {before.end}) for a copy (end {self.log.end})")
            self._must_keep(self.log.end, "swaps its log for a copy")
            self._copied_to = self.log.end
        elif not self.storage.promise.rebuilding:
            self._recovered(is_whole=is_whole)
        if is_whole and (swapped or self.storage.promise.rebuilding):
            self.storage.lost = ""
        if not self.storage.is_damaged:
            self.partition.checker.check_horizon(self)

    def _recovered(self, *, is_whole: bool) -> None:
        """After a start: what was durable is there, or is known to be lost. `is_whole`: all of it can be read."""
        acked, storage, end = self._acked, self.storage, self.log.end
        expected = max(self._kept, acked.end if acked.holds_for(storage.promise) else 0)
        if end < expected:
            self.lacks = f"what lay between {end} and {expected}"
            if not storage.power_lost:
                raise Violation(f"the log of {self.name} ends at {end} after a start, it held {expected} before")
        elif is_whole:
            storage.lost = ""  # the journal mended it
            storage.power_lost &= self.log.end > 0  # one that never held anything lost nothing
        self._committed = min(self._committed, end)  # it may know of commits that are not durable here

    def _rebuilt(self) -> None:
        """It counts again."""
        held, self._held = self._held, []
        checker, durable = self.partition.checker, self.storage.durable
        checker.check_horizon(self)
        if checker.loss_allowed or self.storage.lost:  # a copy, of which a part is damaged, unnoticed
            return
        for log in held:
            end = checker.committed_of(log)
            if durable.end < end or durable.epoch_before(end) != log.epoch_before(end):
                raise Violation(f"{self.name} counts again with {durable.end} of the committed {end} that it once held")

    def _must_keep(self, end: int, what: str) -> None:
        """All but that above `end` goes."""
        acked, storage = self._acked, self.storage
        if storage.is_damaged:
            return
        if end < self._committed and not self.partition.checker.loss_accepted:
            raise Violation(f"{self.name} {what} at {end}, it reported {self._committed} as committed")
        if end < acked.end and acked.holds_for(storage.promise):
            raise Violation(f"{self.name} {what} at {end}, acked in this epoch was {acked.end}")
        self._committed, self._kept = min(self._committed, end), min(self._kept, end)

    def acks(self, ack: Ack) -> None:
        self._acked = self._acked.up_to(ack.epoch, ack.end, ack.incarnation)

    def has_acked_last(self, epoch: int, offset: int) -> bool:
        """Its process ended in the effects that sent the ack, before anybody looked at its log. At its next start
        `_recovered` looks whether the record is there."""
        ended = self.host is None and not self.storage.power_lost
        return ended and self._acked.epoch == epoch and self._acked.end >= offset

    # -- the log ------------------------------------------------------------------------------------------------------

    def cleans(self) -> None:
        """A cleaned segment is about to take its place, somewhere below the commit point."""
        self.partition.checker.cleaned(self._reported)

    def _cleaned(self, log: PartitionLog) -> None:
        self.world.injected[Injected.CLEANED] += 1
        before = self.log
        self._read(log)
        cleaned = log.cleaned_to
        self.world.log(f"{self.name} is cleaned to {cleaned.end_offset}, horizon {cleaned.tombstone_horizon}")
        if self.world.options.archive_every_ms:
            self._check_cleaned(before, self.archived())
        self.partition.checker.check_horizon(self)

    def archived(self) -> dict[int, RecordBatch]:
        """What the archive has of this log, by base offset."""
        raise NotImplementedError

    def _check_cleaned(self, before: DiskLog, archived: dict[int, RecordBatch]) -> None:
        """What the log had `before`, and has no more, is in the archive."""
        kept = {batch.base_offset: batch.data for batch in self.log.batches}
        for batch in before.batches:
            if kept.get(batch.base_offset) == batch.data:
                continue
            copy = archived.get(batch.base_offset)
            changes = decode_batch(batch.data).changes
            if copy is None or any(change not in decode_batch(copy.data).changes for change in changes):
                raise Violation(f"{self.name} is cleaned of {batch}, which the archive has not")

    def _read(self, log: PartitionLog, *, swapped: bool = False) -> bool:
        """False: a batch is damaged, which nobody has noticed yet. Then it counts as it was, with what it has behind
        that, or as if it had no batch if a copy took its place.
        """
        before, self.log = self.log, DiskLog()
        try:
            content, is_whole = _content(log, 0), True
        except DamagedLogError:
            if not self.storage.lost:
                raise
            known = [batch for batch in before.batches if batch.end_offset <= log.end_offset]
            content, is_whole = [] if swapped else known + _readable(log, before.end), False
        self._append(content, log.end_offset)
        self._cleaned_to = log.cleaned_to
        self.log.horizon = log.cleaned_to.tombstone_horizon
        self.partition.checker.cleaned(log.cleaned_to.end_offset)
        return is_whole

    def _follow(self, log: PartitionLog, core: ReplicaCore) -> None:
        checker = self.partition.checker
        try:
            content = _content(log, self.log.end)
        except DamagedLogError:
            if not self.storage.lost:
                raise
            self.log.end = log.end_offset  # nobody has noticed yet: it counts, as in `_read`
            return
        for batch in content:
            if batch.sets is not None and batch.epoch == core.leading_epoch and decode_batch(batch.data).opens:
                self.world.log(f"{self.name} opens epoch {batch.epoch} at {batch.base_offset}")
                checker.opens(self, batch.epoch, batch.sets)
            self._append([batch], batch.end_offset)
        self.log.end = log.end_offset

    def _append(self, batches: Sequence[Batch], end: int) -> None:
        self.log.append(end, batches, [(batch.epoch, batch.base_offset) for batch in batches], 0)

    # -- the state ----------------------------------------------------------------------------------------------------

    def compare(self, host: ReplicaHost, every: int = STATE_EVERY) -> None:
        """At rest, with committed records only: a state that has others is kept as long as the log has them."""
        found = host.role.state_at_rest
        if found is None:
            return
        offset = found[1]
        if offset != self._compared and offset >= 0 and offset % every == 0 and offset <= self._reported:
            self._compared = offset
            self.machine = _AtRest(offset, found[0].machine)
            self.partition.checker.compare_state(self)


def _readable(log: PartitionLog, start: int) -> list[Batch]:
    """What the log has from `start` on; nothing if that is damaged, too."""
    try:
        return _content(log, start) if start < log.end_offset else []
    except DamagedLogError:
        return []


def _content(log: PartitionLog, start: int) -> list[Batch]:
    return [
        Batch(one.base_offset, one.end_offset, one.leader_epoch, one.data, decode_batch(one.data).sets)
        for one in log.read_batches(max(start, log.start_offset))
    ]
