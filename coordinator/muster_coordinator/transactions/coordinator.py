"""Transactional ids, their transactions and producer ids of one partition, without I/O (Kafka: TransactionCoordinator,
TransactionStateManager).

An operation returns a Result: records, answer, timers, and markers to write. Durable state is what the records say, and
changes only in `replay` and `restore`. Live state exists from `on_loaded` to `on_unloaded`.

`now_ms` is wall-clock time in milliseconds since 1970: records contain it. Timers are given as delays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from muster_coordinator.records.transaction_log import (
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
)
from muster_coordinator.requests import transactions as m
from muster_coordinator.state_machine import (
    NOTHING,
    CancelTimer,
    Decoder,
    Operation,
    Record,
    Result,
    SetTimer,
    TimerKey,
    Token,
)
from muster_coordinator.transactions.add_partitions import add_offsets, add_partitions
from muster_coordinator.transactions.admission import refuse
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.description import describe_transaction, list_transactions
from muster_coordinator.transactions.end_txn import end_txn
from muster_coordinator.transactions.init_producer_id import init_producer_id
from muster_coordinator.transactions.markers import on_markers_written, on_transaction_timer
from muster_coordinator.transactions.ports import MarkedTopics, MarkerWriter
from muster_coordinator.transactions.producer_ids import BLOCK_ID
from muster_coordinator.transactions.snapshot import SNAPSHOT_VERSION, decode_part, restore_part, snapshot_parts
from muster_coordinator.transactions.states import AT_REST, PREPARED, STATE_NAMES
from muster_coordinator.transactions.tables import (
    EXPIRE_TIMER,
    START_TIMER,
    Stored,
    TransactionTables,
    transaction_record,
    transaction_timer,
)
from muster_coordinator.transactions.transitions import NO_EPOCH

_HANDLERS: dict[type, Callable[[TransactionTables, Any, Token, int], Result]] = {
    m.InitProducerIdRequest: init_producer_id,
    m.AddPartitionsRequest: add_partitions,
    m.AddOffsetsToTxnRequest: add_offsets,
    m.EndTxnRequest: end_txn,
    m.DescribeTransactionRequest: describe_transaction,
    m.ListTransactionsRequest: list_transactions,
}


@dataclass(frozen=True)
class DurableState:
    """The durable state in a form that can be compared: equal for equal logs, compacted or not."""

    ids: dict[str, Stored]
    reserved_to: int


class TransactionCoordinator:
    """Implements `state_machine.StateMachine`."""

    def __init__(
        self, config: TransactionConfig, partition: int, topics: MarkedTopics, marker_writer: MarkerWriter
    ) -> None:
        """`partition`: the index of the partition in its topic, which no other log ever had. Raises ValueError for a
        partition that has no producer ids."""
        self._state = TransactionTables(config, partition, topics, marker_writer)
        self._active = False
        self._start_queue: Iterator[str] = iter(())
        self._expiry_queue: list[str] = []
        self.operations: Mapping[type, Operation] = {
            request: partial(handler, self._state) for request, handler in _HANDLERS.items()
        }

    def refuse(self, request: object) -> object | None:
        return refuse(request, self._state.config)

    # -- replay --------------------------------------------------------------------------------------------------------

    def new_decoder(self) -> Decoder:
        return decode_transaction_record

    def replay(
        self,
        change: TransactionRecord,
        offset: int,
        timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Apply the record at `offset`."""
        state, value = self._state, change.value
        if change.transactional_id == BLOCK_ID:
            if value is not None:
                state.producer_ids.replay(value)
        elif value is None:
            state.store(change.transactional_id, None)
        else:
            state.store(change.transactional_id, (offset, value))
            state.producer_ids.saw(value.producer_id)
            state.producer_ids.saw(value.next_producer_id)

    def replay_transaction_marker(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int, coordinator_epoch: int
    ) -> None:
        """Ignored: nobody writes to this topic in a transaction."""

    @property
    def snapshot_version(self) -> int:
        return SNAPSHOT_VERSION

    def snapshot(self, size: int) -> Iterator[bytes]:
        return snapshot_parts(self._state, size)

    def check(self, part: bytes) -> None:
        decode_part(part)

    def restore(self, part: bytes) -> None:
        restore_part(self._state, part)

    # -- life ----------------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        """Go on with the transactions that are under way, a slice at a time, and look for expired ids."""
        assert not self._active
        self._active = True
        self._state.producer_ids.lead()
        self._start_queue = iter(list(self._state.ids))
        timers = [*self._start_slice(now_ms), SetTimer(EXPIRE_TIMER, self._state.config.expiry_interval_ms)]
        return Result(timers=timers)

    def _start_slice(self, now_ms: int) -> list[SetTimer | CancelTimer]:
        """Timers of one slice of the transactional ids; one of them starts the next slice at once. A transaction that
        a request has begun meanwhile gets the same timer again."""
        timers: list[SetTimer | CancelTimer] = []
        for looked_at, transactional_id in enumerate(self._start_queue, 1):
            value = self._state.value(transactional_id)
            if value is not None and value.status is TransactionStatus.ONGOING:
                left_ms = value.start_ms + value.timeout_ms - now_ms
                delay_ms = max(0, min(left_ms, value.timeout_ms))  # the wall clock may have jumped
                timers.append(SetTimer(transaction_timer(transactional_id), delay_ms))
            elif value is not None and value.status in PREPARED and transactional_id not in self._state.unmarked:
                timers.append(SetTimer(transaction_timer(transactional_id), 0))
            if looked_at >= self._state.config.slice_size:
                timers.append(SetTimer(START_TIMER, 0))
                break
        return timers

    def on_unloaded(self) -> tuple[Token, ...]:
        """No request is ever parked here."""
        self._active = False
        self._start_queue = iter(())
        self._expiry_queue.clear()
        self._state.forget_live()
        return ()

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        if key == EXPIRE_TIMER:
            return self._expire(now_ms)
        if key == START_TIMER:
            return Result(timers=self._start_slice(now_ms))
        kind, transactional_id = key
        assert kind == "transaction", key
        return on_transaction_timer(self._state, transactional_id, now_ms)

    def _expire(self, now_ms: int) -> Result:
        """Remove the expired ids in one slice. A timer continues the search at once, or starts a new one after the
        interval."""
        state, config = self._state, self._state.config
        if not self._expiry_queue:
            self._expiry_queue = list(state.ids)
        records: list[Record] = []
        for _ in range(min(config.slice_size, len(self._expiry_queue))):
            transactional_id = self._expiry_queue.pop()
            value = state.value(transactional_id)
            if (
                value is not None
                and value.status in AT_REST
                and value.last_update_ms + config.id_expiration_ms <= now_ms
            ):
                records.append(transaction_record(transactional_id, None))
                state.remember_epoch(transactional_id, NO_EPOCH)
        state.counters.expired_ids += len(records)
        delay_ms = 0 if self._expiry_queue else config.expiry_interval_ms
        return Result(records, timers=(SetTimer(EXPIRE_TIMER, delay_ms),))

    def on_event(self, event: object, now_ms: int) -> Result:
        """`MarkersWritten`; what else happens in a pod is not about transactions."""
        return on_markers_written(self._state, event, now_ms) if isinstance(event, m.MarkersWritten) else NOTHING

    @property
    def max_batch_bytes(self) -> int:
        """No record batch may be larger. Only the tombstones of a search for expired ids may be split."""
        return self._state.config.max_record_bytes

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def key_count(self) -> int:
        """The number of transactional ids, and one more if producer ids are reserved."""
        return len(self._state.ids) + self._state.producer_ids.is_used

    def open_transactions(self, names: int) -> tuple[int, tuple[str, ...]]:
        """Those that have begun, until every partition has its marker. The ids that changed last come last."""
        state = self._state
        count = sum([state.status_counts[each] for each in TransactionStatus if each not in AT_REST])
        found = (name for name in reversed(state.ids) if state.ids[name][1].status not in AT_REST)
        return count, tuple(islice(found, min(count, names)))

    @property
    def event_counts(self) -> Mapping[str, int]:
        counters = self._state.counters
        return {
            "transactions_committed": counters.commits,
            "transactions_aborted": counters.aborts,
            "transactions_timed_out": counters.timed_out,
            "transaction_markers_refused": counters.refused_markers,
            "transactional_ids_expired": counters.expired_ids,
            "producer_ids_handed_out": counters.producer_ids,
        }

    @property
    def gauges(self) -> Mapping[tuple[str, str], int]:
        state = self._state
        counts = {("transactional_ids", STATE_NAMES[status]): count for status, count in state.status_counts.items()}
        missing = sum([len(each.missing) for each in state.unmarked.values()])
        return counts | {("transaction_markers_missing", ""): missing}

    def durable_state(self) -> DurableState:
        """Returns all that replay has built."""
        return DurableState(dict(self._state.ids), self._state.producer_ids.reserved_to)
