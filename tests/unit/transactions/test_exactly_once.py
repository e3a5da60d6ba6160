"""Transactions and groups together, in random orders of requests, commits, elections, lost messages and silence: groups
have the offsets of committed transactions, of each the whole, and of no other.

A partition answers what is committed. An election keeps what is committed, and any part of what is not. A marker or its
acknowledgement can be lost, which its sender learns. Those of an earlier leader are on their way as long as they like.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.transactions.harness import NO_PRODUCER, OFFSETS, START_MS, Producer

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.requests import groups as g
from muster_coordinator.requests import transactions as m
from muster_coordinator.state_machine import Result, SetTimer, StateMachine, TimerKey
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator

SEEDS = range(int(os.environ.get("MUSTER_SEEDS", "60")))
STEPS = 800
GROUPS = ("g0", "g1")
"""Group `gN` lives in offsets partition N."""
TIMEOUT_MS = 10_000
CONFIG = TransactionConfig(slice_size=1)

Answered = Callable[[Any], None]
"""Gets the response; None if the request was refused, and may have had its effect nevertheless."""


class Topics:
    holds_transactions = False

    def takes_markers(self, topic: str) -> bool:
        return topic == OFFSETS

    def has(self, topic: str, partition: int) -> bool:
        return True

    def partition_of_group(self, group_id: str) -> tuple[str, int] | None:
        return OFFSETS, GROUPS.index(group_id)


@dataclass(frozen=True)
class Append:
    """What one operation has put into the log."""

    result: Result
    now_ms: int


@dataclass
class Partition:
    """One partition with its leader. The log is a list of operations: what an operation appends is kept or lost as a
    whole. `parked`: answers that wait until so much of the log is committed."""

    new_machine: Callable[[], StateMachine]
    now_ms: int = START_MS
    log: list[Append] = field(default_factory=list)
    committed: int = 0
    epoch: int = 0
    end_offset: int = 0

    def __post_init__(self) -> None:
        self.parked: list[tuple[int, Answered, Any]] = []
        self.timers: dict[TimerKey, int] = {}
        self._lead()

    def _lead(self) -> None:
        self.machine = self.new_machine()
        self.end_offset = 0
        for append in self.log:
            self._replay(append)
        self._apply(self.machine.on_loaded(self.now_ms), None)

    def elect(self, kept: int) -> None:
        """Another leader, whose log has `kept` of the operations that are not committed."""
        parked, self.parked = self.parked, []
        self.machine.on_unloaded()
        self.timers.clear()
        del self.log[self.committed + kept :]
        self.epoch += 1
        self._lead()
        for _, answered, _ in parked:
            answered(None)

    def ask(self, request: object, answered: Answered) -> None:
        self._apply(self.machine.operations[type(request)](request, answered, self.now_ms), answered)

    def notify(self, what: object) -> None:
        self._apply(self.machine.on_event(what, self.now_ms), None)

    def fire(self) -> None:
        """The timers that are due."""
        for key in [key for key, due_ms in self.timers.items() if due_ms <= self.now_ms]:
            if self.timers.pop(key, None) is not None:
                self._apply(self.machine.on_timer(key, self.now_ms), None)

    def commit(self) -> None:
        self.committed = len(self.log)
        parked, self.parked = self.parked, []
        for _, answered, response in parked:
            answered(response)

    def _apply(self, result: Result, answered: Answered | None) -> None:
        if result.records or result.transaction is not None:
            append = Append(result, self.now_ms)
            self.log.append(append)
            self._replay(append)
        if answered is not None and result.response is not None:
            self.parked.append((len(self.log), answered, result.response))
        self.parked += [(len(self.log), reply.token, reply.response) for reply in result.replies]
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)

    def _replay(self, append: Append) -> None:
        transaction = append.result.transaction
        producer = (-1, -1) if transaction is None else (transaction.producer_id, transaction.producer_epoch)
        decode = self.machine.new_decoder()
        for key, value, _ in append.result.records:
            self.machine.replay(decode(key, value), self.end_offset, append.now_ms, *producer)
            self.end_offset += 1
        if transaction is not None and transaction.marker is not None:
            self.machine.replay_transaction_marker(
                *producer, transaction.marker, self.end_offset, transaction.coordinator_epoch
            )
            self.end_offset += 1


@dataclass
class Marker:
    """On its way to a group's partition, from the leader of an epoch. `code`: what the partition has answered, on its
    way back."""

    request: m.MarkersToWrite
    partition: int
    coordinator_epoch: int
    code: int | None = None
    is_there: bool = False


class Client:
    """An application that copies offsets, one transaction after the other: always the next number, to both groups."""

    def __init__(self, cluster: Cluster, version: int) -> None:
        self.cluster = cluster
        self.version = version
        self.producer: Producer = NO_PRODUCER
        self.todo: list[Callable[[], None]] = []
        self.waits = False
        self.number = -1

    def step(self, commits: bool) -> None:
        """Its next request, unless it waits for an answer. `commits`: what is to become of a transaction that it
        begins now."""
        if self.waits:
            return
        if self.producer == NO_PRODUCER:
            self.todo = [self._init]
        elif not self.todo:
            self.number = self.cluster.begin()
            self.todo = [
                *[lambda p=partition: self._add(p) for partition in range(len(GROUPS))],  # type: ignore[misc]
                *[lambda p=partition: self._write(p) for partition in range(len(GROUPS))],  # type: ignore[misc]
                lambda: self._end(commits),
            ]
        self.waits = True
        self.todo[0]()

    def _answered(self, code: int) -> bool:
        """Go on, ask again, or begin anew. Returns whether the request has succeeded."""
        self.waits = False
        if code == ErrorCode.NONE:
            self.todo.pop(0)
        elif code != ErrorCode.CONCURRENT_TRANSACTIONS:
            self.producer, self.todo = NO_PRODUCER, []
            self.cluster.seen["a client began anew"] += 1
        return code == ErrorCode.NONE

    def _init(self) -> None:
        def answered(response: m.InitProducerIdResponse | None) -> None:
            if response is None or response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                self.waits = False
                return
            assert response.error_code == ErrorCode.NONE
            self.producer, self.todo, self.waits = (response.producer_id, response.producer_epoch), [], False

        self.cluster.transactions.ask(m.InitProducerIdRequest("tx", TIMEOUT_MS), answered)

    def _add(self, partition: int) -> None:
        def answered(response: Any) -> None:
            if isinstance(response, m.AddPartitionsResponse):
                self._answered(response.topics[0][1][0][1])
            else:
                self._answered(ErrorCode.CONCURRENT_TRANSACTIONS if response is None else response.error_code)

        request: object = m.AddOffsetsToTxnRequest("tx", *self.producer, GROUPS[partition])
        if self.version == 2:
            request = m.AddPartitionsRequest("tx", *self.producer, ((OFFSETS, (partition,)),), 5)
        self.cluster.transactions.ask(request, answered)

    def _write(self, partition: int) -> None:
        def answered(response: g.TxnOffsetCommitResponse | None) -> None:
            code = ErrorCode.CONCURRENT_TRANSACTIONS if response is None else response.topics[0][1][0][1]
            self._answered(code)

        request = g.TxnOffsetCommitRequest(
            "tx", GROUPS[partition], *self.producer, -1, "", None, (("t", ((0, self.number, -1, ""),)),), 3
        )
        self.cluster.groups[partition].ask(request, answered)

    def _end(self, commits: bool) -> None:
        number = self.number

        def answered(response: m.EndTxnResponse | None) -> None:
            code = ErrorCode.CONCURRENT_TRANSACTIONS if response is None else response.error_code
            if self._answered(code) and response is not None:
                self.cluster.seen[f"version {self.version} {'committed' if commits else 'aborted'}"] += 1
                if commits:
                    self.cluster.answered_commit = max(self.cluster.answered_commit, number)
                if self.version == 2:
                    self.producer = (response.producer_id, response.producer_epoch)

        if commits:
            self.cluster.commits_asked.add(number)
        api_version = 4 if self.version == 1 else 5
        self.cluster.transactions.ask(m.EndTxnRequest("tx", *self.producer, commits, api_version), answered)


class Mood:
    """How a run goes: some have slow markers, some many elections."""

    def __init__(self, chance: random.Random) -> None:
        self.weights = (40, chance.choice((20, 40)), chance.choice((6, 30)), chance.choice((1, 2, 5)), 5)
        self.commits = chance.choice((0.3, 0.7))
        self.loses = chance.choice((0.0, 0.1, 0.4))


class Cluster:
    """A partition with transactions and one for each group. `commits_asked`: numbers of transactions that a client
    wanted to commit. `answered_commit`: the last that was answered as committed."""

    def __init__(self, versions: tuple[int, int], mood: Mood) -> None:
        self.now_ms = START_MS
        self.mood = mood
        self.markers: list[Marker] = []
        self.commits_asked = {-1}
        self.answered_commit = -1
        self.seen: Counter[str] = Counter()
        self._numbers = 0
        self.transactions: Partition = Partition(lambda: TransactionCoordinator(CONFIG, 0, Topics(), self))
        self.groups = [Partition(lambda: GroupCoordinator(GroupConfig(), _AnyTopic(), lambda: "x")) for _ in GROUPS]
        self.clients = [Client(self, version) for version in versions]
        self.active = False  # index of the client that does most; the other one should be dead, and is not quite

    @property
    def partitions(self) -> list[Partition]:
        return [self.transactions, *self.groups]

    def begin(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    # -- markers: what the pod does with them -------------------------------------------------------------------------

    def attempt(self, request: m.MarkersToWrite) -> Answered:
        """Implements `ports.MarkerWriter`. The shard refuses an attempt only when it ends."""
        epoch = self.transactions.epoch

        def may_write(what: m.MarkersToWrite | None) -> None:
            if what is not None:
                for _, partitions in request.topics:
                    self.markers += [Marker(request, partition, epoch) for partition in partitions]

        return may_write

    def deliver(self, number: int, lost: bool) -> None:
        """A marker arrives, or its answer does, or one of them is lost."""
        if not self.markers:
            return
        marker = self.markers[number % len(self.markers)]
        if lost:
            marker.code = ErrorCode.REQUEST_TIMED_OUT
        if marker.code is not None:
            self.markers.remove(marker)
            what = ((OFFSETS, ((marker.partition, marker.code),)),)
            request = marker.request
            if marker.coordinator_epoch == self.transactions.epoch:
                self.transactions.notify(m.MarkersWritten(request.transactional_id, request.prepared_at, what))
        elif not marker.is_there:
            marker.is_there = True
            self._arrive(marker)

    def _arrive(self, marker: Marker) -> None:
        def answered(response: g.WriteTxnMarkerResponse | None) -> None:
            marker.code = ErrorCode.NOT_LEADER_OR_FOLLOWER if response is None else response.error_code

        request = marker.request
        self.groups[marker.partition].ask(
            g.WriteTxnMarkerRequest(
                request.producer_id,
                request.producer_epoch,
                request.committed,
                marker.coordinator_epoch,
                request.client_version,
            ),
            answered,
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, chance: random.Random) -> None:
        (kind,) = chance.choices(("client", "commit", "deliver", "elect", "wait"), self.mood.weights)
        if kind == "client":
            if chance.random() < 0.01:
                self.active = not self.active
            which = self.active if chance.random() < 0.97 else not self.active
            self.clients[which].step(commits=chance.random() < 0.6)
        elif kind == "commit":
            for partition in self.partitions:
                if chance.random() < self.mood.commits:
                    partition.commit()
        elif kind == "deliver":
            self.deliver(chance.randrange(1_000), lost=chance.random() < self.mood.loses)
        elif kind == "elect":
            self.seen["an election"] += 1
            chance.choice(self.partitions).elect(kept=chance.randrange(3))
        else:
            self.wait(TIMEOUT_MS if chance.random() < 0.02 else 500)
        self.wait(0)
        self.check()

    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        for partition in self.partitions:
            partition.now_ms = self.now_ms
            partition.fire()

    def offset(self, which: int) -> int:
        """What the group has committed, whether a majority has it or not."""
        machine = self.groups[which].machine
        assert isinstance(machine, GroupCoordinator)
        stored = machine.durable_state().committed.get((GROUPS[which], "t", 0))
        return -1 if stored is None else stored[1].offset

    def check(self) -> None:
        """No group has an offset whose transaction nobody has asked to commit."""
        for which in range(len(GROUPS)):
            assert self.offset(which) in self.commits_asked

    def settle(self) -> None:
        """Clients stop, everything arrives, and time passes."""
        for _ in range(6):
            for partition in self.partitions:
                partition.commit()
            while self.markers:
                for _ in range(2):
                    self.deliver(0, lost=False)
                    for partition in self.partitions:
                        partition.commit()
            self.wait(TIMEOUT_MS // 2)
        self.check()


class _AnyTopic:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


@pytest.mark.parametrize("versions", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_groups_have_the_offsets_of_committed_transactions_and_of_no_other(versions: tuple[int, int]) -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        chance = random.Random(seed)
        cluster = Cluster(versions, Mood(chance))
        try:
            for _ in range(STEPS):
                cluster.step(chance)
            cluster.settle()
            _check_outcome(cluster)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        seen += cluster.seen
    for version in versions:
        assert seen[f"version {version} committed"] > len(SEEDS) / 10
        assert seen[f"version {version} aborted"] > len(SEEDS) / 10
    assert min(seen["a client began anew"], seen["an election"]) > len(SEEDS)


def _check_outcome(cluster: Cluster) -> None:
    first, second = (cluster.offset(which) for which in range(len(GROUPS)))
    assert first == second, "a transaction is committed in both groups or in none"
    assert first >= cluster.answered_commit, "what was answered as committed is there"
    for partition in cluster.groups:
        assert isinstance(partition.machine, GroupCoordinator)
        assert partition.machine.durable_state().pending == {}
    assert isinstance(cluster.transactions.machine, TransactionCoordinator)
    for _, value in cluster.transactions.machine.durable_state().ids.values():
        assert value.partitions == ()
