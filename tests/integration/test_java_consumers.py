"""Unchanged consumers of the new protocol of Kafka's Java client 4.3: at a pod, and through the gateway with records of
a real Kafka. They join, share, leave, are killed, restart as static members, and subscribe by a regular expression.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from tests.support.group_configs import set_group_configs
from tests.support.java_consumers import JavaConsumer
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster
from tests.support.owners import Owned, owned_twice
from tests.support.pod import SoloPod

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(1200),
]

TOPICS = {"in": 4, "in-more": 2, "out": 1}
PARTITIONS = TOPICS["in"]
RECORDS = 200
WAIT_S = 120.0
POLL_S = 0.1
QUICK = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "100",
    # A static member has the time that a JVM may need to start again; the group of the one that is killed has less.
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.min.session.timeout.ms": "5000",
}
CONFIG = [f"{name}={value}" for name, value in QUICK.items()]


def of(topic: str) -> set[Owned]:
    return {(topic, partition) for partition in range(TOPICS[topic])}


class Site:
    """`reads`: whether there are records, which a pod has none of."""

    def __init__(self, bootstrap: str, reads: bool) -> None:
        self.bootstrap = bootstrap
        self._reads = reads
        self._produced = 0
        self._members: list[JavaConsumer] = []

    def member(self, group: str, topic: str = "in", instance: str | None = None) -> JavaConsumer:
        member = JavaConsumer(self.bootstrap, topic, group, instance)
        self._members.append(member)
        return member

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not await asyncio.to_thread(holds):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            said = [(sorted(each.owns), list(each.said)) for each in self._members]
            raise AssertionError(f"{what}, in vain; what members own and said last: {said}") from None

    async def shared(self, *members: JavaConsumer, whole: set[Owned] | None = None) -> None:
        """The members own all, evenly, and no partition is two members'."""
        wanted = of("in") if whole is None else whole

        def is_shared() -> bool:
            owned = [member.owns for member in members]
            sizes = [len(each) for each in owned]
            return set().union(*owned) == wanted and sum(sizes) == len(wanted) and max(sizes) - min(sizes) <= 1

        await self.until(is_shared, f"{len(members)} members share {len(wanted)} partitions")

    async def read(self, group: str, *members: JavaConsumer) -> None:
        """New records are read by these members, and committed."""
        if not self._reads:
            await self.until(lambda: len(self._committed(group)) == PARTITIONS, f"{group} has committed")
            return
        values = [f"{group}-{number}" for number in range(self._produced, self._produced + RECORDS)]
        self._produced += RECORDS
        await asyncio.to_thread(self._produce, values)

        def are_read() -> bool:
            return set(values) <= {value for member in members for value in tuple(member.values)}

        await self.until(are_read, f"{group} reads {len(values)} records")
        await self.until(lambda: sum(self._committed(group).values()) == self._produced, f"{group} commits them")

    def _produce(self, values: list[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})
        for number, value in enumerate(values):
            producer.produce("in", value, partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0

    def _committed(self, group: str) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = [ConsumerGroupTopicPartitions(group)]
        (future,) = admin.list_consumer_group_offsets(asked, request_timeout=WAIT_S).values()
        found = future.result().topic_partitions
        return {each.partition: each.offset for each in found if each.topic == "in"}

    def end(self) -> None:
        for member in self._members:
            if member.alive:
                member.kill()


async def members_come_go_and_are_killed(site: Site) -> None:
    group = "m-shared"
    await set_group_configs(site.bootstrap, group, {"consumer.session.timeout.ms": "10000"})
    first, second = site.member(group), site.member(group)
    await site.shared(first, second)
    await site.read(group, first, second)
    first.kill()
    await site.shared(second)
    await site.read(group, second)
    third = site.member(group)
    await site.shared(second, third)
    await site.read(group, second, third)
    await asyncio.to_thread(second.stop)
    await site.shared(third)
    await site.read(group, third)
    await asyncio.to_thread(third.stop)
    assert not owned_twice([first, second, third])


async def static_member_restarts(site: Site) -> None:
    group = "m-static"
    one, two = site.member(group, instance="one"), site.member(group, instance="two")
    await site.shared(one, two)
    before, of_two = one.owns, len(two.events)
    await asyncio.to_thread(one.stop)
    again = site.member(group, instance="one")
    await site.until(lambda: again.owns == before, "the static member has its partitions again")
    assert len(two.events) == of_two, "the other member does not notice"
    for member in (again, two):
        await asyncio.to_thread(member.stop)


async def expression_finds_its_topics(site: Site) -> None:
    group = "m-expression"
    first, second = site.member(group, "^in.*"), site.member(group, "^in.*")
    await site.shared(first, second, whole=of("in") | of("in-more"))
    await asyncio.to_thread(first.stop)
    await site.shared(second, whole=of("in") | of("in-more"))
    await asyncio.to_thread(second.stop)
    assert not owned_twice([first, second])


async def run(site: Site) -> None:
    try:
        await members_come_go_and_are_killed(site)
        await static_member_restarts(site)
        await expression_finds_its_topics(site)
    finally:
        await asyncio.to_thread(site.end)


async def test_java_consumers_at_a_pod(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", partitions=5, topics=TOPICS, config=CONFIG) as pod:
        await run(Site(f"127.0.0.1:{pod.kafka_port}", reads=False))


async def versions_of_offset_commit(bootstrap: str) -> int:
    m = schema("api_versions", 3)
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    answer: Any = await client.call(m.ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    await client.close()
    return next(int(each.max_version) for each in answer.api_keys if each.api_key == 8)


async def test_java_consumers_through_the_gateway(tmp_path: Path) -> None:
    options = ["--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
    options += [word for each in CONFIG for word in ("--config", each)]
    async with KafkaCluster(tmp_path / "kafka", TOPICS, brokers=1) as kafka:
        with LocalCluster(tmp_path / "muster", *options, "--upstream", kafka.bootstrap) as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            bootstrap = line.split()[1].removeprefix("bootstrap=")
            await asyncio.to_thread(muster.wait_line, "ready")
            assert await versions_of_offset_commit(bootstrap) == 10  # by topic ids, which these consumers use
            await run(Site(bootstrap, reads=True))
