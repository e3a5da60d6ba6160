"""The state that the core's parts share: identity, promise, log, effects of the call that runs, pending storage."""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.replication.effects import (
    CallEnded,
    Effect,
    Promise,
    ReadLog,
    Send,
    StorageEffect,
    StorePromise,
    Truncate,
)
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Batch, Message
from muster_coordinator.replication.rules import Rules
from muster_coordinator.replication.sets import Sets
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.tuning.pacing import Urgency


class ProtocolViolationError(Exception):
    """A committed record would be cut: a defect, or a log that lost data without saying so. The replica must stop."""


Continue = Callable[[], None]
ReadDone = Callable[[int, tuple[Batch, ...]], None]


class Context:
    """`waiting`: what goes on when the storage effect that is under way is done; None if none is."""

    def __init__(
        self,
        partition: int,
        log_id: str,
        promise: Promise,
        log: LogState,
        settings: ReplicationSettings,
        rules: Rules,
    ) -> None:
        self.partition = partition
        self.log_id = log_id
        self.promise = promise
        self.log = log
        self.settings = settings
        self.rules = rules
        self.now_ms = 0
        self.commit_point = -1  # of this replica: what it knows to be committed
        self.waiting: Continue | None = None
        self._effects: list[Effect] = []
        self._reads: dict[int, ReadDone] = {}
        self._last_ticket = 0

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, message: Message) -> None:
        self._effects.append(Send(message))

    def answer(
        self,
        call: int,
        status: CallStatus,
        message: str = "",
        *,
        sets: Sets | None = None,
        ended_epoch: int = -1,
        better_log_id: str = "",
    ) -> None:
        result = CallResult(
            self.partition,
            status,
            self.promise.epoch,
            message,
            self.log_id,
            ended_epoch,
            replicas=sets.replicas if sets is not None else (),
            previous_replicas=sets.previous_replicas if sets is not None else (),
            better_log_id=better_log_id,
        )
        self._effects.append(CallEnded(call, result))

    def may_cut(self, end: int, loss_epoch: int) -> bool:
        """True if the log may be cut to `end`, or be replaced by one that ends there, for a history with `loss_epoch`.

        What this replica knows to be committed may go only if a person accepted a loss of data in a later epoch.
        """
        return end >= self.commit_point or self.log.epoch_before(self.commit_point) < loss_epoch

    def check_cut(self, end: int, loss_epoch: int) -> None:
        """Raises ProtocolViolationError unless the log `may_cut`."""
        if not self.may_cut(end, loss_epoch):
            promise, log = self.promise, self.log
            raise ProtocolViolationError(
                f"in epoch {promise.epoch} of {promise.leader} the log, which ends at {log.end} in epoch"
                f" {log.last_epoch}, was to be cut at {end}, below the commit point {self.commit_point}"
            )

    def replace_log(self, log: LogState) -> None:
        """A copy is in place of the log, durably. What it has not is not called committed any more."""
        log.durable_end = log.end
        self.commit_point = min(self.commit_point, self.log.agreement(0, log.end, log.runs(0, log.end)))
        self.log = log

    def cut(self, end: int, loss_epoch: int, then: Continue) -> None:
        """Cut the log to `end`, durably, then run `then`. Raises ProtocolViolationError."""
        self.check_cut(end, loss_epoch)

        def cut() -> None:
            self.log.truncate(end)
            self.commit_point = min(self.commit_point, end)
            then()

        self.store(Truncate(end), cut)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def store(self, effect: StorageEffect, then: Continue) -> None:
        """Nothing else happens to this replica until the host says that `effect` is durable; then `then` runs."""
        if self.waiting is not None:
            raise AssertionError(f"{effect} while another storage effect is under way")
        self.waiting = then
        self._effects.append(effect)

    def store_promise(self, promise: Promise, then: Continue) -> None:
        """The promise counts from when it is durable."""

        def stored() -> None:
            self.promise = promise
            then()

        if self.rules.promise_is_stored():
            self.store(StorePromise(promise), stored)
        else:
            stored()

    def read(self, start: int, bytes_max: int, done: ReadDone, *, urgency: Urgency) -> None:
        """`done(end, batches)` is called with what the host read, unless the log was cut or swapped meanwhile."""
        generation = self.log.generation
        log = self.log

        def check(end: int, batches: tuple[Batch, ...]) -> None:
            if self.log is log and log.generation == generation:
                done(end, batches)

        self._last_ticket += 1
        self._reads[self._last_ticket] = check
        self._effects.append(ReadLog(self._last_ticket, start, bytes_max, urgency))

    def read_done(self, ticket: int, end: int, batches: tuple[Batch, ...]) -> None:
        done = self._reads.pop(ticket, None)
        if done is not None:
            done(end, batches)
