"""The rules of replication.md that one decision each carries out, by name.

The core asks an object of this class wherever a rule decides; nothing configures it. Simulation plants a fault by
overriding one method (tests/simulation/faults/), which shows that the checkers would notice.
"""

from __future__ import annotations

from enum import Enum

from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.epochs import EPOCH_JUMP_MAX, NOBODY
from muster_coordinator.replication.messages import Run
from muster_coordinator.replication.sets import Sets


class Verdict(Enum):
    """The decision about a message by the promise of the replica."""

    TAKE = "it is what was promised"
    PROMISE = "promise it durably, then take it"
    REFUSE = "a lower epoch, another leader, or an epoch too far ahead"


class Rules:
    # -- Promise ------------------------------------------------------------------------------------------------------

    def seal(self, promise: Promise, epoch: int, leader: str) -> Verdict:
        """A seal or an election. An epoch that was promised to no replica gets its leader once."""
        if epoch == promise.epoch:
            if leader == promise.leader:
                return Verdict.TAKE
            return Verdict.PROMISE if promise.leader == NOBODY and epoch >= 0 else Verdict.REFUSE
        return self._higher(promise, epoch)

    def leader_message(self, promise: Promise, epoch: int, leader: str) -> Verdict:
        """An append, heartbeat or catch-up fetch: only what equals the promise, or raises it."""
        if epoch == promise.epoch:
            return Verdict.TAKE if leader == promise.leader else Verdict.REFUSE
        return self._higher(promise, epoch)

    @staticmethod
    def _higher(promise: Promise, epoch: int) -> Verdict:
        if promise.epoch < epoch <= max(promise.epoch, 0) + EPOCH_JUMP_MAX:
            return Verdict.PROMISE
        return Verdict.REFUSE

    def promised_leader(self, promise: Promise, epoch: int, leader: str) -> str:
        """The leader that is written into the promise of `epoch`: the first that asks, for good."""
        return leader

    def promise_is_stored(self) -> bool:
        """Durable before it is answered."""
        return True

    def promise_ends_leadership(self) -> bool:
        """The leader is a replica too: its own higher promise ends what it leads, in the same step."""
        return True

    def may_lead(self, promise: Promise, epoch: int, own: str) -> bool:
        """True only for an epoch that this process promises to itself now: none that was promised before, even to
        itself.
        """
        return self.seal(promise, epoch, own) is Verdict.PROMISE

    # -- Election -----------------------------------------------------------------------------------------------------

    def sets_to_seal(self, call: Sets, chosen: Sets | None) -> tuple[tuple[str, ...], ...]:
        """A majority of each: every set that the call names and every one that the chosen log names."""
        return call.each + (chosen.each if chosen is not None else ())

    def is_sealed(self, replicas: tuple[str, ...], sealed: int) -> bool:
        return 2 * sealed > len(replicas)

    def log_rank(self, last_epoch: int, end: int) -> tuple[int, int]:
        """The best log: highest last epoch first, then highest end."""
        return last_epoch, end

    def candidate_end(self, common: int, own_end: int, best_end: int) -> int:
        """The end to which the candidate cuts its log: the common prefix with the best, even if its own is longer."""
        return common

    def may_change(self, chosen: Sets, call: Sets) -> bool:
        return chosen.may_become(call)

    def sets_of_epoch(self, call: Sets, chosen: Sets | None) -> Sets:
        """The sets that the leader-change record names."""
        return call

    # -- Append and commit --------------------------------------------------------------------------------------------

    def cut_at(self, differs_at: int, start: int, end: int, log_end: int, runs: tuple[Run, ...]) -> int | None:
        """The offset at which a follower cuts its log: the first record whose epoch differs. None: nothing is cut, as
        for a message that is only old."""
        return differs_at if differs_at < min(end, log_end) else None

    def acked_end(self, verified: int, durable: int, log_end: int) -> int:
        """The end that was verified against this leader and is durable, never simply the log's end."""
        return min(verified, durable)

    def own_end(self, durable: int, log_end: int) -> int:
        """The leader counts itself only after its own fsync."""
        return durable

    def follower_commit_point(self, leader_commit_point: int, verified: int, log_end: int) -> int:
        return min(leader_commit_point, verified)

    def sets_to_commit(self, sets: Sets) -> tuple[tuple[str, ...], ...]:
        """The sets whose majorities commit: both, while two are named."""
        return sets.each

    def first_counted(self, epoch_start: int) -> int:
        """A majority end must lie after this offset: a record of the leader's own epoch is on a majority."""
        return epoch_start

    # -- Reads --------------------------------------------------------------------------------------------------------

    def read_round(self, current: int) -> int:
        """A read is confirmed by what is sent after it: in the next round."""
        return current + 1

    # -- Loss, rebuild, compaction ------------------------------------------------------------------------------------

    def is_marked_used(self, promise: Promise) -> bool:
        """True if a replica may ack records, and lead, without storing its durable mark first. The mark shows a loss of
        the whole log."""
        return promise.used

    def rebuild_target(self, leader_end: int, commit_point: int) -> int:
        """Rebuilt when the leader's log end is reached, not its commit point."""
        return leader_end

    def needs_full_copy(self, common: int, horizon: int) -> bool:
        """Below the horizon tombstones are gone: a log that ends there would keep what was deleted."""
        return common < horizon
