"""Unchanged Kafka clients of three makers against a real pod: find the coordinator, join, commit, resume, describe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyPartition
from tests.support.kafka_python import METADATA
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

TOPIC = "orders"
PARTITIONS = 4
DEADLINE_S = 60.0


@pytest_asyncio.fixture
async def pod(tmp_path: Path) -> AsyncIterator[SoloPod]:
    config = ["group.initial.rebalance.delay.ms=100"]
    async with SoloPod(tmp_path / "data", partitions=5, topics={TOPIC: PARTITIONS}, config=config) as pod:
        yield pod


def until(condition: Callable[[], Any], step: Callable[[], Any]) -> None:
    """Repeat `step` (a poll that waits a little by itself) until `condition` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        step()


def confluent_consumer(pod: SoloPod, group: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{pod.kafka_port}",
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **more,
        }
    )


def two_confluent_consumers_share_and_resume(pod: SoloPod, group: str, strategy: str) -> None:
    consumers = [confluent_consumer(pod, group, **{"partition.assignment.strategy": strategy}) for _ in range(2)]
    try:
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        until(
            lambda: [len(c.assignment()) for c in consumers] == [2, 2],
            lambda: [c.poll(0.1) for c in consumers],
        )
        for consumer in consumers:
            offsets = [TopicPartition(TOPIC, p.partition, 100 + p.partition) for p in consumer.assignment()]
            consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        for consumer in consumers:
            consumer.close()
    late = confluent_consumer(pod, group)
    late.subscribe([TOPIC])
    until(lambda: len(late.assignment()) == PARTITIONS, lambda: late.poll(0.1))
    committed = late.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=20)
    assert [c.offset for c in committed] == [100, 101, 102, 103]
    late.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_confluent_consumers_share_a_topic_and_a_later_one_resumes(pod: SoloPod, strategy: str) -> None:
    await asyncio.to_thread(two_confluent_consumers_share_and_resume, pod, f"confluent-{strategy}", strategy)


async def test_confluent_static_member_restarts_without_a_rebalance(pod: SoloPod) -> None:
    def scenario() -> None:
        group, static = "static", {"group.instance.id": "machine-1"}
        first = confluent_consumer(pod, group, **static)
        other = confluent_consumer(pod, group, **{"group.instance.id": "machine-2"})
        for consumer in (first, other):
            consumer.subscribe([TOPIC])
        both = [first, other]
        until(lambda: [len(c.assignment()) for c in both] == [2, 2], lambda: [c.poll(0.1) for c in both])
        before = {p.partition for p in first.assignment()}
        first.close()  # a static member does not leave
        again = confluent_consumer(pod, group, **static)
        again.subscribe([TOPIC])
        until(lambda: len(again.assignment()) == 2, lambda: [again.poll(0.1), other.poll(0.1)])
        assert {p.partition for p in again.assignment()} == before
        again.close()
        other.close()

    await asyncio.to_thread(scenario)


async def test_confluent_admin_lists_describes_and_deletes_groups(pod: SoloPod) -> None:
    def scenario() -> None:
        group = "described"
        consumer = confluent_consumer(pod, group)
        consumer.subscribe([TOPIC])
        until(lambda: len(consumer.assignment()) == PARTITIONS, lambda: consumer.poll(0.1))
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{pod.kafka_port}"})
        listed = admin.list_consumer_groups(request_timeout=20).result()
        assert group in {g.group_id for g in listed.valid}
        described = admin.describe_consumer_groups([group], request_timeout=20)[group].result()
        assert described.state.name == "STABLE"
        assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
        consumer.close()
        until(
            lambda: admin.describe_consumer_groups([group], request_timeout=20)[group].result().state.name == "EMPTY",
            lambda: None,
        )
        admin.delete_consumer_groups([group], request_timeout=20)[group].result()
        assert group not in {g.group_id for g in admin.list_consumer_groups(request_timeout=20).result().valid}

    await asyncio.to_thread(scenario)


async def test_kafka_python_consumer_joins_commits_and_resumes(pod: SoloPod) -> None:
    def scenario() -> None:
        options = {
            "bootstrap_servers": f"127.0.0.1:{pod.kafka_port}",
            "group_id": "kafka-python",
            "enable_auto_commit": False,
            **METADATA,
        }
        consumer = KafkaConsumer(TOPIC, **options)
        until(lambda: len(consumer.assignment()) == PARTITIONS, lambda: consumer.poll(100))
        consumer.commit({PyPartition(TOPIC, 1): OffsetAndMetadata(55, "note", -1)})
        consumer.close()
        again = KafkaConsumer(TOPIC, **options)
        assert again.committed(PyPartition(TOPIC, 1)) == 55
        again.close()
        admin = KafkaAdminClient(bootstrap_servers=options["bootstrap_servers"])
        assert "kafka-python" in str(admin.list_groups() if hasattr(admin, "list_groups") else [])
        admin.close()

    await asyncio.to_thread(scenario)


async def test_aiokafka_consumer_joins_commits_and_resumes(pod: SoloPod) -> None:
    options = {
        "bootstrap_servers": f"127.0.0.1:{pod.kafka_port}",
        "group_id": "aiokafka",
        "enable_auto_commit": False,
    }
    consumer = AIOKafkaConsumer(TOPIC, **options)
    await consumer.start()
    try:
        assert len(consumer.assignment()) == PARTITIONS
        await consumer.commit({AioPartition(TOPIC, 2): 77})
    finally:
        await consumer.stop()
    again = AIOKafkaConsumer(TOPIC, **options)
    await again.start()
    try:
        assert await again.committed(AioPartition(TOPIC, 2)) == 77
        assert await again.position(AioPartition(TOPIC, 2)) == 77
    finally:
        await again.stop()


async def test_group_goes_on_with_its_members_after_the_pod_was_killed(pod: SoloPod) -> None:
    consumer = confluent_consumer(pod, "survivor", **{"session.timeout.ms": 30_000})
    consumer.subscribe([TOPIC])

    def joined() -> None:
        until(lambda: len(consumer.assignment()) == PARTITIONS, lambda: consumer.poll(0.1))
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)

    await asyncio.to_thread(joined)
    pod.kill()
    await pod.start()

    def went_on() -> None:
        def commit() -> None:
            try:
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, 2)], asynchronous=False)
                done.append(True)
            except Exception as error:
                last.append(error)
                consumer.poll(0.2)

        done: list[bool] = []
        last: list[Exception] = []
        until(lambda: done, commit)
        assert len(consumer.assignment()) == PARTITIONS, "no rebalance: the members came back from the log"
        consumer.close()

    await asyncio.to_thread(went_on)
    client = await pod.client()
    assert await client.fetch("survivor", TOPIC) == (2, 0)
    await client.close()


async def test_consumers_name_topics_that_are_not_declared(tmp_path: Path) -> None:
    """Those have no id, and clients fetch by name then."""
    config = ["group.initial.rebalance.delay.ms=100"]
    async with SoloPod(tmp_path / "data", config=config, any_topic=True) as pod:

        def scenario() -> None:
            consumer = confluent_consumer(pod, "undeclared")
            consumer.subscribe(["anything"])
            until(lambda: len(consumer.assignment()) == 1, lambda: consumer.poll(0.1))
            consumer.commit(offsets=[TopicPartition("anything", 0, 7)], asynchronous=False)
            assert consumer.poll(1.0) is None, "neither a message nor an error"
            consumer.close()
            again = confluent_consumer(pod, "undeclared")
            again.assign([TopicPartition("anything", 0)])
            assert again.poll(1.0) is None
            assert again.committed([TopicPartition("anything", 0)], timeout=20)[0].offset == 7
            again.close()

        await asyncio.to_thread(scenario)
        fetches = await pod.metric("muster_requests_total", api="Fetch")
        assert 1 <= fetches < 100, "they neither fail to fetch nor spin"
