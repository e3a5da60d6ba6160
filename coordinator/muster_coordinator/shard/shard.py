"""The runtime of one partition that this pod leads: operation -> records -> batch -> commit -> answers.

A shard drains its queue, runs each operation of its state machine, replays its records at once, and closes one batch
per turn. The pod writes the batches of all its shards with one durable write. Answers wait in a queue ordered by log
offset until the commit point passes the log end that they depend on, reads included: no answer shows state that could
still be lost. A failed append or replay fails the shard. There is no rollback in memory: a new election reloads the
state from the log.

The shard does not know which coordinator it runs, nor where records go: see `state_machine` and `shard.ports`.
Source: CoordinatorRuntime (operation, deferred events, load and unload).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import HEADER_BYTES, RECORD_OVERHEAD_BYTES, split_records
from muster_coordinator.records.control import EndTxnMarker, Fence, encode_end_txn_marker, encode_fence
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.parked_answers import ParkedAnswers
from muster_coordinator.shard.ports import NO_PRODUCER, Answer, Clock, PartitionWriter, Scheduler, ShardEvents
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.shard.timers import Timers
from muster_coordinator.state_machine import Records, Result, SetTimer, Transaction
from muster_coordinator.states import LEGAL_PREDECESSORS, OPEN_STATES, FailureReason, ShardState

logger = structlog.get_logger(__name__)

MAX_BATCH_RECORDS = 10_000
"""A batch closes at this many records, or before it would get too large. An operation's records are split only when no
batch can hold them: tombstones of many offsets, which need not come together."""

_INTERNAL = object()
"""Marks a queue entry as work without a request, (now_ms) -> Result: a timer that fired, or an event of the pod."""


class Shard:
    def __init__(
        self,
        partition: int,
        replayed: ReplayedState,
        writer: PartitionWriter,
        *,
        epoch: int,
        scheduler: Scheduler[Shard],
        events: ShardEvents[Shard],
        clock: Clock,
        metrics: ShardMetrics,
        commit_timeout_ms: int,
    ) -> None:
        self.partition = partition
        self.replayed = replayed
        self.machine = replayed.machine
        self.writer = writer
        self.epoch = epoch  # of this leadership
        self.state = ShardState.INITIAL
        self.reason = ""  # why it FAILED or was CLOSED: a stable CamelCase code
        self.message = ""  # the reason as a sentence
        self._scheduler = scheduler
        self._events = events
        self._clock = clock
        self._metrics = metrics
        self._commit_timeout_ms = commit_timeout_ms
        self._max_batch_bytes = self.machine.max_batch_bytes
        self._queue: deque[tuple[Any, Any]] = deque()
        self._scheduled = False
        self.is_opened = False
        """The leader-change record of its epoch was appended: the state is that of the whole log."""
        self._serves = False  # takes requests and runs them
        self._held = False
        self._unanswered: Answer | None = None  # of the operation that runs; its response is not parked yet
        self.parked = ParkedAnswers()
        """The owner of the log tells it what is committed and which reads are confirmed."""
        self._timers = Timers()
        self.committed_fence: Fence | None = None  # while its epoch is open

    def __repr__(self) -> str:
        return (
            f"<Shard {self.partition} {self.state} epoch={self.epoch} end={self.writer.end_offset} committed="
            f"{self.high_watermark} queue={len(self._queue)} parked={len(self.parked.queue)}>"
        )

    @property
    def high_watermark(self) -> int:
        """The commit point; -1 before the epoch is open."""
        return self.parked.high_watermark

    # -- leadership ---------------------------------------------------------------------------------------------------

    def start_loading(self) -> None:
        self._enter(ShardState.LOADING)

    def open_epoch(self, epoch: int) -> None:
        """The leader-change record of `epoch` was appended. The loaded state and the queue stay.

        Requests run from now on. Their records follow the leader-change record, so none is answered before that is
        committed, and groups do not wait for one round trip after the other (ADR 19).
        """
        self._held, self.is_opened = False, True
        self.epoch = epoch
        if self.state is ShardState.LOADING and not self.replayed.is_closed:
            self._begin_to_serve()
        self._scheduler.drain_soon(self)

    def activate(self) -> None:
        """The leader-change record is committed."""
        if self.state is ShardState.LOADING:
            self.committed_fence = self.replayed.fence
            self._open_or_fence()

    def _open_or_fence(self) -> None:
        """Serve clients or not, as the last Fence record says."""
        fence = self.replayed.fence
        if fence is not None and fence.closed:
            if self.state is not ShardState.FENCED:
                self._enter(ShardState.FENCED, "Resharding", f"re-shard {fence.reshard} is under way")
        elif self.state is not ShardState.ACTIVE:
            self._begin_to_serve()
            self._enter(ShardState.ACTIVE)

    def _begin_to_serve(self) -> None:
        """Take requests. The first work in the queue is that of the state machine itself."""
        if not self._serves:
            self._serves = True
            self._queue_internal(self.machine.on_loaded)

    def hold(self) -> None:
        """Run and append nothing until `open_epoch`: this pod is elected again in a higher epoch. Read rounds start
        again at 0 in each epoch, so reads that wait for a round wait for the next leader-change record instead."""
        self._held = True
        self.parked.wait_for(self.writer.end_offset + 1)

    def fail(self, reason: str, message: str, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop serving because of a fault of this replica. Parked and queued requests get `code`."""
        self._leave(ShardState.FAILED, reason, message, code)

    def close(self, message: str) -> None:
        """Stop serving because the leadership ended. Parked and queued requests get NOT_COORDINATOR."""
        self._leave(ShardState.CLOSED, "Resigned", message, ErrorCode.NOT_COORDINATOR)

    def _leave(self, state: ShardState, reason: str, message: str, code: ErrorCode) -> None:
        if self.state in (ShardState.CLOSED, state):
            return
        if self.state is not ShardState.FAILED:
            self._metrics.keep_events(self.machine)
        self._scheduler.disarm(self)
        self._enter(state, reason, message)
        self.parked.refuse_all(code)
        self._end_live(code)

    def _end_live(self, code: ErrorCode) -> None:
        """Refuse the requests in the state machine and in the queue with `code`, and stop all timers."""
        self._timers.clear()
        queued, self._queue = self._queue, deque()
        for waiting in self.machine.on_unloaded():
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
        """Queue a request of the state machine. Its answer comes when what it depends on is committed."""
        if not self._serves:
            self._refuse_inactive(request, answer)
            return
        self._queue.append((request, answer))
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.drain_soon(self)

    def _refuse_inactive(self, request: Any, answer: Answer) -> None:
        """Errors of the request itself come first, as in Kafka (GroupCoordinatorService)."""
        wrong = self.machine.refuse(request)
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

    def append_fence(self, fence: Fence) -> None:
        """Append a Fence record and do what it says. Parked answers depend on records before it, and are still sent.

        Raises OSError, and what the writer raises: call `fail_turn` then.
        """
        self.writer.append([(*encode_fence(fence), None)], self.epoch, self._clock.wall_ms(), control=True)
        self.replayed.fence = fence
        was_active = self.state is ShardState.ACTIVE
        self._open_or_fence()
        if was_active and self.state is ShardState.FENCED:
            self._end_live(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer_when_committed(self, answer: Answer, response: object) -> None:
        """Send `response` when all that the log holds now is committed and a majority has confirmed this leader."""
        self.parked.queue.append((self.writer.end_offset, self.writer.confirm_read(), answer, response))
        self.parked.release()
        self._scheduler.drain_soon(self)

    def drain(self, now_ms: int, monotonic_ms: int) -> None:
        """Run the queue, in order, and close one batch. Requests that arrive meanwhile run in the next turn.

        `now_ms` and `monotonic_ms` are the time at which the turn began, in wall-clock and monotonic ms.
        """
        self._scheduled = False
        if not self._serves or self._held:
            return
        parked = self.parked.queue
        parked_before = len(parked)
        try:
            self._run_queue(now_ms)
        except Exception as error:
            self.fail_turn(error)
            return
        if len(parked) > parked_before:
            self.parked.turn_ended(monotonic_ms)

    def _run_queue(self, now_ms: int) -> None:
        queue = self._queue
        parked = self.parked.queue
        operations = self.machine.operations
        replay = self.machine.replay
        end_offset = self.writer.end_offset
        read_round, has_round = 0, False  # one round for all reads of this turn
        records: list[Records] = []
        size, max_bytes = HEADER_BYTES, self._max_batch_bytes
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
            elif result.imported:
                self._append(records, size, now_ms)
                records, size = [], HEADER_BYTES
                end_offset = self._append_imported(result, now_ms)
            elif result.records:
                before = size
                for record in result.records:
                    if isinstance(record, tuple):
                        replay(record[2], end_offset, now_ms)
                        end_offset += 1
                        size += RECORD_OVERHEAD_BYTES + len(record[0]) + len(record[1] or b"")
                    else:
                        replay(record, end_offset, now_ms)
                        end_offset += record.count
                        size += record.bytes_max
                if size > max_bytes and records:
                    self._append(records, before, now_ms)
                    records, size = [], size - before + HEADER_BYTES
                records += result.records
            elif not has_round and (response is not None or result.replies):
                read_round, has_round = self.writer.confirm_read(), True
            if response is not None:
                parked.append((end_offset, read_round, answer, response))
                self._unanswered = None
            for reply in result.replies:
                parked.append((end_offset, read_round, reply.token, reply.response))
            if result.timers:
                self._set_timers(result)
            if records and end_offset - self.writer.end_offset >= MAX_BATCH_RECORDS:
                self._append(records, size, now_ms)
                records, size = [], HEADER_BYTES
        if records and size <= max_bytes:  # the usual case, without another step
            self.writer.append(records, self.epoch, now_ms)
        else:
            self._append(records, size, now_ms)

    def _operation_failed(self, request: Any, answer: Answer) -> None:
        """Refuse the request of a handler that raised, and go on, as Kafka does: only replay changes the state."""
        logger.exception("operation_failed", partition=self.partition, request=type(request).__name__)
        self._metrics.operation_errors += 1
        answer.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def fail_turn(self, error: Exception) -> None:
        """A record could not be replayed or appended: the state in memory may differ from the log."""
        logger.exception("shard_failed", partition=self.partition)
        unanswered, self._unanswered = self._unanswered, None
        if unanswered is not None:
            unanswered.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        reason = FailureReason.CANNOT_WRITE if isinstance(error, OSError) else FailureReason.OPERATION_FAILED
        self.fail(reason, f"{type(error).__name__}: {error}", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(error, OSError):
            self._events.storage_failed(error)

    def _append(self, records: list[Records], size: int, now_ms: int) -> None:
        """Append `records` as one batch, or as several if `size`, the upper bound of its bytes, is too large."""
        max_bytes = self._max_batch_bytes
        batches = split_records(records, max_bytes) if size > max_bytes else (records,) if records else ()
        for batch in batches:
            self.writer.append(batch, self.epoch, now_ms)

    def _append_transactional(self, result: Result, transaction: Transaction, now_ms: int) -> int:
        """Append the offsets of an open transaction, or its marker, as a batch of their own. Returns the log end."""
        offset = self.writer.end_offset
        producer = (transaction.producer_id, transaction.producer_epoch)
        if transaction.marker is None:
            self.writer.append(list(result.records), self.epoch, now_ms, producer)
            return self._replay(result, offset, now_ms, producer)
        marker = encode_end_txn_marker(EndTxnMarker(transaction.marker, transaction.coordinator_epoch))
        self.writer.append([(*marker, None)], self.epoch, now_ms, producer, control=True)
        self.machine.replay_transaction_marker(*producer, transaction.marker, offset, transaction.coordinator_epoch)
        return offset + 1

    def _append_imported(self, result: Result, now_ms: int) -> int:
        """Append batches of another log as they are, then the records of the result. Returns the log end."""
        for imported in result.imported:
            batch = imported.batch
            shift = self.writer.end_offset - batch.base_offset
            producer = (batch.producer_id, batch.producer_epoch) if batch.is_transactional else NO_PRODUCER
            self.writer.append_imported(batch, self.epoch)
            if batch.is_control:
                self.machine.replay_transaction_marker(
                    *producer, imported.committed, batch.base_offset + shift, imported.coordinator_epoch
                )
            for read, change in imported.changes:
                self.machine.replay(change, read.offset + shift, read.timestamp_ms, *producer)
        offset = self.writer.end_offset
        self.writer.append(list(result.records), self.epoch, now_ms)
        return self._replay(result, offset, now_ms, NO_PRODUCER)

    def _replay(self, result: Result, offset: int, now_ms: int, producer: tuple[int, int]) -> int:
        """Replay records that were appended from `offset` on. Returns the log end."""
        for record in result.records:
            if isinstance(record, tuple):
                self.machine.replay(record[2], offset, now_ms, *producer)
                offset += 1
            else:
                self.machine.replay(record, offset, now_ms, *producer)
                offset += record.count
        return offset

    def refuse_overdue(self) -> None:
        """Refuse requests that did not commit within offsets.commit.timeout.ms with COORDINATOR_NOT_AVAILABLE (Kafka:
        REQUEST_TIMED_OUT, shown as that). Their records stay in the log and may still commit."""
        limit_ms = self._clock.monotonic_ms() - self._commit_timeout_ms
        self._metrics.commit_timeouts += self.parked.refuse_older(limit_ms, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- timers -------------------------------------------------------------------------------------------------------

    def fire_timers(self) -> None:
        """Queue the timers that are due. They run in the order of the queue, like requests."""
        for key, serial in self._timers.pop_due(self._clock.monotonic_ms()):
            self._queue_internal(partial(self._run_timer, key, serial))
        self._arm()

    def notify(self, event: object) -> None:
        """Queue `event` for the state machine, if this shard serves."""
        if self._serves:
            self._queue_internal(partial(self.machine.on_event, event))

    def _queue_internal(self, work: Callable[[int], Result]) -> None:
        self._queue.append((_INTERNAL, work))
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.drain_soon(self)

    def _run_timer(self, key: Any, serial: int, now_ms: int) -> Result:
        if not self._timers.claim(key, serial):
            return Result()
        return self.machine.on_timer(key, now_ms)

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
