"""Pods, the gateway and Kafka are killed at each step of a live group's way back, of both protocols: one side serves it
afterwards, and no acknowledged commit is lost."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.test_moves_at_kafka import beat
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.live_groups import Confluent, Modern
from tests.support.moves_under_kills import (
    KAFKA,
    PARTITIONS,
    TOPIC,
    WHO,
    Feed,
    PodsThatDie,
    before_kafka,
    committed,
    judged_commits,
    kill_at,
    live,
    until_all_are_read,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
]

STEPS = ("waiting", "draining", "writing", "comparing", "deciding", "moved")
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_MEMBER_ID = 14, 15, 16, 25


SESSION_MS = 10_000
"""A way back waits until Kafka has ended the members of before the move: their sessions begin anew when it starts."""
CONSUMERS = {f"group.consumer.{bound}session.timeout.ms": str(SESSION_MS) for bound in ("", "min.")}


class Rejoining(Confluent):
    """Remembers what it had been given when a commit was acknowledged."""

    PROTOCOL: ClassVar[dict[str, Any]] = {**Confluent.PROTOCOL, "session.timeout.ms": SESSION_MS}

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(bootstrap, group, topic)
        self._acknowledged: list[tuple[int, list[TopicPartition]]] = []

    def _commit(self, consumer: Consumer, ends: list[TopicPartition]) -> None:  # type: ignore[override]
        super()._commit(consumer, ends)
        self._acknowledged.append((len(self.values), ends))

    def given_again(self) -> list[tuple[int, int, int]]:
        """(partition, offset, committed before) of records that it was given though their commit was acknowledged."""
        found = []
        ends: dict[int, int] = {}
        marks = iter([*self._acknowledged, (len(self.values) + 1, [])])
        until_index, next_ends = next(marks)
        for index, value in enumerate(map(int, self.values)):
            while index >= until_index:
                ends |= {each.partition: each.offset for each in next_ends}
                until_index, next_ends = next(marks)
            offset, partition = divmod(value, PARTITIONS)
            if offset < ends.get(partition, 0):
                found.append((partition, offset, ends[partition]))
        return found


class ModernRejoining(Rejoining):
    """The same with the consumer protocol."""

    PROTOCOL = Modern.PROTOCOL


ROUNDS = int(os.environ.get("ROUNDS", "0"))
"""How often each of them is killed at each step, of each kind of group; 0: three kills in all, at steps
that write to Kafka and decide."""
WAVES: list[list[tuple[str, str, type[Rejoining]]]] = [
    [(who, step, kind) for step in STEPS] for kind in (Rejoining, ModernRejoining) for who in WHO
] * ROUNDS or [
    [
        ("leader", "writing", Rejoining),
        ("kafka", "comparing", ModernRejoining),
        ("gateway", "deciding", Rejoining),
    ]
]


@pytest.mark.timeout(300 + 250 * len(WAVES))
async def test_leader_gateway_and_kafka_are_killed_at_each_step_of_a_way_back(tmp_path: Path) -> None:
    async with (
        KafkaBroker(tmp_path / "kafka", KAFKA | CONSUMERS, {TOPIC: PARTITIONS}) as kafka,
        before_kafka(tmp_path / "muster", f"127.0.0.1:{kafka.port}", CONSUMERS) as (pods, bootstrap),
    ):
        produced, sides = 0, []
        for number, wanted in enumerate(WAVES):
            members = [kind(bootstrap, f"mv-{number}-{step}", TOPIC) for _, step, kind in wanted]
            produced, found = await _kill_at_each_step(pods, kafka, members, [each[:2] for each in wanted], produced)
            sides += found
            for member in members:
                assert await asyncio.to_thread(committed, bootstrap, member.group) == produced
        assert await judged_commits(kafka, pods) > 10 * len(sides)
        assert ["Kafka"] in sides, "none has gone back"


async def _kill_at_each_step(
    pods: PodsThatDie, kafka: KafkaBroker, members: list[Rejoining], wanted: list[tuple[str, str]], produced: int
) -> tuple[int, list[list[str]]]:
    """(how many records there are then, the side that serves each group). `produced`: how many there are."""
    feed = Feed(f"127.0.0.1:{kafka.port}", produced)
    async with live(members):
        for member in members:
            await pods.move(member.group)
        killed = []
        for (who, step), member in zip(wanted, members, strict=True):
            killed.append((*await kill_at(pods, kafka, member, who, step, STEPS, back=True), type(member).__name__))
            print(killed[-1])
        await asyncio.to_thread(feed.stop)
        await until_all_are_read(members, feed.produced)
        sides = [await _sides(member, kafka.port, pods.listeners()) for member in members]
    print(sides)
    assert all(len(each) == 1 for each in sides), list(zip(killed, sides, strict=True))
    for member in members:
        assert member.given_again() == [], member
        assert sorted(set(map(int, member.values))) == list(range(feed.produced)), member
    return feed.produced, sides


async def _sides(member: Rejoining, kafka: int, listeners: list[str]) -> list[str]:
    """The sides that serve the group: Kafka if it has members there, Muster if a pod does not refuse to be its
    coordinator. A pod's answer to DescribeGroups tells nothing, since a mirror shows Kafka's members."""
    found = ["Kafka"] if await _has_members(kafka, member) else []
    answers = [await _beat(each, member.group) for each in listeners]
    assert set(answers) <= {NOT_COORDINATOR, UNKNOWN_MEMBER_ID}, answers
    return [*found, *(["Muster"] if UNKNOWN_MEMBER_ID in answers else [])]


async def _has_members(port: int, member: Rejoining) -> bool:
    client = await KafkaClient.connect(port)
    try:
        if isinstance(member, ModernRejoining):
            m = schema("consumer_group_describe", 1)
            request = m.ConsumerGroupDescribeRequest(group_ids=(member.group,), include_authorized_operations=False)
        else:
            m = schema("describe_groups", 5)
            request = m.DescribeGroupsRequest(groups=(member.group,), include_authorized_operations=False)
        (group,) = (await client.call(request)).groups
        return bool(group.members)
    finally:
        await client.close()


async def _beat(listener: str, group: str) -> int:
    """The error code that a member gets there which nobody knows, once the pod is up and nothing loads any more."""
    port = int(listener.rpartition(":")[2])
    async with asyncio.timeout(30):
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):  # it starts again
                code = await beat(port, group, 1, "nobody")
                if code not in (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE):
                    return code
            await asyncio.sleep(0.1)
