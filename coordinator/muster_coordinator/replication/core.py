"""The protocol of one replica: events in, effects out. No clock, no randomness, no I/O.

The host gives every event with its monotonic time, carries out the effects in their order, and reports:
`storage_done` for a storage effect (events that come meanwhile wait here), `log_durable`, `log_read`, `loaded`,
`appended`. At the end of each of its turns it calls `end_turn`, and every 50 ms or so `tick`. After a failed
write, or an exception out of here, the object is given up, and a new one made from what is on the disk.

    role        state object   ends by
    follower    Follower       (never: it is also what a candidate or leader falls back to)
    candidate   Candidate      the leader-change record; a failure; a higher promise
    leader      Leader         a higher promise; no majority heard; not in the final set; a failed write
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from muster_coordinator.calls import CallStatus
from muster_coordinator.replication.context import Context, Continue
from muster_coordinator.replication.effects import Effect, Promise
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.follower import Follower
from muster_coordinator.replication.leader import Leader
from muster_coordinator.replication.leadership import Leadership
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import (
    Ack,
    Append,
    Batch,
    Fetch,
    Fetched,
    Message,
    Mismatch,
    Question,
    QuestionAnswer,
    Refused,
    Seal,
    Sealed,
)
from muster_coordinator.replication.rules import Rules, Verdict
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.replication.voter import answer_fetch, answer_question, answer_seal

RULES = Rules()

M = TypeVar("M", Append, Fetch, Seal)


class ReplicaCore:
    """`nomination_delay_ms`: draws how long to wait for operator and leader before nominating itself, in [T, 2T];
    None: never. `may_nominate`: asked each time when that has passed, whether this pod could append.
    """

    def __init__(
        self,
        partition: int,
        log_id: str,
        promise: Promise,
        log: LogState,
        now_ms: int,
        settings: ReplicationSettings,
        nomination_delay_ms: Callable[[], int] | None = None,
        rules: Rules = RULES,
        *,
        may_nominate: Callable[[], bool] = lambda: True,
    ) -> None:
        self._context = Context(partition, log_id, promise, log, settings, rules)
        self._context.now_ms = now_ms
        self._follower = Follower(self._context)
        self._leadership = Leadership(self._context, self._follower, nomination_delay_ms, may_nominate)
        self._deferred: deque[Continue] = deque()

    # -- what the host may look at ------------------------------------------------------------------------------------

    @property
    def log_id(self) -> str:
        return self._context.log_id

    @property
    def promise(self) -> Promise:
        return self._context.promise

    @property
    def log(self) -> LogState:
        return self._context.log

    @property
    def commit_point(self) -> int:
        """The last offset that this replica knows to be committed; -1: none yet in this run."""
        return self._context.commit_point

    @property
    def has_left(self) -> bool:
        """The set is final, committed, and without this replica, as the leader of the epoch that it promised says. So
        nothing of it counts until it promises a higher epoch: a set changes only with an election.
        """
        log, promise = self._context.log, self._context.promise
        sets = log.sets
        if sets is None or sets.previous_replicas or self._context.log_id in sets.replicas:
            return False
        return self._context.commit_point > log.sets_offset and log.last_epoch == promise.epoch

    @property
    def leading_epoch(self) -> int:
        """Epoch of the leadership that is ACTIVE or about to be; -1 if this replica does not lead."""
        return self._leadership.leading_epoch

    @property
    def is_active(self) -> bool:
        return self._leadership.is_active

    @property
    def is_candidate(self) -> bool:
        """An election of this replica is under way."""
        return self._leadership.candidate is not None

    @property
    def is_electing(self) -> bool:
        """This replica promised an epoch to itself, and does not lead yet."""
        return self.is_candidate and self._context.promise.leader == self._context.log_id

    @property
    def is_alone(self) -> bool:
        """An ACTIVE leader that is its whole set and has no learner: its commit point is the durable end of its log.

        Then the host need not tell it of every batch: `advance_alone` before the next event is enough.
        """
        leader = self._leadership.leader
        return leader is not None and leader.active and leader.is_alone

    @property
    def followers(self) -> tuple[tuple[str, int, bool], ...]:
        """(log id, verified and durable end or -1, rebuilding) of those that this leader feeds, learners included."""
        leader = self._leadership.leader
        return leader.followers if leader is not None else ()

    def longest_behind_ms(self, now_ms: int) -> int:
        """Returns for how long (ms) a follower of this leader has lacked something: the longest; 0 if none does."""
        leader = self._leadership.leader
        return leader.longest_behind_ms(now_ms) if leader is not None else 0

    @property
    def live_leader(self) -> str:
        """Log id of the leader that this replica heard last; "" if it heard none lately."""
        return self._leadership.live_leader

    @property
    def needs_higher_epoch(self) -> bool:
        """Some replica takes nothing from this leader any more: an election of it in a higher epoch gets it back."""
        leader = self._leadership.leader
        return leader is not None and leader.is_refused

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that any replica was seen to have promised."""
        return self._leadership.highest_epoch

    @property
    def waiting_for_storage(self) -> bool:
        """A storage effect is under way."""
        return self._context.waiting is not None

    # -- calls --------------------------------------------------------------------------------------------------------

    def elect(self, call: int, election: ElectionCall, now_ms: int, *, cannot_write: str = "") -> list[Effect]:
        """onElection; `CallEnded` ends `call`. `cannot_write`: why the pod takes no writes."""
        return self._event(now_ms, lambda: self._leadership.elect(call, election, cannot_write))

    def resign(self, call: int, epoch: int, now_ms: int) -> list[Effect]:
        """onResignation with the new, higher epoch."""
        return self._event(now_ms, lambda: self._leadership.resign(call, epoch))

    def operator_heard(self, now_ms: int) -> None:
        """Somebody is there who elects: no self-nomination for now."""
        self._leadership.quiet_since_ms = now_ms

    def set_learners(self, learners: tuple[str, ...], now_ms: int) -> list[Effect]:
        """Names the learners that get the log of this leader too."""
        return self._event(now_ms, lambda: self._leadership.set_learners(learners))

    def lost_data(self, now_ms: int) -> list[Effect]:
        """Acked records may be missing in the log as it was opened now (damage, failed fsync, wipe, power loss under
        flush os): the replica is `rebuilding` until it has caught up with a leader.
        """
        return self._event(now_ms, self._leadership.lost_data)

    # -- storage ------------------------------------------------------------------------------------------------------

    def storage_done(self, now_ms: int) -> list[Effect]:
        """The storage effect that was under way is durable."""
        context = self._context
        context.now_ms = now_ms
        then, context.waiting = context.waiting, None
        if then is None:
            raise AssertionError("no storage effect is under way")
        then()
        self._after_storage()
        return context.take_effects()

    def log_durable(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log is durable up to `end_offset`. Never of a write that was staged before a Truncate that is done."""
        context = self._context
        context.now_ms = now_ms
        context.log.durable_end = max(context.log.durable_end, min(end_offset, context.log.end))
        if context.waiting is None:
            self._after_storage()
        elif self._leadership.leader is not None:
            self._leadership.leader.count_own()
        return context.take_effects()

    def log_read(self, ticket: int, end: int, batches: Sequence[Batch], now_ms: int) -> list[Effect]:
        """The answer to `ReadLog`: `batches` are all that the log has of [start, end)."""
        return self._event(now_ms, lambda: self._context.read_done(ticket, end, tuple(batches)))

    def _after_storage(self) -> None:
        if self._leadership.leader is not None:
            self._leadership.leader.count_own()
        if self._leadership.candidate is not None:
            self._leadership.candidate.log_durable()
        self._follower.progress()
        while self._deferred and self._context.waiting is None:
            self._deferred.popleft()()

    # -- leading ------------------------------------------------------------------------------------------------------

    def loaded(self, epoch: int, now_ms: int) -> list[Effect]:
        """`Load` is done."""

        def run() -> None:
            if self._leadership.candidate is not None and self._leadership.candidate.epoch == epoch:
                self._leadership.candidate.loaded()

        return self._event(now_ms, run)

    def load_failed(self, epoch: int, message: str, now_ms: int) -> list[Effect]:
        """`Load` failed: a higher epoch may try again."""

        def run() -> None:
            if self._leadership.candidate is not None and self._leadership.candidate.epoch == epoch:
                self._leadership.election_failed(CallStatus.DAMAGED, message)

        return self._event(now_ms, run)

    def appended(self, batch: Batch) -> None:
        """The leader's host appended `batch` at the end of its log. Its effects come with `end_turn`."""
        if self._leadership.leader is None:
            raise AssertionError("this replica does not lead")
        self._leadership.leader.appended(batch)

    def advance_alone(self, end_offset: int, durable_end: int, now_ms: int) -> list[Effect]:
        """A leader `is_alone`, and its host appended records up to `end_offset` without `appended`."""
        context = self._context
        context.now_ms = now_ms
        context.log.end = end_offset
        context.log.durable_end = min(durable_end, end_offset)
        if self._leadership.leader is not None:
            self._leadership.leader.count_own()
        return context.take_effects()

    def confirm_read(self) -> int:
        """A read came to the ACTIVE leader: answer it when `ReadsConfirmed` names this round (0: no need to wait),
        and what it shows is committed.
        """
        if self._leadership.leader is None:
            raise AssertionError("this replica does not lead")
        return self._leadership.leader.confirm_read()

    def end_turn(self, now_ms: int) -> list[Effect]:
        """Everything of a turn of the loop was appended or read: push it."""
        context = self._context
        context.now_ms = now_ms
        if self._leadership.leader is not None:
            self._leadership.leader.end_turn()
        return context.take_effects()

    def tick(self, now_ms: int) -> list[Effect]:
        """Time passes: heartbeats, repetitions, timeouts."""
        return self._event(now_ms, self._tick)

    def _tick(self) -> None:
        if self._leadership.candidate is not None:
            self._leadership.candidate.tick()
        elif self._leadership.leader is None:
            self._leadership.consider_nomination()
        if self._leadership.leader is not None:
            self._leadership.quiet_since_ms = self._context.now_ms
            self._leadership.leader.tick()

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, message: Message, now_ms: int) -> list[Effect]:
        """A message from another replica arrived. One that is addressed to another log id is dropped."""
        context = self._context
        if message.to != context.log_id:
            return []
        context.now_ms = now_ms
        if context.waiting is None and not self._deferred:
            self._receive(message)
        else:
            self._deferred.append(partial(self._receive, message))
        return context.take_effects()

    def disconnected(self, log_id: str, now_ms: int) -> list[Effect]:
        """The connection to that replica's pod was closed by it: no need to wait for its silence."""

        def run() -> None:
            if log_id == self._context.promise.leader:
                self._follower.heard_ms = None

        return self._event(now_ms, run)

    def _receive(self, message: Message) -> None:
        context, leader, candidate = self._context, self._leadership.leader, self._leadership.candidate
        match message:
            case Append():
                self._under_promise(message, self._leader_verdict(message), self._follower.on_append)
            case Ack() | Mismatch() | Sealed() if leader is not None and message.epoch == leader.epoch:
                self._to_leader(leader, message)
            case Fetch():
                self._under_promise(message, self._leader_verdict(message), partial(answer_fetch, context))
            case Seal():
                self._under_promise(message, self._seal_verdict(message), partial(answer_seal, context))
            case Question():
                answer_question(context, message, self.live_leader)
            case QuestionAnswer():
                self._leadership.highest_epoch = max(self.highest_epoch, message.epoch)
                if candidate is not None:
                    candidate.on_question_answer(message)
            case Refused():
                self._leadership.highest_epoch = max(self.highest_epoch, message.epoch)
                if leader is not None:
                    leader.on_refused(message)
                elif candidate is not None and message.refused_epoch == candidate.epoch:
                    candidate.on_refused(message)
            case Sealed() if candidate is not None and message.epoch == candidate.epoch:
                candidate.on_sealed(message)
            case Fetched() if candidate is not None and message.epoch == candidate.epoch:
                candidate.on_fetched(message)
            case _:
                pass  # the answer to a leadership that ended

    @staticmethod
    def _to_leader(leader: Leader, message: Ack | Mismatch | Sealed) -> None:
        match message:
            case Ack():
                leader.on_ack(message)
            case Mismatch():
                leader.on_mismatch(message)
            case Sealed():
                leader.on_sealed(message.sender)

    def _leader_verdict(self, message: Message) -> Verdict:
        return self._context.rules.leader_message(self._context.promise, message.epoch, message.sender)

    def _seal_verdict(self, message: Message) -> Verdict:
        return self._context.rules.seal(self._context.promise, message.epoch, message.sender)

    def _under_promise(self, message: M, verdict: Verdict, take: Callable[[M], None]) -> None:
        context = self._context
        if verdict is Verdict.TAKE:
            take(message)
        elif verdict is Verdict.PROMISE:
            self._leadership.promise(message.epoch, message.sender, partial(take, message))
        else:
            promise = context.promise
            context.send(Refused(context.log_id, message.sender, promise.epoch, promise.leader, message.epoch))

    # -- one event after the other ------------------------------------------------------------------------------------

    def _event(self, now_ms: int, run: Continue) -> list[Effect]:
        """Now, or when the storage effect that is under way is done."""
        context = self._context
        context.now_ms = now_ms
        if context.waiting is None and not self._deferred:
            run()
        else:
            self._deferred.append(run)
        return context.take_effects()
