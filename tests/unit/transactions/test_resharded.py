"""A partition that a re-shard has filled: what the old one had decided goes on there, and nothing in the old one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest_asyncio
from tests.support.replicas import LIMIT_S, ReplicaPod, ReplicaPods
from tests.unit.transactions.harness import OFFSETS
from tests.unit.transactions.test_on_the_runtime import GROUP_PARTITION, HeldMarkers, ask_pod, begin, machine

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.status import replica_status
from muster_coordinator.podapi.models import OpenTransactions
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.transaction_log import encode_transaction_key, encode_transaction_value
from muster_coordinator.requests import transactions as m
from muster_coordinator.shard.fencing import Fencing
from muster_coordinator.transactions.coordinator import TransactionCoordinator

NewPods = Callable[..., Awaitable[ReplicaPods]]
RESHARD = 7


def fencing(pod: ReplicaPod) -> Fencing:
    return Fencing(pod.up.shards, lambda partition: None)


def states(pod: ReplicaPod) -> TransactionCoordinator:
    found = pod.shard().machine
    assert isinstance(found, TransactionCoordinator)
    return found


def log_of(pod: ReplicaPod) -> bytes:
    """As the pipeline writes it."""
    ids = states(pod).durable_state().ids
    records = [(encode_transaction_key(name), encode_transaction_value(value)) for name, (_, value) in ids.items()]
    return encode_batch(records, base_offset=0, leader_epoch=0, timestamp_ms=1234)


@pytest_asyncio.fixture
async def filled(new_pods: NewPods, tmp_path: Path) -> AsyncIterator[tuple[ReplicaPod, ReplicaPod, HeldMarkers]]:
    """The closed partition, where "tx" has decided to commit and "open" goes on, and the new one, closed still, with
    all of it. The markers are those that the new one asks for."""
    before, after = HeldMarkers(), HeldMarkers()
    (old,) = (await new_pods(1, new_machine=partial(machine, before))).pods
    producer = await begin(old)
    await begin(old, "open")
    await ask_pod(old, m.EndTxnRequest("tx", *producer, True, 5))
    await fencing(old).close(0, RESHARD, importing=False)
    pods = ReplicaPods(tmp_path / "new", new_machine=partial(machine, after))
    await pods.start()
    await pods.elect(0, bootstrap=True)
    await fencing(pods[0]).close(0, RESHARD, importing=True)
    await fencing(pods[0]).take_in(0, RESHARD, 0, log_of(old), last=True)
    yield old, pods[0], after
    await pods.stop()


async def test_decision_gets_its_markers_when_the_new_partition_opens(
    filled: tuple[ReplicaPod, ReplicaPod, HeldMarkers],
) -> None:
    _, new, markers = filled
    assert markers.asked == []
    await fencing(new).open(0, RESHARD)
    async with asyncio.timeout(LIMIT_S):
        while not markers.asked:
            await ask_pod(new, m.ListTransactionsRequest())
    (asked,) = markers.asked
    assert (asked.transactional_id, asked.committed) == ("tx", True)
    assert asked.topics == ((OFFSETS, (GROUP_PARTITION,)),)
    new.shard().notify(m.MarkersWritten("tx", asked.prepared_at, ((OFFSETS, ((GROUP_PARTITION, 0),)),)))
    assert (await ask_pod(new, m.DescribeTransactionRequest("tx"))).state == "CompleteCommit"


async def test_marker_that_is_acknowledged_late_changes_nothing_in_the_closed_partition(
    filled: tuple[ReplicaPod, ReplicaPod, HeldMarkers],
) -> None:
    old, _, _ = filled
    before = states(old).durable_state()
    prepared_at = before.ids["tx"][0]
    old.shard().notify(m.MarkersWritten("tx", prepared_at, ((OFFSETS, ((GROUP_PARTITION, 0),)),)))
    assert await ask_pod(old, m.DescribeTransactionRequest("tx")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert states(old).durable_state() == before


async def test_open_transaction_goes_on_with_its_producer_in_the_new_partition_only(
    filled: tuple[ReplicaPod, ReplicaPod, HeldMarkers],
) -> None:
    old, new, _ = filled
    value = states(old).durable_state().ids["open"][1]
    await fencing(new).open(0, RESHARD)
    producer = (value.producer_id, value.producer_epoch)
    assert (await ask_pod(new, m.EndTxnRequest("open", *producer, False, 5))).error_code == ErrorCode.NONE
    assert await ask_pod(old, m.EndTxnRequest("open", *producer, True, 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_leader_tells_what_is_open_by_the_image_that_lets_none_begin(new_pods: NewPods) -> None:
    pods = await new_pods(3, new_machine=partial(machine, HeldMarkers()))
    await begin(pods[0])
    image = (3, 8)

    def told() -> OpenTransactions | None:
        status = replica_status(pods[0].up, 0, image)
        assert status is not None
        return status.open_transactions

    assert told() == OpenTransactions(*image, 1, ("tx",))
    shown = replica_status(pods[0].up, 0)
    assert shown is not None
    assert shown.open_transactions is None
    pods.network.isolate("pod-0")
    pods[0].ask(m.InitProducerIdRequest("other", 60_000))
    await pods.until(lambda: told() is None)  # what it has appended since could still be lost
    follower = replica_status(pods[1].up, 0, image)
    assert follower is not None
    assert follower.open_transactions is None
