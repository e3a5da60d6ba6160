"""Pods, the gateway and Kafka are killed at each step of a live group's move, of both protocols: one side serves it,
and nothing acknowledged is lost, repeated or answered by the other side."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
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

STEPS = ("waiting", "draining", "reading", "passing", "comparing", "deciding", "moved")


class Patient(Confluent):
    """Waits for a Kafka that starts again on a busy machine: its session would end before."""

    PROTOCOL: ClassVar[dict[str, Any]] = {**Confluent.PROTOCOL, "session.timeout.ms": 90_000}


KINDS: tuple[type[Confluent], ...] = (Patient, Modern)
ROUNDS = int(os.environ.get("ROUNDS", "0"))
"""How often each of them is killed at each step, of each kind of group; 0: one of them at each step, in turns."""
WAVES = [[(who, step, kind) for step in STEPS] for kind in KINDS for who in WHO] * ROUNDS or [
    [(WHO[number % len(WHO)], step, KINDS[number % len(KINDS)]) for number, step in enumerate(STEPS)]
]


@pytest.mark.timeout(300 + 200 * len(WAVES))
async def test_leader_gateway_and_kafka_are_killed_at_each_step(tmp_path: Path) -> None:
    async with (
        KafkaBroker(tmp_path / "kafka", KAFKA, {TOPIC: PARTITIONS}) as kafka,
        before_kafka(tmp_path / "muster", f"127.0.0.1:{kafka.port}") as (pods, bootstrap),
    ):
        produced = 0
        for number, wanted in enumerate(WAVES):
            members = [kind(bootstrap, f"mv-{number}-{step}", TOPIC) for _, step, kind in wanted]
            produced = await _kill_at_each_step(pods, kafka, members, [each[:2] for each in wanted], produced)
            for member in members:
                assert await asyncio.to_thread(committed, bootstrap, member.group) == produced
        assert await judged_commits(kafka, pods) > 10 * len(WAVES) * len(STEPS)


async def _kill_at_each_step(
    pods: PodsThatDie, kafka: KafkaBroker, members: list[Confluent], wanted: list[tuple[str, str]], produced: int
) -> int:
    """How many records there are then. `produced`: how many there are."""
    feed = Feed(f"127.0.0.1:{kafka.port}", produced)
    async with live(members):
        killed = []
        for (who, step), member in zip(wanted, members, strict=True):
            killed.append((await kill_at(pods, kafka, member, who, step, STEPS), type(member).__name__))
            print(killed[-1])
        await asyncio.to_thread(feed.stop)
        await until_all_are_read(members, feed.produced)
        revoked = [each.revoked for each in members]
    assert revoked == [0] * len(members), list(zip(killed, revoked, strict=True))
    for member in members:
        assert sorted(map(int, member.values)) == list(range(feed.produced)), member
    return feed.produced
