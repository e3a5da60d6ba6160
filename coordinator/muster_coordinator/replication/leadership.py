"""The role of this replica in its partition: follower, candidate or leader; and the calls that change it.

Everything that promises an epoch goes through `promise`: promising a higher epoch and ending one's own leadership is
one step. Rules: replication.md, "Promise", "Election", "Resignation", "The operator, liveness, self-nomination".
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from muster_coordinator.calls import CallStatus
from muster_coordinator.replication.context import Context, Continue
from muster_coordinator.replication.effects import DiscardCheckpoints, SteppedDown
from muster_coordinator.replication.election import Candidate, ElectionCall
from muster_coordinator.replication.epochs import EPOCH_JUMP_MAX, NOBODY
from muster_coordinator.replication.follower import Follower
from muster_coordinator.replication.leader import Leader
from muster_coordinator.replication.sets import Sets


class Leadership:
    """`leader` and `candidate` are None unless this replica is one; an ACTIVE leader may be a candidate again.

    `nomination_delay_ms`, `may_nominate`: see `ReplicaCore`. `highest_epoch`: that any replica was seen to have
    promised.
    """

    def __init__(
        self,
        context: Context,
        follower: Follower,
        nomination_delay_ms: Callable[[], int] | None,
        may_nominate: Callable[[], bool],
    ) -> None:
        self.candidate: Candidate | None = None
        self.leader: Leader | None = None
        self.highest_epoch = context.promise.epoch
        self.quiet_since_ms = context.now_ms  # neither operator nor leader was heard
        self._context = context
        self._follower = follower
        self._calls: list[int] = []  # that wait for the end of the present election
        self._learners: tuple[str, ...] = ()
        self._tickets = 0
        self._nomination_delay_ms = nomination_delay_ms
        self._may_nominate = may_nominate
        self._nominate_after_ms = nomination_delay_ms() if nomination_delay_ms is not None else 0

    @property
    def leading_epoch(self) -> int:
        """Epoch of the leadership that is ACTIVE or about to be; -1 if this replica does not lead."""
        return self.leader.epoch if self.leader is not None else -1

    @property
    def is_active(self) -> bool:
        return self.leader is not None and self.leader.active

    @property
    def live_leader(self) -> str:
        """Log id of the leader that this replica heard last; "" if it heard none lately."""
        return self._context.log_id if self.leader is not None else self._follower.live_leader()

    def set_learners(self, learners: tuple[str, ...]) -> None:
        self._learners = learners
        if self.leader is not None:
            self.leader.follow_by(learners)

    # -- promises -----------------------------------------------------------------------------------------------------

    def promise(self, epoch: int, leader: str, then: Continue) -> None:
        """Promising a higher epoch and ending what this replica leads is one step, before anything is answered."""
        context = self._context
        own = leader == context.log_id
        if context.rules.promise_ends_leadership():
            self._end_leadership(f"epoch {epoch} was promised to {leader or 'nobody'}", elected_again=own)
        if not own and self.candidate is not None:
            self.election_failed(CallStatus.STALE_EPOCH, f"epoch {epoch} was promised to {leader or 'nobody'}")
        self._follower.reset()
        self.highest_epoch = max(self.highest_epoch, epoch)
        now = context.promise
        named = context.rules.promised_leader(now, epoch, leader)
        context.store_promise(replace(now, epoch=epoch, leader=named), then)

    def _end_leadership(self, reason: str, *, elected_again: bool = False) -> int:
        """The epoch that ended, -1 if there was none."""
        leader, self.leader = self.leader, None
        if leader is None:
            return -1
        self._context.emit(SteppedDown(leader.epoch, reason, elected_again))
        if not elected_again:
            self._answer_calls(CallStatus.STALE_EPOCH, reason)
        return leader.epoch

    def lost_data(self) -> None:
        now = self._context.promise
        self._end_leadership("the log lost data")
        if self.candidate is not None:
            self.election_failed(CallStatus.DAMAGED, "the log lost data")
        self._follower.reset()
        self._context.emit(DiscardCheckpoints())
        self._context.commit_point = -1
        self._context.store_promise(replace(now, incarnation=now.incarnation + 1, rebuilding=True), lambda: None)

    # -- elections ----------------------------------------------------------------------------------------------------

    def elect(self, call: int, election: ElectionCall, cannot_write: str) -> None:
        context = self._context
        if self.is_active and election.epoch == self.leading_epoch:
            context.answer(call, CallStatus.ACCEPTED)
            return
        if election.epoch >= 0 and election.epoch == self._present_epoch():
            self._calls.append(call)
            return
        refused = self._refuse_election(election, cannot_write)
        if refused is not None:
            context.answer(call, *refused)
            return
        if self.candidate is not None:
            self.election_failed(CallStatus.STALE_EPOCH, f"superseded by epoch {election.epoch}")
        self._calls.append(call)
        self._learners = election.learners
        self._begin_election(election, nominated=False)

    def _present_epoch(self) -> int:
        if self.candidate is not None:
            return self.candidate.epoch
        return self.leading_epoch

    def _refuse_election(self, election: ElectionCall, cannot_write: str) -> tuple[CallStatus, str] | None:
        """The reason to refuse an election before anything durable is done; None if there is none."""
        context = self._context
        promise, log = context.promise, context.log
        if cannot_write:
            return CallStatus.CANNOT_WRITE, cannot_write
        if context.log_id not in election.sets.members:
            return CallStatus.WRONG_REPLICA, f"log id {context.log_id} is in no set of the call"
        if any(len(set(each)) < len(each) for each in election.sets.each):
            return CallStatus.INVALID, f"the call names a log id twice in one set: {election.sets}"
        if election.epoch > max(promise.epoch, 0) + EPOCH_JUMP_MAX:
            return CallStatus.INVALID, f"epoch {election.epoch} is too far above {promise.epoch}"
        if not context.rules.may_lead(promise, election.epoch, context.log_id):
            return CallStatus.STALE_EPOCH, f"epoch {promise.epoch} was promised to {promise.leader or 'nobody'}"
        if promise.rebuilding and not election.allow_data_loss:
            return CallStatus.DAMAGED, "the log is being rebuilt"
        if election.bootstrap and log.end > 0:
            return CallStatus.INVALID, f"bootstrap of a used log (it ends at {log.end})"
        return None

    def _begin_election(self, election: ElectionCall, *, nominated: bool) -> None:
        self._tickets += 1
        candidate = self.candidate = Candidate(
            self._context,
            election,
            self._tickets,
            promise=self._promise_to_itself,
            lead=lambda sets: self._lead(candidate.epoch, sets),
            failed=self.election_failed,
            nominated=nominated,
        )
        leader = self.live_leader
        candidate.start("" if leader == self._context.log_id else leader)

    def _promise_to_itself(self, epoch: int, then: Continue) -> None:
        self.promise(epoch, self._context.log_id, then)

    def _lead(self, epoch: int, sets: Sets) -> None:
        self.candidate = None
        self.leader = Leader(
            self._context,
            epoch,
            sets,
            self._learners,
            on_active=lambda: self._answer_calls(CallStatus.ACCEPTED, ""),
            on_end=lambda reason: (self._end_leadership(reason), None)[1],
        )
        self.leader.open()

    def election_failed(
        self, status: CallStatus, message: str, sets: Sets | None = None, better_log_id: str = ""
    ) -> None:
        """A candidate that nominates itself again waits anew, from now: two that asked for the same epoch fail at the
        same time, and would for ever.
        """
        self.candidate = None
        self.quiet_since_ms = self._context.now_ms
        self._answer_calls(status, message, sets, better_log_id)

    def _answer_calls(
        self, status: CallStatus, message: str, sets: Sets | None = None, better_log_id: str = ""
    ) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            self._context.answer(call, status, message, sets=sets, better_log_id=better_log_id)

    def resign(self, call: int, epoch: int) -> None:
        context = self._context
        promise = context.promise
        if (epoch, NOBODY) == (promise.epoch, promise.leader):
            context.answer(call, CallStatus.ACCEPTED)
            return
        if epoch <= promise.epoch:
            context.answer(call, CallStatus.STALE_EPOCH, f"epoch {epoch} is not higher than {promise.epoch}")
            return
        if epoch > max(promise.epoch, 0) + EPOCH_JUMP_MAX:
            context.answer(call, CallStatus.INVALID, f"epoch {epoch} is too far above {promise.epoch}")
            return
        ended_epoch = self.leading_epoch
        self.promise(epoch, NOBODY, lambda: context.answer(call, CallStatus.ACCEPTED, ended_epoch=ended_epoch))

    def consider_nomination(self) -> None:
        """Asks a majority of the set in the log, with its own log's pair, if it heard no operator or leader for T."""
        context = self._context
        if self._follower.live_leader():
            self.quiet_since_ms = context.now_ms
        sets = context.log.sets
        if self._nomination_delay_ms is None or sets is None or context.log_id not in sets.members:
            return
        if context.promise.rebuilding or context.now_ms - self.quiet_since_ms < self._nominate_after_ms:
            return
        self.quiet_since_ms = context.now_ms
        self._nominate_after_ms = self._nomination_delay_ms()
        if not self._may_nominate():
            return
        self._begin_election(ElectionCall(context.promise.epoch + 1, sets), nominated=True)
