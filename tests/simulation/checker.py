"""What must hold at any time, whatever fails. Sees everything at once, as no replica does.

- one leader per epoch; a promise never goes back;
- what one replica calls committed, all do: committed logs are equal, and epochs never decrease along them;
- a leader opens its epoch with promises of majorities of every set that its log and its record name, and commits only
  with a record of its own epoch; the sets of committed records follow one another legally;
- at the moment in which a leader calls something committed, majorities hold it durably (a copy that a planted loss of
  data took away counts as held: the fault budget keeps a majority whole);
- replayed states equal the committed log's; checkpoints hold nothing uncommitted;
- per group, reads and commits are linearizable: a read shows at least what was acknowledged or read before it began,
  and nothing that nobody wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.storage import DiskLog, Storage
from tests.simulation.world import Violation

from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets

if TYPE_CHECKING:
    from tests.simulation.pod import Pod

__all__ = ["Checker", "History"]


class Checker:
    def __init__(self) -> None:
        self.committed_end = 0
        self.cleaned_end = 0
        self.epochs_opened: dict[int, str] = {}
        self.lost_ids: set[str] = set()  # of volumes that are gone
        self.active_epochs: list[int] = []
        self._sets: Sets | None = None  # of the committed log
        self._ledger: dict[int, Batch] = {}
        self._ordered: list[Batch] = []
        self._states: dict[int, dict[str, int]] = {0: {}}
        self._checked: dict[str, int] = {}  # log id -> up to where its log was compared

    # -- promises and epochs ------------------------------------------------------------------------------------------

    def promised(self, storage: Storage, promise: Promise) -> None:
        before = storage.promise
        if promise.epoch < before.epoch:
            raise Violation(f"{storage.log_id} promises {promise.epoch} after {before.epoch}")
        if promise.epoch == before.epoch and before.leader not in ("", promise.leader):
            raise Violation(f"{storage.log_id} promises epoch {promise.epoch} to a second leader")

    def opens(self, pod: Pod, epoch: int, sets: Sets) -> None:
        """``pod`` is about to append the leader-change record of ``epoch``, which names ``sets``."""
        log_id = pod.storage.log_id
        if epoch in self.epochs_opened:
            raise Violation(f"epoch {epoch} is opened by {self.epochs_opened[epoch]} and by {log_id}")
        self.epochs_opened[epoch] = log_id
        found = sets_before(pod.log, pod.log.end)
        for replicas in (*sets.each, *(found.each if found is not None else ())):
            sealed = [one for one in replicas if self._promised(pod, one, epoch)]
            if 2 * len(sealed) <= len(replicas):
                raise Violation(f"{pod.name} opens epoch {epoch}, promised by {sealed} of {list(replicas)}")

    def _promised(self, pod: Pod, log_id: str, epoch: int) -> bool:
        """This epoch, or a higher one by now."""
        holder = pod.cluster.pod_of(log_id)
        return log_id in self.lost_ids or (holder is not None and holder.storage.promise.epoch >= epoch)

    def active(self, epoch: int, log_id: str) -> None:
        if self.epochs_opened.get(epoch) != log_id:
            raise Violation(f"{log_id} is ACTIVE in epoch {epoch}, which {self.epochs_opened.get(epoch)} opened")
        self.active_epochs.append(epoch)

    # -- the committed log --------------------------------------------------------------------------------------------

    def restarted(self, log_id: str) -> None:
        self._checked[log_id] = 0

    def committed(self, pod: Pod, offset: int) -> None:
        """``pod`` says that all below ``offset`` is committed."""
        log_id = pod.storage.log_id
        core = pod.core
        assert core is not None
        if pod.log.end < offset:
            raise Violation(f"{pod.name} commits {offset}, its log ends at {pod.log.end}")
        if core.leading_epoch >= 0 and core.log.epoch_before(offset) != core.leading_epoch:
            epoch = core.log.epoch_before(offset)
            raise Violation(f"{pod.name} leads {core.leading_epoch} and commits {offset}, a record of epoch {epoch}")
        if core.leading_epoch >= 0 or offset > self.committed_end:
            self._check_majorities(pod, offset)
        self._compare(pod.log, log_id, self._checked.get(log_id, 0), offset)
        self._checked[log_id] = offset

    def _compare(self, log: DiskLog, log_id: str, start: int, end: int) -> None:
        for batch in log._from(start):
            if batch.end_offset > end:
                break
            known = self._ledger.get(batch.base_offset)
            if known is not None:
                if known != batch:
                    raise Violation(f"{log_id} commits {batch}, committed before: {known}")
                continue
            if batch.base_offset != self.committed_end:
                raise Violation(f"{log_id} commits {batch}, the committed log ends at {self.committed_end}")
            if self._ordered and batch.epoch < self._ordered[-1].epoch:
                raise Violation(f"epochs go back: {batch} behind {self._ordered[-1]}")
            self._follow_sets(batch)
            self._ledger[batch.base_offset] = batch
            self._ordered.append(batch)
            self.committed_end = batch.end_offset

    def _follow_sets(self, batch: Batch) -> None:
        before, after = self._sets, batch.sets
        if after is None:
            return
        if before is not None and not before.may_become(after) and after != Sets(before.replicas):
            raise Violation(f"the sets {before} are followed by {after}")
        self._sets = after

    def _check_majorities(self, pod: Pod, offset: int) -> None:
        core = pod.core
        assert core is not None
        epoch = core.log.epoch_before(offset)
        sets = sets_before(pod.log, offset)
        if sets is None:
            raise Violation(f"{pod.name} commits {offset}, and no record before it names a set")
        for replicas in sets.each:
            holders = [one for one in replicas if self._holds(pod, one, offset, epoch)]
            if 2 * len(holders) <= len(replicas):
                raise Violation(
                    f"{pod.name} commits {offset} of epoch {epoch}, durable only on {holders} of {list(replicas)}"
                )

    def _holds(self, pod: Pod, log_id: str, offset: int, epoch: int) -> bool:
        """Durably; or it did, before a planted fault took it."""
        if log_id in self.lost_ids:
            return True
        holder = pod.cluster.pod_of(log_id)
        if holder is None:
            return False
        storage = holder.storage
        if storage.is_damaged:
            return True
        return storage.durable.end >= offset and storage.durable.epoch_before(offset) == epoch

    # -- states -------------------------------------------------------------------------------------------------------

    def state_at(self, offset: int) -> dict[str, int] | None:
        """Of the committed log; None if that is not known to be committed."""
        if offset > self.committed_end:
            return None
        known = self._states.get(offset)
        if known is None:
            known = {}
            for batch in self._ordered:
                if batch.end_offset > offset:
                    break
                _apply(batch, known)
            self._states = {0: {}, offset: known}
        return known

    def replayed(self, pod: Pod) -> None:
        """Every replica's state is that of the committed log at the same offset."""
        if pod.replayed % 5 == 0:
            self.compare_state(pod)

    def compare_state(self, pod: Pod) -> None:
        """Only behind what some replica cleaned: a copy of a cleaned log is complete when it has reached that."""
        if pod.replayed < self.cleaned_end:
            return
        expected = self.state_at(pod.replayed)
        if expected is not None and pod.state != expected:
            raise Violation(f"{pod.name} at {pod.replayed} has the state {pod.state}, committed is {expected}")

    def checkpoint(self, pod: Pod, offset: int) -> None:
        if offset > self.committed_end:
            raise Violation(f"{pod.name} publishes a checkpoint at {offset}, committed is {self.committed_end}")
        self.compare_state(pod)


def sets_before(log: DiskLog, offset: int) -> Sets | None:
    """Those that the last record before ``offset`` names."""
    found = None
    for batch in log.batches:
        if batch.base_offset >= offset:
            break
        found = batch.sets or found
    return found


def _apply(batch: Batch, state: dict[str, int]) -> None:
    from tests.simulation.pod import apply

    apply(batch, state)


class History:
    """Of one group: versions that were written, acknowledged and seen. Versions count up; a negative one deletes."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.tried = 0  # highest version that somebody tried to write
        self.known = 0  # highest that was acknowledged or read
        self._deleting: set[int] = {0}

    def tries(self, version: int) -> None:
        self.tried = max(self.tried, abs(version))
        if version < 0:
            self._deleting.add(-version)

    def acknowledged(self, version: int) -> None:
        self.known = max(self.known, abs(version))

    def read(self, version: int, known_at_start: int) -> None:
        """``version`` 0: there was none."""
        if version == 0:
            if not any(known_at_start <= one <= self.tried for one in self._deleting):
                raise Violation(f"{self.group} is gone; version {known_at_start} was acknowledged or read before")
            return
        if version > self.tried:
            raise Violation(f"{self.group} shows version {version}, which nobody wrote")
        if version < known_at_start:
            raise Violation(f"{self.group} went back to {version}; {known_at_start} was acknowledged or read before")
        self.known = max(self.known, version)
