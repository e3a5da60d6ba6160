"""A mirror of a real Kafka's `__consumer_offsets`: what it answers about groups is what Kafka answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.mirrored import groups_of, listed, until
from tests.support.pod import SoloPod

from muster_coordinator.errors import ErrorCode
from muster_coordinator.podapi.mirror import MirrorAnswer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

PARTITIONS = 3
TOPICS = {"t": 4, "u": 1}
KAFKA = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "100",
    "group.coordinator.rebalance.protocols": "classic",
    "offsets.retention.check.interval.ms": "500",
    "transaction.partition.verification.enable": "false",
}
CALL_S = 30.0


async def status(pod: SoloPod) -> MirrorAnswer:
    return msgspec.json.decode(await pod.api.read("/v1/mirror", {}), type=MirrorAnswer)


async def caught_up(pod: SoloPod) -> bool:
    answer = await status(pod)
    return len(answer.partitions) == PARTITIONS and all(p.complete and p.lag == 0 for p in answer.partitions)


async def equal(broker: KafkaBroker, pod: SoloPod, names: set[str]) -> bool:
    return await groups_of(broker.port, names) == await groups_of(pod.kafka_port, names)


async def assert_mirrored(broker: KafkaBroker, pod: SoloPod) -> set[str]:
    """Wait until everything that Kafka says of its groups is what the mirror says. Returns their names."""
    of_kafka = await listed(broker.port)
    assert of_kafka
    names = {name for name, _ in of_kafka} | {"there-is-no-such-group"}
    try:
        await until(lambda: equal(broker, pod, names), "equal groups", 20)
    except AssertionError:
        assert await groups_of(pod.kafka_port, names) == await groups_of(broker.port, names)
    assert await listed(pod.kafka_port) == of_kafka
    return names


def consumer(port: int, group: str, **more: Any) -> Consumer:
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": group, "enable.auto.commit": False}
    return Consumer(settings | {"auto.offset.reset": "earliest", "session.timeout.ms": 10_000} | more)


async def assigned(member: Consumer) -> None:
    async def has() -> bool:
        await asyncio.to_thread(member.poll, 0.1)
        return bool(member.assignment())

    await until(has, "an assignment")


def transact(port: int, group: str, offset: int, *, commit: bool, end: bool = True) -> Producer:
    """A transaction that commits `offset` of t-0 for the group."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": f"{group}-{offset}"})
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    member = consumer(port, group)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], member.consumer_group_metadata(), CALL_S)
    member.close()
    if end:
        (producer.commit_transaction if commit else producer.abort_transaction)(CALL_S)
    return producer


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[KafkaBroker]:
    async with KafkaBroker(tmp_path / "upstream", KAFKA, TOPICS) as running:
        yield running


def mirroring(directory: Path, broker: KafkaBroker, *config: str) -> SoloPod:
    settings = [f"muster.upstream.bootstrap=127.0.0.1:{broker.port}", *config]
    return SoloPod(directory / "data", PARTITIONS, TOPICS, settings)


async def commit(port: int, group: str, offset: int) -> int:
    client = await KafkaClient.connect(port)
    try:
        return await client.commit(group, offset)
    finally:
        await client.close()


async def test_groups_members_transactions_and_tombstones_are_those_of_kafka(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    for number in range(20):
        assert await commit(broker.port, f"simple-{number}", number) == 0
    member = consumer(broker.port, "stable")
    member.subscribe(["t"])
    await assigned(member)
    async with mirroring(tmp_path, broker) as pod:
        await until(lambda: caught_up(pod), "the mirror at the end")
        assert len(await assert_mirrored(broker, pod)) >= 21

        member.commit(offsets=[TopicPartition("t", 0, 7, "a note")], asynchronous=False)
        await asyncio.to_thread(lambda: transact(broker.port, "committed", 5, commit=True))
        await asyncio.to_thread(lambda: transact(broker.port, "aborted", 6, commit=False))
        open_transaction = await asyncio.to_thread(lambda: transact(broker.port, "open", 8, commit=True, end=False))
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
        for future in admin.delete_consumer_groups(["simple-3", "simple-4"]).values():
            await asyncio.to_thread(future.result, CALL_S)
        names = await assert_mirrored(broker, pod)
        assert {"committed", "open", "stable"} <= names
        assert not {"simple-3", "simple-4"} & names

        open_transaction.commit_transaction(CALL_S)
        await asyncio.to_thread(member.close)
        await assert_mirrored(broker, pod)
        assert await commit(pod.kafka_port, "simple-5", 99) == ErrorCode.NOT_COORDINATOR
        assert await commit(pod.kafka_port, "new", 1) == ErrorCode.NOT_COORDINATOR
        await assert_mirrored(broker, pod)
