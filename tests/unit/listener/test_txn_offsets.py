"""TxnOffsetCommit reaches the group's shard only when the transaction coordinator has the partition in the
transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.listener.asked import NO_PODS, Asked
from tests.unit.listener.test_handlers import refuse_early
from tests.unit.shard.fake_world import World
from tests.unit.transactions.harness import MarkerWriter

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.listener.handlers.groups import GroupHandlers
from muster_coordinator.listener.handlers.transactions import TransactionHandlers
from muster_coordinator.listener.handlers.txn_offsets import TxnOffsetHandlers
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import transactions as t
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator

NUMBER = TRANSACTIONS.first
IMAGE = MetadataImage(
    token=1,
    version=1,
    cluster_id="c",
    brokers=(Broker(0, "127.0.0.1", 1, "pod-0"), Broker(1, "127.0.0.1", 2, "pod-1")),
    offsets_partitions=1,
    leaders=(PartitionLeader(0, 0, 1), PartitionLeader(NUMBER, 0, 1)),
    topics=(DeclaredTopic("t", 1),),
    transaction_partitions=1,
)
ADDED_BY_ITSELF, ADDED_BEFORE = 5, 3  # versions of TxnOffsetCommit


class AskedCommit(Asked):
    @property
    def code(self) -> int:
        ((_, ((_, code),)),) = self.got[0].topics
        return int(code)


class Held:
    """A barrier that holds all commits until `open`. Implements `txn_offsets.Barrier`."""

    def __init__(self) -> None:
        self._go_on: list[Callable[[], None]] = []

    def after_markers(self, partition: int, go_on: Callable[[], None], refuse: Callable[[ErrorCode], None]) -> None:
        assert partition == 0
        self._go_on.append(go_on)

    def open(self) -> None:
        for go_on in self._go_on:
            go_on()


class Pod:
    """It leads the groups and the transactions, and its producer has its id. A partition that it does not lead is about
    to be: requests wait in `early`, and run in its election."""

    def __init__(self, barrier: Held | None = None) -> None:
        self.early: list[Any] = []
        self.view = ClusterView("pod-0")
        # where Kafka writes the markers, this cluster has no partitions of transactions
        self.view.update(IMAGE if barrier is None else msgspec.structs.replace(IMAGE, transaction_partitions=0))
        self.groups = World(GroupCoordinator(GroupConfig(), self.view, lambda: "x"))
        self.transactions = World(TransactionCoordinator(TransactionConfig(), 0, self.view, MarkerWriter()))
        self.shards = {0: self.groups.shard, NUMBER: self.transactions.shard}
        groups = GroupHandlers(self.view, self.shards, lambda partition, request, answer: self.early.append(request))
        transactions = TransactionHandlers(self.view, self.shards, refuse_early)
        self.handlers = TxnOffsetHandlers(self.view, self.shards, groups, transactions, NO_PODS, barrier)
        for world in (self.groups, self.transactions):
            world.activate()
            self.turn(world)
        begun = self.ask(t.InitProducerIdRequest("tx", 60_000))
        self.producer = (begun.producer_id, begun.producer_epoch)

    def turn(self, world: World) -> None:
        world.turn()
        world.commit()

    def ask(self, request: Any) -> Any:
        asked = AskedCommit(request)
        self.transactions.shard.submit(request, asked)
        self.turn(self.transactions)
        return asked.got[0]

    def commit(self, version: int) -> AskedCommit:
        topics = (("t", ((0, 5, -1, None),)),)
        request = m.TxnOffsetCommitRequest("tx", "g", *self.producer, -1, "", None, topics, version)
        asked = AskedCommit(request)
        self.handlers.txn_offset_commit(request, asked)
        return asked

    def state(self) -> str:
        found = self.ask(t.DescribeTransactionRequest("tx"))
        assert isinstance(found, t.DescribedTransaction)
        return found.state


@pytest.fixture
def pod() -> Pod:
    return Pod()


def test_partition_is_added_before_the_commit_is_written(pod: Pod) -> None:
    asked = pod.commit(ADDED_BY_ITSELF)
    pod.turn(pod.groups)
    assert not asked.got, "the coordinator has not answered"
    pod.turn(pod.transactions)
    pod.turn(pod.groups)
    assert asked.code == ErrorCode.NONE
    assert pod.state() == "Ongoing"


def test_earlier_version_is_refused_if_nothing_was_added(pod: Pod) -> None:
    asked = pod.commit(ADDED_BEFORE)
    pod.turn(pod.transactions)
    assert asked.code == ErrorCode.INVALID_TXN_STATE
    assert pod.state() == "Empty"


def test_earlier_version_is_taken_after_the_group_was_added(pod: Pod) -> None:
    pod.ask(t.AddOffsetsToTxnRequest("tx", *pod.producer, "g"))
    asked = pod.commit(ADDED_BEFORE)
    pod.turn(pod.transactions)
    pod.turn(pod.groups)
    assert asked.code == ErrorCode.NONE


def test_commit_is_refused_if_a_marker_has_ended_the_transaction_that_was_asked_for(pod: Pod) -> None:
    pod.ask(t.AddOffsetsToTxnRequest("tx", *pod.producer, "g"))
    asked = pod.commit(ADDED_BEFORE)
    marker = m.WriteTxnMarkerRequest(*pod.producer, False, 1)
    marked = AskedCommit(marker)
    pod.groups.shard.submit(marker, marked)
    pod.turn(pod.groups)
    assert marked.got == [m.WriteTxnMarkerResponse(0)]
    pod.turn(pod.transactions)
    pod.turn(pod.groups)
    assert asked.code == ErrorCode.INVALID_TXN_STATE
    again = pod.commit(ADDED_BEFORE)
    pod.turn(pod.transactions)
    pod.turn(pod.groups)
    assert again.code == ErrorCode.NONE, "asked for after the marker"


def test_commit_is_refused_if_the_leadership_has_changed_meanwhile(pod: Pod) -> None:
    asked = pod.commit(ADDED_BY_ITSELF)
    pod.shards[0] = World().shard
    pod.turn(pod.transactions)
    assert asked.code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("barrier", [None, Held()])
def test_commit_does_not_wait_for_an_election_in_which_it_would_run_unasked(barrier: Held | None) -> None:
    pod = Pod(barrier)
    del pod.shards[0]
    asked = pod.commit(ADDED_BEFORE)
    assert (asked.code, pod.early) == (ErrorCode.NOT_COORDINATOR, [])


def test_commit_is_held_until_the_markers_of_before_are_here() -> None:
    barrier = Held()
    pod = Pod(barrier)
    asked = pod.commit(ADDED_BEFORE)
    pod.turn(pod.groups)
    assert not asked.got
    barrier.open()
    pod.turn(pod.groups)
    assert asked.code == ErrorCode.NONE


def test_commit_that_was_held_does_not_wait_for_an_election_either() -> None:
    barrier = Held()
    pod = Pod(barrier)
    asked = pod.commit(ADDED_BEFORE)
    del pod.shards[0]
    barrier.open()
    assert (asked.code, pod.early) == (ErrorCode.NOT_COORDINATOR, [])


def test_old_epoch_is_told_so_in_the_words_of_a_group_coordinator(pod: Pod) -> None:
    pod.producer = (pod.producer[0], 9)
    asked = pod.commit(ADDED_BY_ITSELF)
    pod.turn(pod.transactions)
    assert asked.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_without_transaction_partitions_nobody_is_asked(pod: Pod) -> None:
    pod.view.update(msgspec.structs.replace(IMAGE, version=2, transaction_partitions=0))
    asked = pod.commit(ADDED_BEFORE)
    pod.turn(pod.groups)
    assert asked.code == ErrorCode.NONE


async def test_coordinator_that_cannot_be_reached_makes_the_client_ask_again(pod: Pod) -> None:
    leaders = (PartitionLeader(0, 0, 1), PartitionLeader(NUMBER, 1, 2))
    pod.view.update(msgspec.structs.replace(IMAGE, version=2, leaders=leaders))
    del pod.shards[NUMBER]
    asked = pod.commit(ADDED_BY_ITSELF)
    async with asyncio.timeout(20):
        while not asked.got:
            await asyncio.sleep(0.001)
    assert asked.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
