"""Random requests, silences and elections: what the log says is the state, and what was answered holds.

Every step of the harness compares the leader with a follower that has decoded the records, and with a restored
snapshot. `HYPOTHESIS_MAX_EXAMPLES=2000` makes it a longer run.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.transactions.harness import NO_PRODUCER, PARTITIONS, Harness, LogEntry, Producer, replay

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import MarkersToWrite
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.tables import transaction_record

RUNS = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_MAX_EXAMPLES", "100")),
    suppress_health_check=list(HealthCheck),
)
NAMES = ["a", "b"]
CONFIG = TransactionConfig(id_expiration_ms=200_000, expiry_interval_ms=50_000, slice_size=1)
MAX = 0x7FFF

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.sampled_from([*NAMES, None]), st.booleans()),
        st.tuples(st.just("add"), st.sampled_from(NAMES), st.integers(0, PARTITIONS - 1), st.sampled_from([3, 5])),
        st.tuples(st.just("end"), st.sampled_from(NAMES), st.booleans(), st.sampled_from([4, 5])),
        st.tuples(st.just("stale"), st.sampled_from(NAMES), st.integers(0, 20)),
        st.tuples(st.just("mark"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("advance"), st.sampled_from([0, 1, 500, 20_000, 250_000])),
        st.tuples(st.just("exhaust"), st.sampled_from(NAMES)),
        st.tuples(st.just("reload")),
        st.tuples(st.just("lead_again")),
    ),
    max_size=60,
)


class Clients:
    """Producers that go on with what they were answered, and what was promised to them."""

    def __init__(self) -> None:
        self.harness = Harness(CONFIG)
        self.producers: dict[str, Producer] = {}
        self.past: dict[str, list[Producer]] = {name: [] for name in NAMES}
        self.given: set[Producer] = set()
        self.ids: dict[int, str | None] = {}
        self.decided: dict[tuple[str, int], bool] = {}

    def step(self, kind: str, *arguments: Any) -> None:
        getattr(self, "_" + kind)(*arguments)
        for asked in self.harness.writer.asked:
            self._check_marker(asked)

    def _check_marker(self, asked: MarkersToWrite) -> None:
        """The end of a transaction is decided once, whoever asks for its markers."""
        entry = self.harness.log[asked.prepared_at]
        key = (asked.transactional_id, asked.prepared_at)
        assert self.decided.setdefault(key, asked.committed) is asked.committed
        assert entry.key == transaction_record(asked.transactional_id, None)[0]

    def _new_pair(self, name: str | None, producer: Producer) -> None:
        """No pair of producer id and epoch is given to two, and no producer id to two transactional ids."""
        assert producer not in self.given
        assert self.ids.setdefault(producer[0], name) == name
        self.given.add(producer)

    def _init(self, name: str | None, continues: bool) -> None:
        before = self.producers.get(name, NO_PRODUCER) if name is not None and continues else NO_PRODUCER
        response = self.harness.init(name, before, timeout_ms=10_000)
        if response.error_code:
            assert response.error_code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
            return
        producer = (response.producer_id, response.producer_epoch)
        event("a producer got its epoch")
        if producer in self.given:  # a transaction of version 2 ended in this epoch, for this producer
            assert continues
        else:
            self._new_pair(name, producer)
        if name is not None:
            self._goes_on(name, producer)

    def _goes_on(self, name: str, producer: Producer) -> None:
        if name in self.producers:
            self.past[name].append(self.producers[name])
        self.producers[name] = producer

    def _add(self, name: str, partition: int, version: int) -> None:
        if name in self.producers:
            code = self.harness.add(self.producers[name], partition, transactional_id=name, version=version)
            if code == ErrorCode.NONE:
                assert self.harness.status(name) is TransactionStatus.ONGOING

    def _end(self, name: str, committed: bool, version: int) -> None:
        if name not in self.producers:
            return
        before = self.harness.coordinator.durable_state().ids.get(name)
        producer = self.producers[name]
        code, *following = self.harness.end(producer, committed, transactional_id=name, version=version)
        if code != ErrorCode.NONE:
            return
        event(f"version {version}: {'commit' if committed else 'abort'}")
        decided = self.harness.status(name)
        if committed:
            assert decided in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)
        else:
            assert decided in (TransactionStatus.PREPARE_ABORT, TransactionStatus.COMPLETE_ABORT)
        if version == 5:
            after = (following[0], following[1])
            if before != self.harness.coordinator.durable_state().ids[name]:
                self._new_pair(name, after)
            self._goes_on(name, after)

    def _stale(self, name: str, number: int) -> None:
        """A producer that has been succeeded changes nothing, whatever it calls."""
        old = [producer for producer in self.past[name] if producer != self.producers.get(name)]
        if not old:
            return
        producer = old[number % len(old)]
        before = self.harness.coordinator.durable_state()
        current = self.harness.value(name) if name in before.ids else None
        if current is not None and producer == (current.producer_id, current.producer_epoch):
            return
        assert self.harness.add(producer, 1, transactional_id=name) != ErrorCode.NONE
        self.harness.end(producer, transactional_id=name, version=5 - number % 2)
        assert self.harness.coordinator.durable_state() == before

    def _mark(self, number: int, succeeds: bool) -> None:
        asked = self.harness.writer.asked
        if number < len(asked):
            self.harness.marked(
                ErrorCode.NONE if succeeds else ErrorCode.NOT_LEADER_OR_FOLLOWER, asked[len(asked) - 1 - number]
            )

    def _advance(self, delay_ms: int) -> None:
        self.harness.advance(delay_ms)

    def _exhaust(self, name: str) -> None:
        """As if the producer had used up its epochs."""
        value = self._at_rest(name)
        if value is not None and value.producer_epoch < MAX - 2:
            self.harness.put(replace(value, producer_epoch=MAX - 2), name)
            self.producers.pop(name, None)
            self.past[name].clear()
            self.given = {pair for pair in self.given if pair[0] != value.producer_id}

    def _at_rest(self, name: str) -> TransactionLogValue | None:
        stored = self.harness.coordinator.durable_state().ids.get(name)
        return None if stored is None or stored[1].partitions else stored[1]

    def _reload(self) -> None:
        self.harness.reload()

    def _lead_again(self) -> None:
        self.harness.lead_again()


@RUNS
@given(STEPS)
def test_replayed_state_is_the_operated_one_and_no_epoch_is_given_twice(steps: list[tuple[Any, ...]]) -> None:
    clients = Clients()
    for step in steps:
        clients.step(*step)


@RUNS
@given(STEPS)
def test_every_transaction_ends_by_itself(steps: list[tuple[Any, ...]]) -> None:
    """When partitions answer, no transaction stays open longer than its time-out, and no end without its markers."""
    clients = Clients()
    for step in steps:
        clients.step(*step)
    harness = clients.harness
    for _ in range(4):
        harness.advance(10_000)
        for asked in list(harness.writer.asked):
            harness.marked(request=asked)
    for _, value in harness.coordinator.durable_state().ids.values():
        assert value.status in (
            TransactionStatus.EMPTY,
            TransactionStatus.COMPLETE_COMMIT,
            TransactionStatus.COMPLETE_ABORT,
        )


@RUNS
@given(STEPS, st.integers(0, 100))
def test_compacted_log_says_the_same(steps: list[tuple[Any, ...]], clean_to: int) -> None:
    """The cleaner keeps the last record of each key below `clean_to` percent of the log."""
    clients = Clients()
    for step in steps:
        clients.step(*step)
    log = clients.harness.log
    border = len(log) * clean_to // 100
    last = {entry.key: entry.offset for entry in log}
    kept: list[LogEntry] = [e for e in log if e.offset >= border or (last[e.key] == e.offset and e.value is not None)]
    event(f"cleaned away: {min(3, len(log) - len(kept))}")
    loaded = clients.harness.new()
    replay(loaded, kept)
    assert loaded.durable_state() == clients.harness.coordinator.durable_state()


@RUNS
@given(STEPS, st.integers(0, 100))
def test_snapshot_and_the_rest_of_the_log_say_the_same(steps: list[tuple[Any, ...]], cut_at: int) -> None:
    clients = Clients()
    for step in steps:
        clients.step(*step)
    log = clients.harness.log
    border = len(log) * cut_at // 100
    first, second = clients.harness.new(), clients.harness.new()
    replay(first, log[:border])
    for part in first.snapshot(1):
        second.restore(part)
    replay(second, log[border:])
    assert second.durable_state() == clients.harness.coordinator.durable_state()
