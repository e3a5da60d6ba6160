"""A transaction coordinator with a fake clock, fake timers and a log in memory.

Every result is replayed at once, as the shard does. After every step a follower, which sees nothing but the encoded
records, must have the same durable state, and so must one that restores a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.records.structs import UnknownRecord
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionStatus,
    decode_transaction_record,
)
from muster_coordinator.requests import transactions as m
from muster_coordinator.state_machine import Record, Result, SetTimer, TimerKey
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator
from muster_coordinator.transactions.states import PREPARED, STATE_NAMES
from muster_coordinator.transactions.tables import transaction_record, transaction_timer

START_MS = 1_700_000_000_000
OFFSETS = "__consumer_offsets"
PARTITIONS = 5
GROUP_IN = {partition_for(name, PARTITIONS): name for name in ("g0", "g1", "g2", "g3", "g4")}
"""For each offsets partition a group that lives there."""
PARTITION = 3
"""Of the transaction topic."""
FIRST_ID = (PARTITION + 1) << 40
NO_PRODUCER = (-1, -1)

Producer = tuple[int, int]
"""(producer id, epoch)."""


class Topics:
    """A cluster whose groups have `PARTITIONS` partitions, and which has data partitions elsewhere."""

    def __init__(self) -> None:
        self.is_known = True
        self.holds_transactions = False

    def takes_markers(self, topic: str) -> bool:
        return topic == OFFSETS

    def has(self, topic: str, partition: int) -> bool:
        return 0 <= partition < PARTITIONS

    def partition_of_group(self, group_id: str) -> tuple[str, int] | None:
        return (OFFSETS, partition_for(group_id, PARTITIONS)) if self.is_known else None


@dataclass
class LogEntry:
    key: bytes
    value: bytes | None
    offset: int
    timestamp_ms: int


class MarkerWriter:
    """`asked`: every attempt, which the shard would make when the decision is committed."""

    def __init__(self) -> None:
        self.asked: list[m.MarkersToWrite] = []

    def attempt(self, request: m.MarkersToWrite) -> m.MarkersToWrite:
        return request


@dataclass
class Harness:
    config: TransactionConfig = field(default_factory=TransactionConfig)

    def __post_init__(self) -> None:
        self.now_ms = START_MS
        self.topics = Topics()
        self.writer = MarkerWriter()
        self.log: list[LogEntry] = []
        self.timers: dict[TimerKey, int] = {}
        self.last = Result()
        self.coordinator = self.new()
        self.follower = self.new()
        self.start()

    def start(self) -> None:
        self._apply(self.coordinator.on_loaded(self.now_ms))

    def new(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.config, PARTITION, self.topics, self.writer)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def send(self, request: object) -> Any:
        result = self.coordinator.operations[type(request)](request, object(), self.now_ms)
        assert result.response is not None, "no request is parked"
        self._apply(result)
        return result.response

    def notify(self, event: object) -> None:
        self._apply(self.coordinator.on_event(event, self.now_ms))

    def advance(self, delay_ms: int = 0) -> None:
        """Let time pass; timers fire in order, each once, at their time."""
        end_ms = self.now_ms + delay_ms
        while self.timers:
            key = min(self.timers, key=self.timers.__getitem__)
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self._apply(self.coordinator.on_timer(key, self.now_ms))
        self.now_ms = end_ms

    def reload(self) -> None:
        """The leader goes, another one loads the log."""
        assert self.coordinator.on_unloaded() == ()
        self.timers.clear()
        self.coordinator = self.new()
        replay(self.coordinator, self.log)
        self.start()

    def lead_again(self) -> None:
        """The leader goes and comes back with the state that it had."""
        self.coordinator.on_unloaded()
        self.timers.clear()
        self.start()

    def lose_records(self, count: int) -> None:
        """The last records never reached the log: the leader steps down, and another one loads what is there."""
        del self.log[len(self.log) - count :]
        self.follower = self.new()
        replay(self.follower, self.log)
        self.reload()

    def _apply(self, result: Result) -> None:
        self.last = result
        assert result.transaction is None
        for record in result.records:
            self._append(record)
        for reply in result.replies:
            assert reply.token is reply.response
            assert isinstance(reply.response, m.MarkersToWrite)
            self.writer.asked.append(reply.response)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                assert timer.delay_ms >= 0
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        self._check()

    def _append(self, record: Record) -> None:
        key, value, change = record
        entry = LogEntry(key, value, len(self.log), self.now_ms)
        assert decode_transaction_record(key, value) == change
        self.log.append(entry)
        self.coordinator.replay(change, entry.offset, entry.timestamp_ms)
        replay(self.follower, [entry])

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        durable = self.coordinator.durable_state()
        assert durable == self.follower.durable_state()
        assert durable == self.restored().durable_state()
        counted = Counter(STATE_NAMES[value.status] for _, value in durable.ids.values())
        for coordinator in (self.coordinator, self.follower, self.restored()):
            by_state = {
                state: n for (name, state), n in coordinator.gauges.items() if name == "transactional_ids" and n
            }
            assert by_state == counted
        for transactional_id, (_, value) in durable.ids.items():
            if ("start", "") in self.timers:
                break
            unmarked = self.coordinator._state.unmarked.get(transactional_id)
            assert value.status in PREPARED or unmarked is None
            asks = value.status in PREPARED and (unmarked is None or unmarked.missing != unmarked.asked)
            waits = asks or value.status is TransactionStatus.ONGOING
            assert (transaction_timer(transactional_id) in self.timers) is waits, value
            assert bool(value.partitions) or value.status not in PREPARED, "complete at once"

    def restored(self) -> TransactionCoordinator:
        """One that has nothing but a snapshot of the leader's state."""
        coordinator = self.new()
        for part in self.coordinator.snapshot(3):
            coordinator.check(part)
            coordinator.restore(part)
        return coordinator

    # -- requests ------------------------------------------------------------------------------------------------------

    def init(
        self, transactional_id: str | None = "tx", producer: Producer = NO_PRODUCER, timeout_ms: int = 60_000
    ) -> m.InitProducerIdResponse:
        response = self.send(m.InitProducerIdRequest(transactional_id, timeout_ms, *producer))
        assert isinstance(response, m.InitProducerIdResponse)
        return response

    def producer(self, transactional_id: str = "tx", timeout_ms: int = 60_000) -> Producer:
        """A producer that has initialised itself."""
        response = self.init(transactional_id, timeout_ms=timeout_ms)
        assert response.error_code == ErrorCode.NONE
        return response.producer_id, response.producer_epoch

    def add(
        self, producer: Producer, *partitions: int, transactional_id: str = "tx", topic: str = OFFSETS, version: int = 3
    ) -> int:
        """The code of the last partition. Version 3: as a client of transaction version 1 adds offsets."""
        if version < 4:
            codes = [self.add_offsets(producer, GROUP_IN[each], transactional_id) for each in partitions or (1,)]
            return codes[-1]
        response = self.send(
            m.AddPartitionsRequest(transactional_id, *producer, ((topic, partitions or (1,)),), version)
        )
        assert response.transactional_id == transactional_id
        return int(response.topics[0][1][-1][1])

    def add_offsets(self, producer: Producer, group_id: str, transactional_id: str = "tx") -> int:
        return int(self.send(m.AddOffsetsToTxnRequest(transactional_id, *producer, group_id)).error_code)

    def end(
        self, producer: Producer, committed: bool = True, *, transactional_id: str = "tx", version: int = 4
    ) -> tuple[int, int, int]:
        """(error code, producer id, epoch)."""
        response = self.send(m.EndTxnRequest(transactional_id, *producer, committed, version))
        return response.error_code, response.producer_id, response.producer_epoch

    def marked(self, code: ErrorCode = ErrorCode.NONE, request: m.MarkersToWrite | None = None) -> None:
        """Every partition of the last request for markers answers `code`."""
        request = self.writer.asked[-1] if request is None else request
        topics = tuple((topic, tuple((p, int(code)) for p in partitions)) for topic, partitions in request.topics)
        self.notify(m.MarkersWritten(request.transactional_id, request.prepared_at, topics))

    def finish(self) -> None:
        """Write the markers of the transactions that end now."""
        asked = len(self.writer.asked)
        self.advance()
        for request in self.writer.asked[asked:]:
            self.marked(request=request)

    def value(self, transactional_id: str = "tx") -> TransactionLogValue:
        return self.coordinator.durable_state().ids[transactional_id][1]

    def status(self, transactional_id: str = "tx") -> TransactionStatus:
        return self.value(transactional_id).status

    def put(self, value: TransactionLogValue, transactional_id: str = "tx") -> None:
        """A record that an earlier leader, or a broker, has written."""
        self.reload_with(transaction_record(transactional_id, value))

    def reload_with(self, record: Record) -> None:
        self._append(record)
        self.reload()


def replay(coordinator: TransactionCoordinator, log: Iterable[LogEntry]) -> None:
    """Feed a coordinator from encoded records alone."""
    decode = coordinator.new_decoder()
    for entry in log:
        change = decode(entry.key, entry.value)
        assert not isinstance(change, UnknownRecord)
        coordinator.replay(change, entry.offset, entry.timestamp_ms)
