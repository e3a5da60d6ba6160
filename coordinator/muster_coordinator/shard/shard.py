"""One offsets partition that this pod leads: operation -> records -> batch -> commit -> answers.

A shard drains its queue, runs each operation against the group state, replays its records at once, and closes one
batch per turn; the pod appends the batches of all its shards with one durable write. Answers wait in a queue ordered
by log offset until the commit point passes the log end that they depend on, reads included: no answer shows state
that could still be lost. A failed append or replay fails the shard; there is no rollback in memory, a new election
reloads from the log.

Source: CoordinatorRuntime (operation, deferred events, load and unload), design section 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.records.batch import HEADER_BYTES, RECORD_OVERHEAD_BYTES, split_records
from muster_coordinator.records.control import EndTxnMarker, Fence, encode_end_txn_marker
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.sets import Sets
from muster_coordinator.shard.answers import Answer
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock, Scheduler, ShardEvents
from muster_coordinator.shard.timers import Timers
from muster_coordinator.state_machine import Record, Result, SetTimer, Transaction
from muster_coordinator.states import LEGAL_PREDECESSORS, OPEN_STATES, FailureReason, ShardState

logger = structlog.get_logger(__name__)

MAX_BATCH_RECORDS = 10_000
"""A batch closes at this many records, or before it would get too large. An operation's records are split only when no
batch can hold them: tombstones of many offsets, which need not come together."""

_INTERNAL = object()
"""Marks a queue entry as work of our own, (now_ms) -> Result: a timer that fired, or a deletion of topics."""


class Shard:
    def __init__(
        self,
        replica: StoredReplica,
        coordinator: GroupCoordinator,
        *,
        epoch: int,
        scheduler: Scheduler,
        events: ShardEvents,
        clock: Clock,
        metrics: ShardMetrics,
        commit_timeout_ms: int,
    ) -> None:
        self.partition = replica.partition
        self.replica = replica
        self.epoch = epoch  # of this leadership
        self.state = ShardState.INITIAL
        self.reason = ""  # why it FAILED or was CLOSED: a stable CamelCase code
        self.message = ""  # the reason as a sentence
        self.coordinator = coordinator
        self._scheduler = scheduler
        self._events = events
        self._clock = clock
        self._metrics = metrics
        self._commit_timeout_ms = commit_timeout_ms
        self._queue: deque[tuple[Any, Any]] = deque()
        self._scheduled = False
        self.is_opened = False
        """The leader-change record of its epoch was appended: the state is that of the whole log."""
        self._serves = False  # takes requests and runs them
        self._held = False
        self._unanswered: Answer | None = None  # of the operation that runs; its response is not parked yet
        self._parked: deque[tuple[int, int, Answer, Any]] = deque()  # (log end, read round, request, response)
        self._park_marks: deque[tuple[int, int, int]] = deque()  # (log end, read round, monotonic ms), one per turn
        self._timers = Timers()
        self.confirm_read: Callable[[], int] | None = None
        """Gives the round that must be confirmed before an answer without records is sent; None: nothing must."""
        self.high_watermark = -1
        """The commit point; -1 before the epoch is open."""
        self._confirmed_round = 0
        self.committed_fence: Fence | None = None  # while its epoch is open

    def __repr__(self) -> str:
        return (
            f"<Shard {self.partition} {self.state} epoch={self.epoch} end={self.replica.end_offset} committed="
            f"{self.high_watermark} queue={len(self._queue)} parked={len(self._parked)}>"
        )

    # -- leadership ---------------------------------------------------------------------------------------------------

    def start_loading(self) -> None:
        self._enter(ShardState.LOADING)

    def open_epoch(self, epoch: int, sets: Sets) -> None:
        """Append the leader-change record that opens ``epoch``. What is loaded stays; what was queued follows.

        Requests are run from now on: what they append lies behind that record, so that none is answered before it is
        committed, and groups do not wait for one round trip after the other (ADR 19).
        """
        self._held, self.is_opened = False, True
        self.epoch = epoch
        self.replica.append_leader_change(epoch, sets, self._clock.wall_ms())
        fence = self.coordinator.fence
        if self.state is ShardState.LOADING and (fence is None or not fence.closed):
            self._begin_to_serve()
        self._scheduler.drain_soon(self)

    def activate(self) -> None:
        """The leader-change record is committed."""
        if self.state is ShardState.LOADING:
            self.committed_fence = self.coordinator.fence
            self._open_or_fence()

    def _open_or_fence(self) -> None:
        """What the last Fence record says."""
        fence = self.coordinator.fence
        if fence is not None and fence.closed:
            if self.state is not ShardState.FENCED:
                self._enter(ShardState.FENCED, "Resharding", f"re-shard {fence.reshard} is under way")
        elif self.state is not ShardState.ACTIVE:
            self._begin_to_serve()
            self._enter(ShardState.ACTIVE)

    def _begin_to_serve(self) -> None:
        """What the group state does first is first in the queue."""
        if not self._serves:
            self._serves = True
            self._queue_internal(self.coordinator.on_loaded)

    def hold(self) -> None:
        """Run and append nothing until ``open_epoch``: a higher epoch of this very pod is being promised. Rounds count
        anew in each epoch; reads that wait for one are confirmed by the next leader-change record."""
        self._held = True
        self._confirmed_round = 0
        opened = self.replica.end_offset + 1
        parked = ((opened if read_round else end, 0, *rest) for end, read_round, *rest in self._parked)
        self._parked = deque(parked)
        self._park_marks = deque((opened if read_round else end, 0, ms) for end, read_round, ms in self._park_marks)

    def fail(self, reason: str, message: str, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop serving because of a fault of this replica; parked and queued requests get ``code``."""
        self._leave(ShardState.FAILED, reason, message, code)

    def close(self, message: str) -> None:
        """Stop serving because the leadership ended; parked and queued requests get NOT_COORDINATOR."""
        self._leave(ShardState.CLOSED, "Resigned", message, ErrorCode.NOT_COORDINATOR)

    def _leave(self, state: ShardState, reason: str, message: str, code: ErrorCode) -> None:
        if self.state in (ShardState.CLOSED, state):
            return
        if self.state is not ShardState.FAILED:
            self._metrics.keep_events(self.coordinator)
        self._scheduler.disarm(self)
        self._enter(state, reason, message)
        parked, self._parked = self._parked, deque()
        self._park_marks.clear()
        for _, _, request, _ in parked:
            request.refuse(code)
        self._end_live(code)

    def _end_live(self, code: ErrorCode) -> None:
        """Whoever waits in a group or in the queue gets ``code``; no timer fires any more."""
        self._timers.clear()
        queued, self._queue = self._queue, deque()
        for reply in self.coordinator.on_unloaded():
            waiting: Any = reply.token
            waiting.refuse(code)
        for kind, request in queued:
            if kind is not _INTERNAL:
                request.refuse(code)

    def _enter(self, state: ShardState, reason: str = "", message: str = "") -> None:
        if self.state not in LEGAL_PREDECESSORS[state]:
            raise AssertionError(f"partition {self.partition}: {self.state} -> {state} is no step of a shard")
        log = logger.error if state is ShardState.FAILED else logger.info
        what = {"partition": self.partition, "epoch": self.epoch, "was": self.state.value, "now": state.value}
        log("shard_state", **what, reason=reason, message=message)
        self.state = state
        self._serves = state is ShardState.ACTIVE
        self.reason = reason
        self.message = message
        self._events.state_changed(self)

    # -- requests -----------------------------------------------------------------------------------------------------

    def submit(self, request: Any, answer: Answer) -> None:
        """Queue a request of ``requests.groups``; its answer comes when what it depends on is committed."""
        if not self._serves:
            self._refuse_inactive(request, answer)
            return
        self._queue.append((request, answer))
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.drain_soon(self)

    def _refuse_inactive(self, request: Any, answer: Answer) -> None:
        """What is wrong with the request itself comes first, as in Kafka (GroupCoordinatorService)."""
        wrong = self.coordinator.refuse(request)
        if wrong is not None:
            answer.answer(wrong)
        elif self.state is ShardState.LOADING:
            answer.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif self.state is ShardState.FENCED:
            answer.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            answer.refuse(ErrorCode.NOT_COORDINATOR)

    @property
    def can_append(self) -> bool:
        return self.state in OPEN_STATES and not self._held

    def fence_changed(self) -> None:
        """A Fence record was appended and replayed. Answers that are parked depend on what is before it, and come."""
        was_active = self.state is ShardState.ACTIVE
        self._open_or_fence()
        if was_active and self.state is ShardState.FENCED:
            self._end_live(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer_when_committed(self, answer: Answer, response: object) -> None:
        """When all that the log holds now is committed."""
        self._parked.append((self.replica.end_offset, 0, answer, response))
        self._release()
        self._scheduler.drain_soon(self)

    def drain(self, now_ms: int, monotonic_ms: int) -> None:
        """Run what is queued, in order, and close one batch. What arrives meanwhile belongs to the next turn.

        The times are those of the turn, wall clock and monotonic, in ms.
        """
        self._scheduled = False
        if not self._serves or self._held:
            return
        parked = self._parked
        parked_before = len(parked)
        try:
            self._run_queue(now_ms)
        except Exception as error:
            self.fail_turn(error)
            return
        if len(parked) > parked_before:
            self._park_marks.append((parked[-1][0], parked[-1][1], monotonic_ms))
            if parked[0][0] <= self.high_watermark:
                self._release()

    def _run_queue(self, now_ms: int) -> None:
        queue = self._queue
        parked = self._parked
        operations = self.coordinator.operations
        replay = self.coordinator.replay
        end_offset = self.replica.end_offset
        confirm_read = self.confirm_read
        read_round = 0  # of this turn, when something was read
        records: list[Record] = []
        size, max_bytes = HEADER_BYTES, self.coordinator.max_batch_bytes
        for _ in range(len(queue)):
            request, answer = queue.popleft()
            if request is _INTERNAL:
                result = answer(now_ms)
            else:
                try:
                    result = operations[type(request)](request, answer, now_ms)
                except Exception:
                    self._operation_failed(request, answer)
                    continue
            response = result.response
            self._unanswered = answer if response is not None else None
            if result.transaction is not None:
                self._append(records, size, now_ms)
                records, size = [], HEADER_BYTES
                end_offset = self._append_transactional(result, result.transaction, now_ms)
            elif result.records:
                before = size
                for record in result.records:
                    replay(record[2], end_offset, now_ms)
                    end_offset += 1
                    size += RECORD_OVERHEAD_BYTES + len(record[0]) + len(record[1] or b"")
                if size > max_bytes and records:
                    self._append(records, before, now_ms)
                    records, size = [], size - before + HEADER_BYTES
                records += result.records
            elif confirm_read is not None and not read_round and (response is not None or result.replies):
                read_round = confirm_read()
            if response is not None:
                parked.append((end_offset, read_round, answer, response))
                self._unanswered = None
            for reply in result.replies:
                parked.append((end_offset, read_round, reply.token, reply.response))
            if result.timers:
                self._set_timers(result)
            if len(records) >= MAX_BATCH_RECORDS:
                self._append(records, size, now_ms)
                records, size = [], HEADER_BYTES
        self._append(records, size, now_ms)

    def _operation_failed(self, request: Any, answer: Answer) -> None:
        """A defect of a handler costs its own request, as in Kafka: only replay changes the state."""
        logger.exception("operation_failed", partition=self.partition, request=type(request).__name__)
        self._metrics.operation_errors += 1
        answer.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def fail_turn(self, error: Exception) -> None:
        """A record could not be replayed or appended: what is in memory is not what the log says any more."""
        logger.exception("shard_failed", partition=self.partition)
        unanswered, self._unanswered = self._unanswered, None
        if unanswered is not None:
            unanswered.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        reason = FailureReason.CANNOT_WRITE if isinstance(error, OSError) else FailureReason.OPERATION_FAILED
        self.fail(reason, f"{type(error).__name__}: {error}", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(error, OSError):
            self._events.storage_failed(error)

    def _append(self, records: list[Record], size: int, now_ms: int) -> None:
        """``size``: upper bound of the batch's bytes."""
        max_bytes = self.coordinator.max_batch_bytes
        batches = split_records(records, max_bytes) if size > max_bytes else (records,) if records else ()
        for batch in batches:
            self.replica.append_records(batch, self.epoch, now_ms)

    def _append_transactional(self, result: Result, transaction: Transaction, now_ms: int) -> int:
        """Offsets of an open transaction, or its marker, have a batch of their own. Returns the log end after it."""
        offset = self.replica.end_offset
        producer = (transaction.producer_id, transaction.producer_epoch)
        if transaction.marker is None:
            self.replica.append_records(list(result.records), self.epoch, now_ms, producer)
            for record in result.records:
                self.coordinator.replay(record[2], offset, now_ms, *producer)
                offset += 1
            return offset
        marker = encode_end_txn_marker(EndTxnMarker(transaction.marker, transaction.coordinator_epoch))
        self.replica.append_records([(*marker, None)], self.epoch, now_ms, producer, control=True)
        self.coordinator.replay_transaction_marker(*producer, transaction.marker, offset, transaction.coordinator_epoch)
        return offset + 1

    # -- commit point -------------------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """All below ``end_offset`` is committed."""
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            self._release()

    def reads_confirmed(self, read_round: int) -> None:
        """What ``confirm_read`` gave this round or a lower one for may be answered."""
        self._confirmed_round = read_round
        self._release()

    def _release(self) -> None:
        """Answer every parked request whose log end is committed and whose reads are confirmed."""
        committed, confirmed = self.high_watermark, self._confirmed_round
        parked = self._parked
        while parked and parked[0][0] <= committed and parked[0][1] <= confirmed:
            _, _, request, response = parked.popleft()
            request.answer(response)
        marks = self._park_marks
        while marks and marks[0][0] <= committed and marks[0][1] <= confirmed:
            marks.popleft()

    def refuse_overdue(self) -> None:
        """Those not committed within offsets.commit.timeout.ms (as Kafka: REQUEST_TIMED_OUT, shown as
        COORDINATOR_NOT_AVAILABLE). Their records stay in the log and may still commit."""
        limit = self._clock.monotonic_ms() - self._commit_timeout_ms
        marks = self._park_marks
        overdue_end = overdue_round = -1
        while marks and marks[0][2] < limit:
            overdue_end, read_round, _ = marks.popleft()
            overdue_round = max(overdue_round, read_round)
        parked = self._parked
        while parked and parked[0][0] <= overdue_end and parked[0][1] <= overdue_round:
            _, _, request, _ = parked.popleft()
            self._metrics.commit_timeouts += 1
            request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- timers -------------------------------------------------------------------------------------------------------

    def fire_timers(self) -> None:
        """Queue what is due; the timers run in the order of the queue, like requests."""
        for key, serial in self._timers.pop_due(self._clock.monotonic_ms()):
            self._queue_internal(partial(self._run_timer, key, serial))
        self._arm()

    def partitions_deleted(self, exists: Callable[[str, int], bool]) -> None:
        """Topics were deleted: offsets of partitions of which ``exists(topic, partition)`` is False go (as Kafka's
        GroupCoordinator#onPartitionsDeleted)."""
        if self._serves:
            self._queue_internal(lambda now_ms: self.coordinator.partitions_deleted(exists))

    def _queue_internal(self, work: Callable[[int], Result]) -> None:
        self._queue.append((_INTERNAL, work))
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.drain_soon(self)

    def _run_timer(self, key: Any, serial: int, now_ms: int) -> Result:
        if not self._timers.claim(key, serial):
            return Result()
        return self.coordinator.on_timer(key, now_ms)

    def _set_timers(self, result: Result) -> None:
        now_ms = self._clock.monotonic_ms()
        before = self._timers.next_deadline_ms()
        for timer in result.timers:
            if type(timer) is SetTimer:
                self._timers.set(timer.key, now_ms + timer.delay_ms)
            else:
                self._timers.cancel(timer.key)
        if before is None or (self._timers.next_deadline_ms() or before) < before:
            self._arm()

    def _arm(self) -> None:
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is not None:
            self._scheduler.arm_timer(self, deadline_ms)
