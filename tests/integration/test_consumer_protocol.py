"""Consumers of the new protocol (KIP-848) of librdkafka against a real pod: share, commit, resume, restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.test_real_clients import PARTITIONS, TOPIC, confluent_consumer, until
from tests.support.pod import SoloPod
from tests.support.replicated import ReplicatedPods

pytestmark = pytest.mark.integration

OTHER = "orders-eu"
QUICK = ["group.consumer.heartbeat.interval.ms=200", "group.consumer.assignment.interval.ms=100"]


@pytest_asyncio.fixture
async def pod(tmp_path: Path) -> AsyncIterator[SoloPod]:
    topics = {TOPIC: PARTITIONS, OTHER: 1, "bills": 1}
    async with SoloPod(tmp_path / "data", partitions=5, topics=topics, config=QUICK) as pod:
        yield pod


def new_consumer(pod: SoloPod, group: str, **more: Any) -> Consumer:
    return confluent_consumer(pod, group, **{"group.protocol": "consumer", **more})


def assigned(*consumers: Consumer) -> list[set[tuple[str, int]]]:
    return [{(each.topic, each.partition) for each in consumer.assignment()} for consumer in consumers]


async def test_consumers_share_a_topic_and_a_later_one_resumes(pod: SoloPod) -> None:
    def scenario() -> None:
        consumers = [new_consumer(pod, "shared") for _ in range(2)]
        consumers[0].subscribe([TOPIC])
        until(lambda: len(consumers[0].assignment()) == PARTITIONS, lambda: consumers[0].poll(0.1))
        consumers[1].subscribe([TOPIC])
        until(
            lambda: [len(each) for each in assigned(*consumers)] == [2, 2],
            lambda: [c.poll(0.1) for c in consumers],
        )
        assert set().union(*assigned(*consumers)) == {(TOPIC, each) for each in range(PARTITIONS)}
        for consumer in consumers:
            offsets = [TopicPartition(TOPIC, p.partition, 100 + p.partition) for p in consumer.assignment()]
            consumer.commit(offsets=offsets, asynchronous=False)
        consumers[0].close()
        until(lambda: len(consumers[1].assignment()) == PARTITIONS, lambda: consumers[1].poll(0.1))
        consumers[1].close()
        late = new_consumer(pod, "shared")
        late.subscribe([TOPIC])
        until(lambda: len(late.assignment()) == PARTITIONS, lambda: late.poll(0.1))
        committed = late.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=20)
        assert [c.offset for c in committed] == [100, 101, 102, 103]
        late.close()

    await asyncio.to_thread(scenario)


async def test_expression_finds_its_topics(pod: SoloPod) -> None:
    def scenario() -> None:
        consumer = new_consumer(pod, "expression")
        consumer.subscribe(["^ord.*"])
        until(lambda: len(consumer.assignment()) == PARTITIONS + 1, lambda: consumer.poll(0.1))
        assert {topic for topic, _ in assigned(consumer)[0]} == {TOPIC, OTHER}
        consumer.close()

    await asyncio.to_thread(scenario)


async def test_static_member_restarts_to_its_partitions(pod: SoloPod) -> None:
    def scenario() -> None:
        both = [new_consumer(pod, "static", **{"group.instance.id": f"machine-{each}"}) for each in (1, 2)]
        for consumer in both:
            consumer.subscribe([TOPIC])
        until(lambda: [len(each) for each in assigned(*both)] == [2, 2], lambda: [c.poll(0.1) for c in both])
        before, others = assigned(*both)
        both[0].close()  # a static member leaves to come back
        again = new_consumer(pod, "static", **{"group.instance.id": "machine-1"})
        again.subscribe([TOPIC])
        until(lambda: len(again.assignment()) == 2, lambda: [again.poll(0.1), both[1].poll(0.1)])
        assert assigned(again, both[1]) == [before, others]
        again.close()
        both[1].close()

    await asyncio.to_thread(scenario)


async def test_admin_lists_describes_and_deletes_the_group_and_a_classic_consumer_is_refused(tmp_path: Path) -> None:
    """Refused, because the policy says so."""

    def scenario(pod: SoloPod) -> None:
        consumer = new_consumer(pod, "described")
        consumer.subscribe([TOPIC])
        until(lambda: len(consumer.assignment()) == PARTITIONS, lambda: consumer.poll(0.1))
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{pod.kafka_port}"})
        listed = admin.list_consumer_groups(request_timeout=20).result().valid
        assert [(g.group_id, g.type) for g in listed] == [("described", ConsumerGroupType.CONSUMER)]
        described = admin.describe_consumer_groups(["described"], request_timeout=20)["described"].result()
        assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        (member,) = described.members
        for shown in (member.assignment, member.target_assignment):
            assert {(p.topic, p.partition) for p in shown.topic_partitions} == assigned(consumer)[0]
        classic = confluent_consumer(pod, "described")
        classic.subscribe([TOPIC])
        errors: list[int] = []

        def poll() -> None:
            message = classic.poll(0.1)
            error = None if message is None else message.error()
            if error is not None:
                errors.append(error.code())

        until(lambda: errors, poll)
        assert errors[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        classic.close()
        with pytest.raises(KafkaException):
            admin.delete_consumer_groups(["described"], request_timeout=20)["described"].result()
        consumer.close()
        until(
            lambda: admin.list_consumer_groups(request_timeout=20, states={ConsumerGroupState.EMPTY}).result().valid,
            lambda: None,
        )
        admin.delete_consumer_groups(["described"], request_timeout=20)["described"].result()
        assert not admin.list_consumer_groups(request_timeout=20).result().valid

    config = [*QUICK, "group.consumer.migration.policy=disabled"]
    async with SoloPod(tmp_path / "data", partitions=5, topics={TOPIC: PARTITIONS}, config=config) as pod:
        await asyncio.to_thread(scenario, pod)


async def test_members_outlive_their_leader_and_the_next_one_knows_them(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path, partitions=1, config=QUICK) as pods:
        servers = {"bootstrap.servers": ",".join(f"127.0.0.1:{pod.kafka_port}" for pod in pods.pods)}
        first, second, third = [
            Consumer({**servers, "group.id": "g", "group.protocol": "consumer", "enable.auto.commit": False})
            for _ in range(3)
        ]

        def shared_by(*consumers: Consumer) -> None:
            """All 10 partitions are, evenly, and nobody has one that another has."""
            for consumer in consumers:
                consumer.subscribe(["t"])
            least = 10 // len(consumers)

            def is_even() -> bool:
                owned = assigned(*consumers)
                return sum(map(len, owned)) == 10 and min(map(len, owned)) == least

            until(is_even, lambda: [c.poll(0.05) for c in consumers])
            assert len(set().union(*assigned(*consumers))) == 10

        def commit(consumer: Consumer, offset: int) -> None:
            offsets = [TopicPartition("t", each.partition, offset) for each in consumer.assignment()]
            consumer.commit(offsets=offsets, asynchronous=False)

        await asyncio.to_thread(shared_by, first, second)
        await asyncio.to_thread(commit, first, 5)
        before = assigned(first, second)
        pods.pods[0].kill()
        await pods.elect(0, 1)
        await asyncio.to_thread(commit, second, 6)  # with the member epoch that the dead leader gave
        assert assigned(first, second) == before
        await asyncio.to_thread(shared_by, first, second, third)
        found = await asyncio.to_thread(third.committed, [TopicPartition("t", each) for each in range(10)], 20)
        assert {(each.topic, each.partition): each.offset for each in found} == {
            **dict.fromkeys(before[0], 5),
            **dict.fromkeys(before[1], 6),
        }
        for consumer in (first, second, third):
            await asyncio.to_thread(consumer.close)
