"""Classic members and members of the new protocol of librdkafka in one group: an application is moved while it runs, to
the new protocol and back, also over failovers. No partition is owned by two, and no commit is lost.

`make kill-mixed` kills the leader 50 times.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.test_consumer_protocol import QUICK
from tests.integration.test_real_clients import PARTITIONS, TOPIC, until
from tests.support.pod import SoloPod
from tests.support.replicated import ReplicatedPods

pytestmark = pytest.mark.integration

GROUP = "moved"
NEW = {"group.protocol": "consumer"}
KILLS = int(os.environ.get("KILLS", "3"))


class Owners:
    """What members were told that they own, as their callbacks say."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._owners: dict[tuple[str, int], str] = {}
        self._members: dict[str, Consumer] = {}
        self.wrong: list[str] = []

    def come(self, name: str, topic: str, **settings: str) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": GROUP, "enable.auto.commit": False, **settings}
        )
        self._members[name] = consumer

        def given(_: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                other = self._owners.setdefault((each.topic, each.partition), name)
                if other != name:
                    self.wrong.append(f"{name} was given {each.partition}, which {other} has")

        def taken(_: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                if self._owners.pop((each.topic, each.partition), name) != name:
                    self.wrong.append(f"{name} gave {each.partition} back, which it did not have")

        consumer.subscribe([topic], on_assign=given, on_revoke=taken, on_lost=taken)

    def go(self, name: str) -> None:
        self._members.pop(name).close()

    def poll(self) -> None:
        for consumer in self._members.values():
            consumer.poll(0.02)

    def share(self, count: int, *, group_type: ConsumerGroupType) -> None:
        """Poll until the members share so many partitions evenly, in a group of this type, and commit all of them."""
        least = count // len(self._members)
        until(lambda: self._is_shared(count, least) and self.group_type() is group_type, self.poll)
        assert not self.wrong, self.wrong

    def _is_shared(self, count: int, least: int) -> bool:
        owned = [len(consumer.assignment()) for consumer in self._members.values()]
        return sum(owned) == count == len(self._owners) and min(owned) >= least

    def group_type(self) -> ConsumerGroupType:
        admin = AdminClient({"bootstrap.servers": self._servers})
        (listed,) = admin.list_consumer_groups(request_timeout=20).result().valid
        found: ConsumerGroupType = listed.type
        return found

    def commit(self, offset: int) -> None:
        """Every member commits what it owns."""
        for consumer in self._members.values():
            offsets = [TopicPartition(each.topic, each.partition, offset) for each in consumer.assignment()]
            if offsets:
                consumer.commit(offsets=offsets, asynchronous=False)

    def committed(self, topic: str, count: int) -> set[int]:
        consumer = next(iter(self._members.values()))
        found = consumer.committed([TopicPartition(topic, each) for each in range(count)], timeout=20)
        return {each.offset for each in found}

    def end(self) -> None:
        for name in list(self._members):
            self.go(name)


def classic(strategy: str) -> dict[str, str]:
    return {
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "200",
    }


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_application_moves_to_the_new_protocol_and_back(tmp_path: Path, strategy: str) -> None:
    def scenario(owners: Owners) -> None:
        for name in ("old-1", "old-2"):
            owners.come(name, TOPIC, **classic(strategy))
        owners.share(PARTITIONS, group_type=ConsumerGroupType.CLASSIC)
        owners.commit(1)
        steps: list[tuple[Callable[..., None], str, Any, ConsumerGroupType]] = [
            (owners.come, "new-1", NEW, ConsumerGroupType.CONSUMER),
            (owners.go, "old-1", {}, ConsumerGroupType.CONSUMER),
            (owners.come, "new-2", NEW, ConsumerGroupType.CONSUMER),
            (owners.go, "old-2", {}, ConsumerGroupType.CONSUMER),
            (owners.come, "back-1", classic(strategy), ConsumerGroupType.CONSUMER),
            (owners.go, "new-1", {}, ConsumerGroupType.CONSUMER),
            (owners.come, "back-2", classic(strategy), ConsumerGroupType.CONSUMER),
            (owners.go, "new-2", {}, ConsumerGroupType.CLASSIC),
        ]
        for offset, (step, name, settings, group_type) in enumerate(steps, start=2):
            if settings:
                step(name, TOPIC, **settings)
            else:
                step(name)
            owners.share(PARTITIONS, group_type=group_type)
            owners.commit(offset)
            assert owners.committed(TOPIC, PARTITIONS) == {offset}
        owners.end()

    async with SoloPod(tmp_path / "data", partitions=5, topics={TOPIC: PARTITIONS}, config=QUICK) as pod:
        await asyncio.to_thread(scenario, Owners(f"127.0.0.1:{pod.kafka_port}"))


async def test_group_of_both_protocols_outlives_its_leader(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path, partitions=1, config=QUICK) as pods:
        owners = Owners(",".join(f"127.0.0.1:{pod.kafka_port}" for pod in pods.pods))
        owners.come("old", "t", **classic("cooperative-sticky"))
        await asyncio.to_thread(owners.share, 10, group_type=ConsumerGroupType.CLASSIC)
        owners.come("new", "t", **NEW)
        await asyncio.to_thread(lambda: until(lambda: owners.group_type() is ConsumerGroupType.CONSUMER, owners.poll))
        pods.pods[0].kill()  # the members are on their way to what is meant for them
        await pods.elect(0, 1)
        await asyncio.to_thread(owners.share, 10, group_type=ConsumerGroupType.CONSUMER)
        await asyncio.to_thread(owners.commit, 7)
        assert await asyncio.to_thread(owners.committed, "t", 10) == {7}
        await asyncio.to_thread(owners.go, "new")
        await asyncio.to_thread(owners.share, 10, group_type=ConsumerGroupType.CLASSIC)
        assert await asyncio.to_thread(owners.committed, "t", 10) == {7}
        await asyncio.to_thread(owners.end)


@pytest.mark.timeout(3_600 if KILLS > 3 else 900)
async def test_members_of_both_protocols_come_and_go_while_leaders_are_killed(tmp_path: Path) -> None:
    """Before each kill a member comes or goes, and nobody knows of it yet. Every member must get its share again,
    nothing may have two owners, and what was committed must be there."""
    calm = {"session.timeout.ms": "60000"}  # else a machine that stalls ends sessions of members that own something
    protocols = itertools.cycle((NEW, classic("cooperative-sticky") | calm))  # classic members need one in common
    async with ReplicatedPods(tmp_path, partitions=1, config=QUICK) as pods:
        owners = Owners(",".join(f"127.0.0.1:{pod.kafka_port}" for pod in pods.pods))
        members: dict[str, dict[str, str]] = {}

        def come(name: str) -> None:
            members[name] = next(protocols)
            owners.come(name, "t", **members[name])

        def go(name: str) -> None:
            del members[name]
            owners.go(name)

        def share() -> None:
            kind = ConsumerGroupType.CONSUMER if NEW in members.values() else ConsumerGroupType.CLASSIC
            owners.share(10, group_type=kind)

        come("member")
        for number in range(KILLS):
            await asyncio.to_thread(share)
            await asyncio.to_thread(owners.commit, number)
            if len(members) > 2:
                await asyncio.to_thread(go, next(iter(members)))
            else:
                come(f"member-{number}")
                await asyncio.to_thread(owners.poll)
            victim = pods.leaders[0][0]
            pods.pods[victim].kill()
            await pods.elect(0, (victim + 1) % len(pods.pods))
            await pods.pods[victim].start()
            await pods.push_image()
            await asyncio.to_thread(share)
            assert await asyncio.to_thread(owners.committed, "t", 10) == {number}
            await pods.caught_up(0)
        await asyncio.to_thread(owners.end)
