"""Live groups move from a real Kafka to Muster, through a gateway, while they consume and commit: three client
libraries, three replicas."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.test_gateway_transactions import use_a_group
from tests.integration.test_movable_groups import until
from tests.support.kafka_broker import group_command, run_tool, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.live_groups import LiveGroups, Member
from tests.support.local_cluster import LocalCluster, wait_until

from muster_coordinator.podapi.moves import MoveAnswer, MovesAnswer, MoveStatus

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]

INPUT, INPUT_PARTITIONS = "in", 2
PREFIX = "mv-"
OPTIONS = ["--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
SETTINGS = ["muster.upstream.movable.groups=mv-", "muster.upstream.lease.ms=1500"]


class Pods:
    """The pods' APIs. Moves are asked for at all: the leader of the partition takes one."""

    def __init__(self, session: aiohttp.ClientSession, muster: LocalCluster) -> None:
        self._session = session
        self._muster = muster

    def apis(self) -> list[str]:
        return [each["apiAddress"] for each in self._record()]

    async def move(self, group: str) -> None:
        """Returns when it has moved."""
        await self.start(group)
        async with asyncio.timeout(60):
            while (step := (await self.status(group)).step) != "moved":
                assert step != "given up", await self.status(group)
                await asyncio.sleep(0.02)

    async def start(self, group: str) -> None:
        """Asks again while something stands in the way, such as a mirror that is behind."""
        obstacles: object = "no leader"
        try:
            async with asyncio.timeout(60):
                while True:
                    for api in self.apis():
                        async with self._session.post(f"http://{api}/v1/moves", json={"group": group}) as answer:
                            if answer.status == 200:
                                obstacles = msgspec.json.decode(await answer.read(), type=MoveAnswer).obstacles
                                if not obstacles:
                                    return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{group}: {obstacles}") from None

    async def status(self, group: str) -> MoveStatus:
        _, found = await self._found(group)
        return found

    async def leader_of(self, group: str) -> int:
        """The process that moved the group."""
        api, _ = await self._found(group)
        return next(each["process"]["pid"] for each in self._record() if each["apiAddress"] == api)

    async def _found(self, group: str) -> tuple[str, MoveStatus]:
        for api in self.apis():
            async with self._session.get(f"http://{api}/v1/moves") as answer:
                for each in msgspec.json.decode(await answer.read(), type=MovesAnswer).moves:
                    if each.group == group:
                        return api, each
        raise AssertionError(f"no pod knows of a move of {group}")

    def _record(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = msgspec.json.decode((self._muster.data / "run.json").read_bytes())["pods"]
        return pods


async def test_live_groups_move_without_a_rebalance_or_a_record_lost(tmp_path: Path) -> None:
    options = [*OPTIONS, *(part for each in SETTINGS for part in ("--config", each))]
    async with KafkaCluster(tmp_path / "kafka", {INPUT: INPUT_PARTITIONS}, brokers=1) as kafka:
        await asyncio.to_thread(use_a_group, kafka.bootstrap)
        with LocalCluster(tmp_path / "muster", *options, "--upstream", kafka.bootstrap) as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
            async with aiohttp.ClientSession() as session:
                await _move_all(Pods(session, muster), muster, kafka, line.split()[1].removeprefix("bootstrap="))


async def _move_all(pods: Pods, muster: LocalCluster, kafka: KafkaCluster, bootstrap: str) -> None:
    groups = LiveGroups(bootstrap, INPUT, PREFIX)
    with groups:
        await until(lambda: all(each.assigned and each.commits > 20 for each in groups.members), "commits")
        for member in groups.members:
            await pods.move(member.group)
            await _commits_go_on([member], "at Muster")
        fenced = [(await pods.status(each.group)).fenced_ms for each in groups.members]
        longest_ms = [round(1000 * each.longest_s) for each in groups.members]
        errors = [list(each.errors) for each in groups.members]
        at_kafka = await _committed(kafka.bootstrap, groups.members)
        os.kill(muster.run_record()["gateway"]["pid"], signal.SIGKILL)
        await _commits_go_on(groups.members, "through the next gateway")
        os.kill(await pods.leader_of(groups.members[0].group), signal.SIGKILL)
        await _commits_go_on(groups.members, "at the next leader")
        await asyncio.to_thread(groups.stop_feeding)
        await until(
            lambda: all(len(each.values) >= groups.produced for each in groups.members), ["records", *groups.members]
        )
        revoked = [each.revoked for each in groups.members]
        assert await _committed(kafka.bootstrap, groups.members) == at_kafka, "Kafka took a commit of a moved group"
    print(f"{groups.produced} records; fences (ms): {fenced}; longest commits (ms): {longest_ms}")
    assert errors == [[], [], []]
    assert revoked == [0, 0, 0]
    for each in groups.members:
        assert sorted(each.values, key=int) == groups.values, type(each)
    done = {each.group: groups.produced for each in groups.members}
    assert {group: sum(at) for group, at in (await _committed(bootstrap, groups.members)).items()} == done
    code, listed = await run_tool(*group_command(bootstrap, ["--list"]))
    assert (code, sorted(set(listed.split()) & set(done))) == (0, sorted(done))


async def _commits_go_on(members: Sequence[Member], where: str) -> None:
    before = [each.commits for each in members]
    await until(
        lambda: all(each.commits > commits + 10 for each, commits in zip(members, before, strict=True)),
        [f"commits {where}", *members],
    )


async def _committed(bootstrap: str, members: list[Member]) -> dict[str, list[int]]:
    """Offsets by group, as the coordinator there has them."""

    def ask(group: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        partitions = [TopicPartition(INPUT, number) for number in range(INPUT_PARTITIONS)]
        found = [each.offset for each in consumer.committed(partitions, timeout=30)]
        consumer.close()
        return found

    return {each.group: await asyncio.to_thread(ask, each.group) for each in members}
