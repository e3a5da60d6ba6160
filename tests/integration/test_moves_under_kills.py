"""Pods and the gateway are killed at each step of a live group's move: one side serves it, and nothing acknowledged is
lost, repeated or answered by the other side."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.live_groups import Confluent
from tests.support.moves_under_kills import (
    KAFKA,
    PARTITIONS,
    TOPIC,
    WHO,
    Feed,
    PodsThatDie,
    before_kafka,
    committed,
    kill_at,
    live,
    until,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]

STEPS = ("waiting", "draining", "reading", "passing", "comparing", "deciding", "moved")


async def test_leader_and_gateway_are_killed_at_each_step(tmp_path: Path) -> None:
    async with KafkaBroker(tmp_path / "kafka", KAFKA, {TOPIC: PARTITIONS}) as kafka:
        upstream = f"127.0.0.1:{kafka.port}"
        async with before_kafka(tmp_path / "muster", upstream) as (pods, bootstrap):
            await _kill_at_each_step(pods, upstream, bootstrap)


async def _kill_at_each_step(pods: PodsThatDie, kafka: str, bootstrap: str) -> None:
    wanted = [(who, step) for step in STEPS for who in WHO]
    members = [Confluent(bootstrap, f"mv-{number}", TOPIC) for number in range(len(wanted))]
    feed = Feed(kafka)
    async with live(members):
        killed = []
        for (who, step), member in zip(wanted, members, strict=True):
            killed.append(await kill_at(pods, member, who, step, STEPS))
        await asyncio.to_thread(feed.stop)
        await until(lambda: all(len(each.values) >= feed.produced for each in members), "all records everywhere")
        revoked = [each.revoked for each in members]
    print(killed)
    assert revoked == [0] * len(members)
    for member in members:
        assert sorted(map(int, member.values)) == list(range(feed.produced)), member
        assert await asyncio.to_thread(committed, bootstrap, member.group) == feed.produced
