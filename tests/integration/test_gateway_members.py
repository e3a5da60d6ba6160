"""Members of six clients behind the gateway, with real records and their groups at Muster: killed, frozen, static.

`make test` runs each client with one assignor, `make prove-members` with all of its assignors. CLIENTS names some.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.gateway import GatewayProcess
from tests.support.go_programs import WHY_NONE, compiled
from tests.support.group_members import ASSIGNORS, HERE, Member, assignments, produce
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster
from tests.support.mirrored import listed, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(1800),
]

PARTITIONS, RECORDS = 6, 60
AT_ONCE = 3
"""Clients that are tried side by side: most of the time they wait for a session's end."""
WAIT_S = 90.0
CLIENTS = os.environ.get("CLIENTS", "").split()
CASES = [
    (client, assignor)
    for client, assignors in ASSIGNORS.items()
    for assignor in (assignors if client in CLIENTS else () if CLIENTS else assignors[:1])
]


def topic_of(case: tuple[str, str]) -> str:
    return "-".join(case)


class Case:
    """One client with one assignor: a topic and a group of its own."""

    def __init__(self, gateway: GatewayProcess, case: tuple[str, str]) -> None:
        self._client, self._assignor = case
        self.topic = self.group = topic_of(case)
        self._gateway = gateway
        self._produced = 0
        self.members: list[Member] = []

    def member(self, instance: str | None = None) -> Member:
        member = Member(self._client, self._gateway.bootstrap, self.topic, self.group, self._assignor, instance)
        self.members.append(member)
        return member

    async def stable(self, *expected: int) -> None:
        """The members have so many partitions each."""

        async def has() -> bool:
            return await assignments(self._gateway.port, self.group) == sorted(expected)

        await self._until(has, f"members with {expected} partitions")

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            await until(holds, f"{self.topic}: {what}", WAIT_S)
        except AssertionError as error:
            ended = [list(each.said) for each in self.members if not each.alive and each.said]
            raise AssertionError(f"{error}; what members that have ended said last: {ended}") from None

    async def records(self, *members: Member) -> Counter[int]:
        """As many more, until these members have each of them; how often they have each."""
        numbers = range(self._produced, self._produced + RECORDS)
        self._produced += RECORDS
        await produce(self._client, self._gateway.bootstrap, self.topic, numbers)

        def found() -> Counter[int]:
            return Counter(number for member in members for number in member.numbers if number in numbers)

        async def has() -> bool:
            return len(found()) == RECORDS

        await self._until(has, f"records {numbers}")
        return found()

    def end(self) -> None:
        for member in self.members:
            member.thaw() if member.alive else None
            member.end(signal.SIGKILL)


def assert_once(found: Counter[int], before: list[int], *members: Member) -> None:
    """Without a rebalance none comes twice."""
    assert [each.rebalances for each in members] == before
    assert set(found.values()) == {1}


async def killed_and_frozen(case: Case) -> None:
    first, second = case.member(), case.member()
    half = PARTITIONS // 2
    await case.stable(half, half)
    await case.records(first, second)
    rebalances = [first.rebalances, second.rebalances]
    assert_once(await case.records(first, second), rebalances, first, second)

    first.end(signal.SIGKILL)
    await case.stable(PARTITIONS)
    await case.records(second)

    third = case.member()
    await case.stable(half, half)
    third.freeze()
    await case.stable(PARTITIONS)
    await case.records(second)
    third.thaw()
    await case.stable(half, half)
    await case.records(second, third)
    rebalances = [second.rebalances, third.rebalances]
    assert_once(await case.records(second, third), rebalances, second, third)
    for member in (second, third):
        member.end(signal.SIGTERM)


async def static(case: Case) -> None:
    """A member that is killed and comes again with its instance id: the other one does not notice."""
    case.group += "-static"
    first, second = case.member("one"), case.member("two")
    await case.stable(PARTITIONS // 2, PARTITIONS // 2)
    await case.records(first, second)
    rebalances = second.rebalances
    first.end(signal.SIGKILL)
    again = case.member("one")
    await case.records(second, again)
    assert second.rebalances == rebalances
    await case.stable(PARTITIONS // 2, PARTITIONS // 2)
    for member in (second, again):
        member.end(signal.SIGTERM)


async def test_members_of_each_client_get_every_record(tmp_path: Path) -> None:
    if compiled(HERE / "go_members") is None:
        pytest.skip(WHY_NONE)
    options = ["--config", "group.initial.rebalance.delay.ms=1000", "--partitions", "5", "--any-topic", "--pods", "1"]
    topics = {topic_of(case): PARTITIONS for case in CASES}
    turns = asyncio.Semaphore(AT_ONCE)
    async with KafkaCluster(tmp_path / "kafka", topics, brokers=1) as kafka:
        with LocalCluster(tmp_path / "muster", *options) as muster:
            pods = await asyncio.to_thread(muster.wait_ready)
            async with GatewayProcess(tmp_path, kafka.bootstrap, pods, {"muster.groups": "*"}) as gateway:

                async def run(names: tuple[str, str]) -> None:
                    async with turns:
                        case = Case(gateway, names)
                        try:
                            await killed_and_frozen(case)
                            await static(case)
                        finally:
                            case.end()

                failed = [
                    f"{topic_of(names)}: {error!r}"
                    for names, error in zip(
                        CASES,
                        await asyncio.gather(*(run(names) for names in CASES), return_exceptions=True),
                        strict=True,
                    )
                    if error is not None
                ]
                groups = await listed(kafka.ports[0])
    assert not failed, "\n".join(failed)
    assert groups == set(), "Kafka has a group that is Muster's"
