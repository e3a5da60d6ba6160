"""A replica that was told to lead: from the question to the leader-change record.

    phase      waits for                                          goes on with
    ASKING     answers of a majority: no live leader, no better log   PROMISING
    PROMISING  its own promise, durable                               SEALING
    SEALING    majorities of every set that call and best log name    FETCHING, or SAVING if its own log is the best
    FETCHING   what the best log has more                             SAVING
    SAVING     its log durable                                        LOADING
    LOADING    the host: everything replayed                          the leader opens the epoch (`leader`)

Rules: replication.md, "Election" (the numbers in the comments), "Sets and their change".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from msgspec.structs import replace

from muster_coordinator.calls import CallStatus
from muster_coordinator.replication.context import Context
from muster_coordinator.replication.effects import (
    DataLossAccepted,
    Load,
    StartCopy,
    SwapCopy,
)
from muster_coordinator.replication.follower import extend_log
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Fetch, Fetched, Question, QuestionAnswer, Refused, Seal, Sealed
from muster_coordinator.replication.sets import Sets, is_majority


@dataclass(frozen=True)
class ElectionCall:
    """onElection. `bootstrap`: opens the first epoch of a never-used log. `force`: no question before the promise.

    `allow_data_loss`: a person says that what no reachable replica has may be lost.
    """

    epoch: int
    sets: Sets
    learners: tuple[str, ...] = ()
    bootstrap: bool = False
    force: bool = False
    allow_data_loss: bool = False


class Phase(Enum):
    ASKING = "ASKING"
    PROMISING = "PROMISING"
    SEALING = "SEALING"
    FETCHING = "FETCHING"
    SAVING = "SAVING"
    LOADING = "LOADING"


class Failed(Protocol):
    """Ends an election. `sets`: those of the chosen log, if they are the reason; `better_log_id`: likewise."""

    def __call__(self, status: CallStatus, message: str, sets: Sets | None = None, better_log_id: str = "") -> None: ...


class Candidate:
    """One election. `promise` stores the promise and goes on; `lead` makes the leader; `failed` ends it."""

    def __init__(
        self,
        context: Context,
        call: ElectionCall,
        ticket: int,
        promise: Callable[[int, Callable[[], None]], None],
        lead: Callable[[Sets], None],
        failed: Failed,
        *,
        nominated: bool = False,
    ) -> None:
        self.phase = Phase.ASKING
        self.epoch = call.epoch
        self._context = context
        self._call = call
        self._ticket = ticket
        self._promise = promise
        self._lead = lead
        self._failed = failed
        self._nominated = nominated
        self._answers: dict[str, QuestionAnswer] = {}
        self._sealed: dict[str, Sealed] = {}
        self._best: Sealed | None = None  # of another replica; None: its own
        self._chosen_sets: Sets | None = None
        self._copy: LogState | None = None
        self._copy_mark = 0  # that of the source when the copy began
        self._progress_ms = self._sent_ms = context.now_ms
        self._ending_leader = ""  # whose seal is waited for besides a majority's, for a moment
        self._sealing_since_ms = 0

    def start(self, own_leader: str) -> None:
        """`own_leader`: another live leader that this replica itself hears, "" if none."""
        call = self._call
        if call.force and not call.allow_data_loss and own_leader in call.sets.members:
            self._ending_leader = own_leader
        if call.force or call.allow_data_loss or call.bootstrap:
            self._begin_promise()
        elif own_leader:
            self._failed(CallStatus.LEADER_LIVES, f"{own_leader} leads and is heard here")
        else:
            self._ask()
            self._count_answers()

    # -- 1. the question, before anything is promised -----------------------------------------------------------------

    def _ask(self) -> None:
        context = self._context
        self._sent_ms = context.now_ms
        for log_id in self._call.sets.members:
            if log_id != context.log_id and log_id not in self._answers:
                log = context.log
                context.send(Question(context.log_id, log_id, self.epoch, self._ticket, log.last_epoch, log.end))

    def on_question_answer(self, answer: QuestionAnswer) -> None:
        if self.phase is not Phase.ASKING or answer.ticket != self._ticket or not answer.counts:
            return
        if answer.live_leader not in ("", self._context.log_id):
            self._failed(CallStatus.LEADER_LIVES, f"{answer.sender} hears the leader {answer.live_leader}")
        elif answer.better:
            self._failed(CallStatus.BETTER_LOG, f"{answer.sender} holds a better log", better_log_id=answer.sender)
        else:
            self._answers[answer.sender] = answer
            self._count_answers()

    def _count_answers(self) -> None:
        those = {self._context.log_id, *self._answers}
        if all(is_majority(replicas, those) for replicas in self._call.sets.each):
            self._begin_promise()

    # -- 2. promise, then seal ----------------------------------------------------------------------------------------

    def _begin_promise(self) -> None:
        """A self-nomination takes the highest epoch that it heard of, plus one."""
        self.phase = Phase.PROMISING
        if self._nominated:
            heard = [answer.epoch for answer in self._answers.values()]
            self.epoch = max([self._context.promise.epoch, *heard]) + 1
            if not self._context.rules.may_lead(self._context.promise, self.epoch, self._context.log_id):
                self._failed(CallStatus.STALE_EPOCH, f"epoch {self.epoch} is too far above the promised one")
                return
        self._promise(self.epoch, self._promised)

    def _promised(self) -> None:
        self.phase = Phase.SEALING
        self._progress_ms = self._sealing_since_ms = self._context.now_ms
        self._seal(self._call.sets.members)
        self._choose()

    def _seal(self, replicas: tuple[str, ...]) -> None:
        context = self._context
        self._sent_ms = context.now_ms
        for log_id in replicas:
            if log_id != context.log_id and log_id not in self._sealed:
                context.send(Seal(context.log_id, log_id, self.epoch))

    def on_sealed(self, sealed: Sealed) -> None:
        if self.phase is Phase.SEALING:
            self._sealed[sealed.sender] = sealed
            self._choose()

    def on_refused(self, refused: Refused) -> None:
        """A higher promise of one replica says nothing yet: a majority may still take this epoch."""
        if self.phase is Phase.SEALING and refused.sender == self._ending_leader:
            self._wait_no_longer()
        if self.phase is Phase.FETCHING and self._best is not None and refused.sender == self._best.sender:
            self._failed(CallStatus.STALE_EPOCH, f"the best log has promised epoch {refused.epoch}")

    # -- 3. the best log, and the sets that it names ------------------------------------------------------------------

    def _choose(self) -> None:
        """A rebuilding replica is counted in no seal; its log is looked at only where loss is allowed."""
        context, call = self._context, self._call
        loss = call.allow_data_loss
        counted = {log_id: sealed for log_id, sealed in self._sealed.items() if loss or not sealed.rebuilding}
        best = max(counted.values(), key=self._rank_of, default=None)
        own_rank = (*context.rules.log_rank(context.log.last_epoch, context.log.end), True)
        if best is not None and self._rank_of(best) <= own_rank:
            best = None
        sets = context.log.sets if best is None else best.sets
        needed = context.rules.sets_to_seal(call.sets, sets)
        missing = tuple(one for replicas in needed for one in replicas if one not in call.sets.members)
        if missing and not all(one in self._sealed for one in missing):
            self._seal(missing)
        those = {context.log_id, *counted}
        if loss:
            if not all(one in those for one in call.sets.members) and not self._is_late():
                return
        elif not all(context.rules.is_sealed(one, sum(x in those for x in one)) for one in needed):
            return
        if self._ending_leader and self._ending_leader not in self._sealed:
            return
        self._take(best, sets)

    def _wait_no_longer(self) -> None:
        """A move away from a leader that lives takes its log as well (ADR 7): a majority alone would leave out what the
        leader appended last, and cut it there. No safety rests on it.
        """
        self._ending_leader = ""
        self._choose()

    def _rank_of(self, sealed: Sealed) -> tuple[int, int, bool]:
        """A source from which nothing has to be rebuilt is preferred among equals."""
        context = self._context
        common = context.log.agreement(0, sealed.end_offset, sealed.runs)
        whole = not context.rules.needs_full_copy(common, sealed.horizon)
        return (*context.rules.log_rank(sealed.last_epoch, sealed.end_offset), whole)

    def _take(self, best: Sealed | None, sets: Sets | None) -> None:
        context, call = self._context, self._call
        end = context.log.end if best is None else best.end_offset
        if sets is None and not (call.bootstrap and end == 0) and not call.allow_data_loss:
            self._failed(CallStatus.INVALID, f"no log names a set (the best one ends at {end}), and no bootstrap")
            return
        if sets is not None and not call.allow_data_loss:
            if context.log_id not in sets.members:
                self._failed(CallStatus.SET_CONFLICT, "this replica is in no set of the best log", sets)
                return
            if not context.rules.may_change(sets, call.sets):
                self._failed(CallStatus.SET_CONFLICT, "the best log names other sets", sets)
                return
        self._best, self._chosen_sets = best, sets
        self._progress_ms = context.now_ms
        if call.allow_data_loss:
            context.emit(DataLossAccepted(self.epoch, end))
        if best is None:
            self._save()
        else:
            self._cut(best)

    def _cut(self, best: Sealed) -> None:
        """Cut the log to the common prefix with the best log, even a longer one; or begin a full copy next to it."""
        context = self._context
        log = context.log
        self.phase = Phase.FETCHING
        loss_epoch = self.epoch if self._call.allow_data_loss else best.loss_epoch
        common = log.agreement(0, best.end_offset, best.runs)
        if context.rules.needs_full_copy(common, best.horizon):
            context.check_cut(common, loss_epoch)
            self._begin_copy()
            return
        end = context.rules.candidate_end(common, log.end, best.end_offset)
        if end >= log.end:
            self._fetch()
        else:
            context.cut(end, loss_epoch, self._fetch)

    def _begin_copy(self) -> None:
        """A full one; anew, should the source be cleaned before all below its horizon was fetched."""

        def begun() -> None:
            self._copy = LogState()
            self._fetch()

        self._context.store(StartCopy(), begun)

    @property
    def _filling(self) -> LogState:
        return self._context.log if self._copy is None else self._copy

    def _fetch(self) -> None:
        best = self._best
        assert best is not None
        context = self._context
        if self._filling.end >= best.end_offset:
            self._fetched_all()
            return
        self._sent_ms = context.now_ms
        context.send(
            Fetch(context.log_id, best.sender, self.epoch, self._filling.end, context.settings.fetch_bytes_max)
        )

    def on_fetched(self, fetched: Fetched) -> None:
        best, log = self._best, self._filling
        if self.phase is not Phase.FETCHING or best is None or fetched.sender != best.sender:
            return
        if fetched.start != log.end:
            return  # late, or twice
        if fetched.end <= fetched.start or fetched.previous_epoch != log.epoch_before(fetched.start):
            self._failed(CallStatus.NO_MAJORITY, f"{best.sender} lost what it had when it was sealed")
            return
        if self._context.rules.needs_full_copy(fetched.start, fetched.horizon):
            whole = self._copy is not None and (fetched.start == 0 or fetched.copy_mark == self._copy_mark)
            self._copy_mark = fetched.copy_mark
            if not whole:
                self._begin_copy()
                return
        extend_log(
            self._context,
            log,
            fetched.end,
            fetched.runs,
            fetched.batches,
            fetched.horizon,
            to_copy=self._copy is not None,
        )
        self._progress_ms = self._context.now_ms
        self._fetch()

    def _fetched_all(self) -> None:
        copy = self._copy
        if copy is None:
            self._save()
            return

        def swapped() -> None:
            self._context.replace_log(copy)
            self._copy = None
            self._save()

        self._context.store(SwapCopy(), swapped)

    def _save(self) -> None:
        """Only a durable log may get a leader-change record."""
        self.phase = Phase.SAVING
        self._progress_ms = self._context.now_ms
        self.log_durable()

    def log_durable(self) -> None:
        """A rebuilding replica gets here only if a person allowed data loss: what was taken is from now on the log, and
        not before. An election that fails on the way leaves it rebuilding. A leader counts its own log, so that the log
        is marked as used before it does.
        """
        context = self._context
        if self.phase is not Phase.SAVING or context.log.durable_end < context.log.end:
            return
        self.phase = Phase.LOADING
        promise = context.promise
        if promise.rebuilding or not context.rules.is_marked_used(promise):
            context.store_promise(replace(promise, rebuilding=False, used=True), self._load)
        else:
            self._load()

    def _load(self) -> None:
        self._context.emit(Load(self.epoch))

    # -- 4. replay, then the leader-change record ---------------------------------------------------------------------

    def loaded(self) -> None:
        sets = self._context.rules.sets_of_epoch(self._call.sets, self._chosen_sets)
        loss_epoch = self.epoch if self._call.allow_data_loss else self._context.log.loss_epoch
        self._lead(Sets(sets.replicas, sets.previous_replicas, loss_epoch))

    def tick(self) -> None:
        """Ask again for what did not come; give up without progress."""
        context = self._context
        waited_ms = context.now_ms - self._sealing_since_ms
        if self.phase is Phase.SEALING and self._call.allow_data_loss:
            self._choose()
        elif self.phase is Phase.SEALING and self._ending_leader and waited_ms >= context.settings.ending_leader_ms:
            self._wait_no_longer()
        elif self.phase in (Phase.ASKING, Phase.SEALING, Phase.FETCHING) and self._is_late():
            self._failed(CallStatus.NO_MAJORITY, f"no majority answered while {self.phase.value}")
        elif context.now_ms - self._sent_ms >= context.settings.resend_ms:
            if self.phase is Phase.ASKING:
                self._ask()
            elif self.phase is Phase.SEALING:
                self._seal(self._call.sets.members)
                self._choose()
            elif self.phase is Phase.FETCHING:
                self._fetch()

    def _is_late(self) -> bool:
        return self._context.now_ms - self._progress_ms >= self._context.settings.election_timeout_ms
