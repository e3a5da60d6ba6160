"""Unchanged transactional producers against pods that serve transactions. The test plays the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.support.pod import ELECTION_TIMEOUT_S, PodProcess

from muster_coordinator.calls import CallStatus
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader, Peer
from muster_coordinator.podapi.models import Election, ElectionsRequest, ReplicaRequest, ReplicasRequest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

OFFSETS = range(3)
TXN = TRANSACTIONS.numbers[:2]
CALL_S = 60.0
NO_OFFSET = -1001
"""librdkafka's name for it."""
CONFIG = ("group.initial.rebalance.delay.ms=0",)

_T = TypeVar("_T")


class Pods:
    """`coordinator` leads the transaction partitions, `groups` those of offsets."""

    def __init__(self, directory: Path) -> None:
        self.coordinator = PodProcess("pod-0", directory / "a" / "data", CONFIG)
        self.groups = PodProcess("pod-1", directory / "b" / "data", CONFIG)
        self.epoch = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.groups.kafka_port}"

    async def elect(self) -> None:
        """Both lead in a new epoch, and know of each other."""
        self.epoch += 1
        for pod, numbers in ((self.coordinator, TXN), (self.groups, OFFSETS)):
            created = await pod.api.create_replicas(
                ReplicasRequest(1, tuple(ReplicaRequest(number) for number in numbers)), timeout_s=60
            )
            call = ElectionsRequest(
                tuple(
                    Election(each.partition, self.epoch, (each.log_id,), bootstrap=not each.used)
                    for each in created.results
                )
            )
            async with asyncio.timeout(ELECTION_TIMEOUT_S):
                while True:
                    answer = await pod.api.elect(call, timeout_s=ELECTION_TIMEOUT_S)
                    if all(each.status is CallStatus.ACCEPTED for each in answer.results):
                        break
        both = (self.coordinator, self.groups)
        image = MetadataImage(
            token=1,
            version=self.epoch,
            cluster_id="test",
            brokers=tuple(Broker(pod.node_id, "127.0.0.1", pod.kafka_port, pod.name) for pod in both),
            offsets_partitions=len(OFFSETS),
            leaders=(
                *(PartitionLeader(number, 1, self.epoch) for number in OFFSETS),
                *(PartitionLeader(number, 0, self.epoch) for number in TXN),
            ),
            topics=(DeclaredTopic("t", 2),),
            peers=tuple(Peer(pod.name, "127.0.0.1", pod.peer_port) for pod in both),
            transaction_partitions=len(TXN),
        )
        for pod in both:
            await pod.api.update_metadata(image)


@pytest_asyncio.fixture
async def pods(tmp_path: Path) -> AsyncIterator[Pods]:
    pods = Pods(tmp_path)
    async with pods.coordinator, pods.groups:
        await pods.elect()
        yield pods


async def in_thread(call: Callable[..., _T], *arguments: Any) -> _T:
    return await asyncio.to_thread(call, *arguments)


class Application:
    """Reads the group's offset, and copies: each transaction commits the next one."""

    def __init__(self, pods: Pods, name: str = "tx") -> None:
        common = {"bootstrap.servers": pods.bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        self.producer = Producer(common | {"transactional.id": name, "transaction.timeout.ms": 60_000})
        self.consumer = Consumer(common | {"group.id": "g", "enable.auto.commit": False})

    def init(self) -> None:
        self.producer.init_transactions(CALL_S)

    def begin(self, offset: int) -> None:
        self.producer.begin_transaction()
        offsets = [TopicPartition("t", 0, offset)]
        self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), CALL_S)

    def end(self, committed: bool) -> None:
        (self.producer.commit_transaction if committed else self.producer.abort_transaction)(CALL_S)

    def committed(self) -> int:
        """Waits for transactions that are about to end (KIP-447)."""
        (found,) = self.consumer.committed([TopicPartition("t", 0)], CALL_S)
        offset: int = found.offset
        return offset

    def close(self) -> None:
        self.consumer.close()


@pytest.mark.parametrize("before_the_end", [True, False])
async def test_offsets_are_those_of_the_committed_transactions_though_pods_are_killed(
    pods: Pods, before_the_end: bool
) -> None:
    """The pod with the groups, and the one with the transactions, are killed after the commit of offsets, or right
    after the decision is answered. The application then starts again, as one that has lost its coordinators may do.
    """
    expected = NO_OFFSET
    for number in range(4):
        application = Application(pods)
        await in_thread(application.init)
        offset, committed, killed = 100 + number, number % 3 != 1, (pods.groups, pods.coordinator)[number % 2]
        await in_thread(application.begin, offset)
        if before_the_end:
            await restart(pods, killed)
        await in_thread(application.end, committed)
        if not before_the_end:
            await restart(pods, killed)
        expected = offset if committed else expected
        await until_committed(application, expected)
        application.close()


async def restart(pods: Pods, killed: PodProcess) -> None:
    killed.kill()
    await killed.start()
    await pods.elect()


async def until_committed(application: Application, offset: int) -> None:
    async with asyncio.timeout(CALL_S):
        while await in_thread(application.committed) != offset:
            await asyncio.sleep(0.02)


async def test_second_producer_fences_the_first(pods: Pods) -> None:
    first, second = Application(pods), Application(pods)
    await in_thread(first.init)
    await in_thread(first.begin, 5)
    await in_thread(second.init)
    with pytest.raises(KafkaException) as fenced:
        await in_thread(first.end, True)
    assert fenced.value.args[0].fatal()
    await in_thread(second.begin, 7)
    await in_thread(second.end, True)
    await until_committed(second, 7)
    first.close()
    second.close()


async def test_data_partition_is_refused_when_it_is_added(pods: Pods) -> None:
    application = Application(pods)
    await in_thread(application.init)
    await in_thread(application.begin, 5)
    application.producer.produce("t", b"a record")
    with pytest.raises(KafkaException, match="Invalid topic") as refused:
        await in_thread(application.end, True)
    assert refused.value.args[0].txn_requires_abort()
    await in_thread(application.end, False)
    assert await in_thread(application.committed) == NO_OFFSET
    application.close()
