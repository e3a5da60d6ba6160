"""Members of the new protocol of unchanged clients in one group, each a process with a log of what it owns, while the
leader of the group is killed again and again in the middle of their rebalances.

`make kill-owners` has members of Java and franz-go and 50 kills.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.support.go_programs import WHY_NONE, compiled
from tests.support.group_members import CONSUMER, HERE, Member
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.owners import owned_twice
from tests.support.replicated import ReplicatedPods

CLIENTS = os.environ.get("CLIENTS", "franz").split()
KILLS = int(os.environ.get("KILLS", "1"))
pytestmark = [pytest.mark.integration, pytest.mark.timeout(120 + 60 * KILLS)]

GROUP, TOPIC, PARTITIONS = "killed", "t", 10
COME_IN_A_ROW = 2
"""The number of members that come one after the other; then as many go."""
WAIT_S = 90.0
MOMENTS_S = (0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.5)
"""The times between a change of the group and the kill of its leader: each meets another step. A JVM needs two seconds
to join."""
CONFIG = (
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.assignment.interval.ms=100",
)
"""Sessions are as long as they are by default: a machine that stalls must not end those of members that own something.
"""


class Group:
    """`members`: those that are in it; `all`: also those that left."""

    def __init__(self, pods: ReplicatedPods) -> None:
        self.members: list[Member] = []
        self.all: list[Member] = []
        self._pods = pods
        self._bootstrap = ",".join(f"127.0.0.1:{pod.kafka_port}" for pod in pods.pods)
        self._clients = itertools.cycle(CLIENTS)

    def come(self) -> None:
        member = Member(next(self._clients), self._bootstrap, TOPIC, GROUP, CONSUMER)
        self.members.append(member)
        self.all.append(member)

    async def go(self) -> None:
        await asyncio.to_thread(self.members.pop(0).end, signal.SIGTERM)

    async def shared(self) -> None:
        """The members own all, evenly, and no two the same."""

        def is_shared() -> bool:
            sizes = [len(member.owns) for member in self.members]
            return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1 and len(self._owned()) == PARTITIONS

        await self._until(is_shared, f"{len(self.members)} members share {PARTITIONS} partitions")
        assert not (wrong := owned_twice(self.all)), wrong

    async def commit(self, offset: int) -> None:
        """Every member commits what it owns. One whose epoch is old is refused, and asked again."""
        waiting = list(self.members)
        while waiting:
            answered = [len(member.answers) for member in waiting]
            for member in waiting:
                member.ask(f"commit {offset}")
            asked = list(zip(waiting, answered, strict=True))
            await self._until(lambda asked=asked: all(len(m.answers) > n for m, n in asked), "commits are answered")  # type: ignore[misc]
            waiting = [member for member in waiting if member.answers[-1] != "committed"]

    def committed(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        asked = [ConsumerGroupTopicPartitions(GROUP)]
        (future,) = admin.list_consumer_group_offsets(asked, request_timeout=WAIT_S).values()
        return [each.offset for each in future.result().topic_partitions]

    def _owned(self) -> set[tuple[str, int]]:
        return set().union(*(member.owns for member in self.members))

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not holds():
                    await self._pods.elect_again(0)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            told = [(sorted(each.owns), each.answers[-3:], list(each.said)) for each in self.members]
            raise AssertionError(f"{what}, in vain; what members own and said last: {told}") from None

    def end(self) -> None:
        for member in self.all:
            member.end(signal.SIGKILL)


def why_not() -> str:
    if "franz" in CLIENTS and compiled(HERE / "go_members") is None:
        return WHY_NONE
    return why_no_kafka_yet() if "java" in CLIENTS else ""


async def test_nothing_has_two_owners_and_no_commit_is_lost_while_leaders_are_killed(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    async with ReplicatedPods(tmp_path, partitions=1, config=CONFIG) as pods:
        group = Group(pods)
        try:
            for _ in range(2):
                group.come()
            for number in range(KILLS):
                await group.shared()
                await group.commit(number + 1)
                if number % (2 * COME_IN_A_ROW) < COME_IN_A_ROW:
                    group.come()
                else:
                    await group.go()
                await asyncio.sleep(MOMENTS_S[number % len(MOMENTS_S)])
                victim = pods.leaders[0][0]
                pods.pods[victim].kill()
                await pods.elect(0, (victim + 1) % len(pods.pods))
                await pods.pods[victim].start()
                await pods.push_image()
                await group.shared()
                assert await asyncio.to_thread(group.committed) == [number + 1] * PARTITIONS
                await pods.caught_up(0)
        finally:
            await asyncio.to_thread(group.end)
        assert not (wrong := owned_twice(group.all)), wrong
        given = sum(what == "given" for member in group.all for _, what, _ in member.events)
        print(f"{KILLS} kills, {len(group.all)} members of {CLIENTS}: {given} times a partition was given, none twice")
