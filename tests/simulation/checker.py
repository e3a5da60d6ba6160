"""What must hold at any time, whatever fails. Sees everything at once, as no replica does. One per partition.

- one leader per epoch; a promise never goes back;
- what one replica calls committed, all do: committed logs are equal, and epochs never decrease along them;
- a leader opens its epoch with promises of majorities of every set that its log and its record name, and commits only
  with a record of its own epoch; the sets of committed records follow one another legally;
- at the moment in which a leader calls something committed, majorities hold it durably (a copy that a planted loss of
  data took away counts as held: the fault budget keeps a majority whole);
- replayed states, a leader's at the moment in which it is ACTIVE included, equal the committed log's; checkpoints hold
  nothing uncommitted;
- no group forgets a member (``members``, ``consuming.log``); committed offsets of a partition never go back along the
  log, whoever commits them: fencing holds over changes of the leader;
- per group and partition, fetches and commits are linearizable (``history``).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.disk_log import DiskLog
from tests.simulation.injected import Injected
from tests.simulation.machine import Machine, State, decode_batch
from tests.simulation.world import Violation

from muster_coordinator.groups.coordinator import DurableState
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.consumer_group import ConsumerGroupMetadataValue, ConsumerGroupRecord
from muster_coordinator.records.group_metadata import GroupMetadataRecord
from muster_coordinator.records.structs import OffsetCommitRecord
from muster_coordinator.records.transaction_log import TransactionRecord
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition
    from tests.simulation.pods.mirror import MirrorStorage
    from tests.simulation.pods.replica import HostedReplica

__all__ = ["Checker"]

STATE_EVERY = 5
"""Replayed states are compared at offsets that this divides."""


class Checker:
    """``lost_ids``: of volumes that are gone. ``loss_allowed``: a person may give up what no reachable replica has."""

    def __init__(self, partition: Partition) -> None:
        self.lost_ids: set[str] = set()
        self.active_epochs: list[int] = []
        self.epochs_opened: dict[int, str] = {}
        self.loss_allowed = False
        self.loss_accepted = False
        self._loss_epochs: set[int] = set()
        self._loss_end = 0  # of the log that won then; it may have been cleaned
        self._partition = partition
        self._forget_log()

    def _forget_log(self) -> None:
        self.committed_end = 0
        self._cleaned_end = 0
        self._sets: Sets | None = None  # of the committed log
        self._ledger: dict[int, Batch] = {}
        self._ordered: list[Batch] = []
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._deleted: dict[tuple[object, ...], tuple[int, int]] = {}  # key -> offset and epoch of its tombstone
        self._reference = self._new_machine()
        self._states: dict[int, State] = {}
        self._checked: dict[str, int] = {}  # log id -> up to where its log was compared

    def _new_machine(self) -> Machine:
        return Machine(Random(0), self._partition.index)

    # -- promises and epochs ------------------------------------------------------------------------------------------

    def promised(self, storage: MirrorStorage, promise: Promise) -> None:
        before = storage.promise
        if promise.epoch < before.epoch:
            raise Violation(f"{storage.log_id} promises {promise.epoch} after {before.epoch}")
        if promise.epoch == before.epoch and before.leader not in ("", promise.leader):
            raise Violation(f"{storage.log_id} promises epoch {promise.epoch} to a second leader")

    def opens(self, replica: HostedReplica, epoch: int, sets: Sets) -> None:
        """``replica`` is about to append the leader-change record of ``epoch``, which names ``sets``."""
        log_id = replica.storage.log_id
        if epoch in self.epochs_opened:
            raise Violation(f"epoch {epoch} is opened by {self.epochs_opened[epoch]} and by {log_id}")
        self.epochs_opened[epoch] = log_id
        world = self._partition.world
        if world.options.nomination_ms > 0 and epoch not in self._partition.called:
            world.injected[Injected.NOMINATION] += 1
        if epoch in self._loss_epochs:
            self._restart(replica)
            return
        found = sets_before(replica.log, replica.log.end)
        for replicas in (*sets.each, *(found.each if found is not None else ())):
            sealed = [one for one in replicas if self._promised(one, epoch)]
            if 2 * len(sealed) <= len(replicas):
                raise Violation(f"{replica.name} opens epoch {epoch}, promised by {sealed} of {list(replicas)}")

    def _promised(self, log_id: str, epoch: int) -> bool:
        """This epoch, or a higher one by now, with a log that counted then."""
        if self.epochs_opened[epoch] != log_id:
            return self._partition.statements.has_sealed(log_id, epoch)
        holder = self._partition.replica_of(log_id)
        return log_id in self.lost_ids or (holder is not None and holder.storage.promise.epoch >= epoch)

    @property
    def highest_active(self) -> int:
        """-1: nobody has led yet."""
        return max(self.active_epochs, default=-1)

    def active(self, replica: HostedReplica, epoch: int) -> None:
        log_id = replica.storage.log_id
        if self.epochs_opened.get(epoch) != log_id:
            raise Violation(f"{log_id} is ACTIVE in epoch {epoch}, which {self.epochs_opened.get(epoch)} opened")
        self.active_epochs.append(epoch)

    # -- loss that a person allowed -----------------------------------------------------------------------------------

    def accepts_loss(self, epoch: int) -> None:
        if not self.loss_allowed:
            raise Violation(f"epoch {epoch} accepts a loss that nobody allowed")
        self._loss_epochs.add(epoch)
        self._partition.world.injected[Injected.LOSS_ACCEPTED] += 1

    def _restart(self, replica: HostedReplica) -> None:
        """The committed log is from now on what this leader has, and what it adds."""
        self.loss_accepted = True
        self._partition.members.forget()
        self._partition.consumers.forget()
        for history in self._partition.histories:
            history.forget()
        self._forget_log()
        self._loss_end = replica.log.end
        self._compare(replica.log, replica.storage.log_id, 0, self._loss_end)
        self.committed_end = self._loss_end

    # -- the committed log --------------------------------------------------------------------------------------------

    def restarted(self, log_id: str) -> None:
        self._checked[log_id] = 0

    def cleaned(self, limit: int) -> None:
        self._cleaned_end = max(self._cleaned_end, limit)

    def committed(self, replica: HostedReplica, offset: int) -> None:
        """``replica`` says that all below ``offset`` is committed."""
        log_id = replica.storage.log_id
        core = replica.running
        if replica.log.end < offset:
            raise Violation(f"{replica.name} commits {offset}, its log ends at {replica.log.end}")
        if core.leading_epoch >= 0 and core.log.epoch_before(offset) != core.leading_epoch:
            epoch = core.log.epoch_before(offset)
            raise Violation(
                f"{replica.name} leads {core.leading_epoch} and commits {offset}, a record of epoch {epoch}"
            )
        if core.leading_epoch >= 0 or offset > self.committed_end:
            self._check_majorities(replica, offset)
        is_known = not replica.storage.lost  # else what nobody has read yet may be damaged
        self._compare(replica.log, log_id, self._checked.get(log_id, 0), offset, whole=is_known)
        self._checked[log_id] = offset

    def _compare(self, log: DiskLog, log_id: str, start: int, end: int, *, whole: bool = True) -> None:
        at = start
        for batch in log.batches_from(start):
            if batch.end_offset > end:
                break
            before, at = at, batch.end_offset
            known = self._ledger.get(batch.base_offset)
            if known is not None:
                if whole and batch.base_offset > before >= max(self._cleaned_end, self._loss_end):
                    raise Violation(f"{log_id} lacks what is committed between {before} and {batch.base_offset}")
                if known != batch and not _is_rest_of(batch, known):
                    raise Violation(f"{log_id} commits {batch}, committed before: {known}")
                continue
            if batch.base_offset < min(self.committed_end, self._loss_end):
                continue  # was cleaned in the log that won
            if batch.base_offset != self.committed_end and batch.base_offset >= self._loss_end:
                raise Violation(f"{log_id} commits {batch}, the committed log ends at {self.committed_end}")
            if self._ordered and batch.epoch < self._ordered[-1].epoch:
                raise Violation(f"epochs go back: {batch} behind {self._ordered[-1]}")
            self._commit(batch)

    def _commit(self, batch: Batch) -> None:
        self._follow_sets(batch)
        self._ledger[batch.base_offset] = batch
        self._ordered.append(batch)
        self.committed_end = batch.end_offset
        transactions = self._partition.transactions
        if transactions is not None:
            transactions.committed(self._partition.index, decode_batch(batch.data))
        for change, offset, _ in decode_batch(batch.data).changes:
            self._follow_tombstone(change, offset, batch.epoch)
            if isinstance(change, GroupMetadataRecord):
                if change.value is not None:
                    self._partition.consumers.became_classic(change.group_id, change.value, batch.epoch)
                self._partition.members.committed(change.group_id, change.value, batch.epoch)
            elif isinstance(change, OffsetCommitRecord) and change.value is not None:
                self._follow_offset(change, batch)
            elif isinstance(change, ConsumerGroupRecord):
                self._partition.consumers.committed(change, batch.epoch)
                if isinstance(change.value, ConsumerGroupMetadataValue):
                    consumers, group_id = self._partition.consumers, change.group_id
                    consumers.changes[group_id] += self._partition.members.became_consumers(
                        group_id, change.value.epoch, consumers.members(group_id), batch.epoch
                    )
        self._partition.members.batch_ends(batch.epoch)
        changes = self._partition.consumers.batch_ends(batch.epoch)
        self._partition.world.injected[Injected.KIND_CHANGED] += changes
        self._reference.replay(batch)
        if batch.end_offset % STATE_EVERY == 0:
            self._states[batch.end_offset] = self._reference.state()

    def _follow_tombstone(self, change: object, offset: int, epoch: int) -> None:
        """The last record of its key, if that is a tombstone."""
        match change:
            case OffsetCommitRecord(value=value):
                key: tuple[object, ...] = (change.group_id, change.topic, change.partition)
            case GroupMetadataRecord(value=value):
                key = (change.group_id,)
            case TransactionRecord(value=value):
                key = (change.transactional_id,)
            case _:
                return
        if value is None:
            self._deleted[key] = offset, epoch
        else:
            self._deleted.pop(key, None)

    def check_horizon(self, replica: HostedReplica) -> None:
        """The log of `replica` has every tombstone that is the last word of its key, at or above its horizon: who has
        less of the log goes on from there, and would keep what was deleted.
        """
        log = replica.log
        missing = [
            (key, offset)
            for key, (offset, epoch) in self._deleted.items()
            if log.horizon <= offset < log.end and log.epoch_before(offset + 1) == epoch
        ]
        if not missing:
            return
        have = {offset for batch in log.batches for _, offset, _ in decode_batch(batch.data).changes}
        for key, offset in missing:
            if offset not in have:
                raise Violation(
                    f"{replica.name} lacks the tombstone of {key} at {offset}, its horizon is {log.horizon}"
                )

    def committed_of(self, log: DiskLog) -> int:
        """End of what `log` holds and is committed."""
        for batch in reversed(self._ordered):
            if batch.end_offset <= log.end and log.epoch_before(batch.end_offset) == batch.epoch:
                return batch.end_offset
        return 0

    def archived(self, log_id: str, batches: Sequence[RecordBatch]) -> None:
        """A segment is in the archive: committed, and as whole as the log that it was fetched from."""
        for batch in batches:
            known = self._ledger.get(batch.base_offset)
            found = Batch(batch.base_offset, batch.end_offset, batch.leader_epoch, bytes(batch.data))
            if known is None or not _is_rest_of(found, known):
                raise Violation(f"{log_id} archives {found}, committed is {known}")

    def _follow_offset(self, change: OffsetCommitRecord, batch: Batch) -> None:
        assert change.value is not None
        key = change.group_id, change.topic, change.partition
        transactions = self._partition.transactions
        if transactions is not None and transactions.knows(change.group_id):
            return  # it looks for itself
        if change.value.offset <= self._offsets.get(key, -1):
            raise Violation(
                f"{key} goes back to {change.value.offset} from {self._offsets[key]} in epoch {batch.epoch}"
            )
        self._offsets[key] = change.value.offset

    def _follow_sets(self, batch: Batch) -> None:
        before, after = self._sets, batch.sets
        if after is None:
            return
        legal = before is None or before.may_become(after) or after == Sets(before.replicas)
        if not legal and batch.epoch not in self._loss_epochs:
            raise Violation(f"the sets {before} are followed by {after}")
        self._sets = after

    def _check_majorities(self, replica: HostedReplica, offset: int) -> None:
        epoch = replica.running.log.epoch_before(offset)
        sets = sets_before(replica.log, offset)
        if sets is None:
            raise Violation(f"{replica.name} commits {offset}, and no record before it names a set")
        for replicas in sets.each:
            holders = [one for one in replicas if self._holds(one, offset, epoch, replica)]
            if 2 * len(holders) <= len(replicas):
                raise Violation(
                    f"{replica.name} commits {offset} of epoch {epoch}, durable only on {holders} of {list(replicas)}"
                )

    def _holds(self, log_id: str, offset: int, epoch: int, replica: HostedReplica) -> bool:
        """Durably; or it did, before a planted fault took it, and `replica`, which leads, does not know of that."""
        holder = self._partition.replica_of(log_id)
        if log_id in self.lost_ids or (holder is not None and holder.storage.is_damaged):
            leads = replica.running.leading_epoch
            if leads < 0 or log_id == replica.storage.log_id:
                return True
            return self._partition.statements.has_acked(log_id, leads, offset)
        if holder is None:
            return False
        durable = holder.storage.durable
        return (durable.end >= offset and durable.epoch_before(offset) == epoch) or holder.has_acked_last(epoch, offset)

    # -- states -------------------------------------------------------------------------------------------------------

    def _state_at(self, offset: int) -> State | None:
        """Of the committed log; None if that is not known to be committed."""
        if offset > self.committed_end:
            return None
        known = self._states.get(offset)
        if known is None and offset == self.committed_end:
            known = self._states[offset] = self._reference.state()
        if known is None and offset < self._loss_end:
            return None
        if known is None:
            machine = self._new_machine()
            machine.replay_to(self._ordered, offset)
            known = self._states[offset] = machine.state()
        return known

    def compare_state(self, replica: HostedReplica) -> None:
        """Only behind what some replica cleaned: a copy of a cleaned log is complete when it has reached that.

        A cleaned log may lack what ``DurableState`` says.
        """
        self._compare_state_at(replica, replica.machine.replayed, replica.machine.state())

    def _compare_state_at(self, replica: HostedReplica, offset: int, state: State) -> None:
        if offset < self._cleaned_end or (self.loss_accepted and not self._is_of_ledger(replica, offset)):
            return
        expected = self._state_at(offset)
        if expected is None:
            return
        same = _lasting(state) == _lasting(expected) if self._cleaned_end or self.loss_accepted else state == expected
        if not same:
            raise Violation(f"{replica.name} at {offset} has the state {state}, committed is {expected}")

    def _is_of_ledger(self, replica: HostedReplica, offset: int) -> bool:
        """Not so for a replica that was not reached since a loss was accepted: it shows the history before."""
        last = next((batch for batch in reversed(self._ordered) if batch.end_offset <= offset), None)
        return last is not None and replica.log.epoch_before(offset) == last.epoch


def _lasting(state: State) -> tuple[object, ...]:
    """What cleaning leaves as it was."""
    if not isinstance(state, DurableState):
        return (state,)
    return state.groups, state.consumers, state.committed, state.pending


def _is_rest_of(batch: Batch, known: Batch) -> bool:
    """``batch`` is ``known`` without some of its records, or the other way round."""
    if (batch.base_offset, batch.end_offset, batch.epoch) != (known.base_offset, known.end_offset, known.epoch):
        return False
    one, other = (decode_batch(each.data).changes for each in (batch, known))
    return all(change in other for change in one) or all(change in one for change in other)


def sets_before(log: DiskLog, offset: int) -> Sets | None:
    """Those that the last record before ``offset`` names."""
    for batch in reversed(log.batches):
        if batch.base_offset < offset and batch.sets is not None:
            return batch.sets
    return None
