"""Live groups move from a real Kafka to Muster, through a gateway, while they consume and commit: three client
libraries, three replicas."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.test_gateway_transactions import (
    DEADLINE_S,
    GROUP,
    INPUT,
    OUTPUT,
    PARTITIONS,
    RECORDS,
    Transformer,
    fill,
    output,
    use_a_group,
)
from tests.integration.test_movable_groups import until
from tests.support.kafka_broker import group_command, run_tool, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.live_groups import LiveGroups, Member
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.mirrored import until as eventually
from tests.support.moving_pods import Pods

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]

PREFIX = "mv-"
OPTIONS = ["--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
SETTINGS = [f"muster.upstream.movable.groups={PREFIX},{GROUP}", "muster.upstream.lease.ms=1500"]


@dataclass(frozen=True)
class Site:
    """`bootstrap`: of the gateway."""

    kafka: KafkaCluster
    muster: LocalCluster
    pods: Pods
    bootstrap: str


@asynccontextmanager
async def site(
    folder: Path,
    brokers: Mapping[str, str] | None = None,
    pods: Sequence[str] = (),
    *,
    count: int = 1,
    topics: Mapping[str, int] | None = None,
) -> AsyncIterator[Site]:
    """`brokers`, `pods`: settings of each beside those that the site needs. `count`: of brokers. `topics`: beside the
    usual ones, with their partitions."""
    options = [*OPTIONS, *(part for each in (*SETTINGS, *pods) for part in ("--config", each))]
    every = {INPUT: PARTITIONS, OUTPUT: PARTITIONS, **(topics or {})}
    async with KafkaCluster(folder / "kafka", every, brokers=count, settings=brokers) as kafka:
        await asyncio.to_thread(use_a_group, kafka.bootstrap)
        with LocalCluster(folder / "muster", *options, "--upstream", kafka.bootstrap) as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
            async with aiohttp.ClientSession() as session:
                bootstrap = line.split()[1].removeprefix("bootstrap=")
                yield Site(kafka, muster, Pods(session, muster), bootstrap)


async def test_live_groups_move_without_a_rebalance_or_a_record_lost(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await _move_all(it.pods, it.muster, it.kafka, it.bootstrap)


async def test_group_with_transactions_moves_and_each_record_is_transformed_once(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await asyncio.to_thread(fill, it.bootstrap)
        transformer = Transformer(it.bootstrap)
        running = asyncio.create_task(asyncio.to_thread(transformer.run))
        await until(lambda: transformer.committed >= 5 or running.done(), "transactions at Kafka", DEADLINE_S)
        tries = 1
        while not await it.pods.tried(GROUP):  # a transaction may stay open for longer than a move waits
            tries += 1
        committed, errors = transformer.committed, transformer.errors
        await until(lambda: transformer.committed >= committed + 5 or running.done(), "transactions at Muster")
        await running
        found = await asyncio.to_thread(output, it.bootstrap)
        print(
            f"moved after {tries} tries and {committed} transactions; {errors} errors until then: {transformer.errors}"
        )
        assert committed * 50 < RECORDS, "it was done before it moved"
        assert {value: count for value, count in found.items() if count != 1} == {}
        assert len(found) == RECORDS
        assert transformer.aborted > 0


async def test_groups_move_while_their_gateway_is_frozen_with_requests_in_its_hands(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        groups = LiveGroups(it.bootstrap, INPUT, PREFIX)
        with groups:
            await until(lambda: all(each.assigned and each.commits > 20 for each in groups.members), "commits")
            gateway = it.muster.run_record()["gateway"]["pid"]
            for member in groups.members:
                await it.pods.start(member.group, dry_run=True)  # nothing but the gateway is in the way
            os.kill(gateway, signal.SIGSTOP)
            try:
                for member in groups.members:
                    await it.pods.start(member.group)
                for member in groups.members:
                    assert await it.pods.has_moved(member.group), await it.pods.status(member.group)
            finally:
                os.kill(gateway, signal.SIGCONT)
            await commits_go_on(groups.members, "after the gateway")
            await asyncio.to_thread(groups.stop_feeding)
            await until(lambda: all(len(each.values) >= groups.produced for each in groups.members), groups.members)
            revoked = [each.revoked for each in groups.members]
        assert revoked == [0, 0, 0]
        for each in groups.members:
            assert sorted(each.values, key=int) == groups.values, type(each)
        done = {each.group: groups.produced for each in groups.members}
        assert {group: sum(at) for group, at in (await offsets_at(it.bootstrap, groups.members)).items()} == done


async def test_live_groups_go_back_and_no_record_is_lost(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        groups = LiveGroups(it.bootstrap, INPUT, PREFIX)
        with groups:
            await until(lambda: all(each.assigned and each.commits > 20 for each in groups.members), "commits")
            for member in groups.members:
                await it.pods.move(member.group)
            await commits_go_on(groups.members, "at Muster")
            for member in groups.members:
                await it.pods.move(member.group, back=True)
            await commits_go_on(groups.members, "at Kafka again")
            fenced = [(await it.pods.status(each.group)).fenced_ms for each in groups.members]
            await asyncio.to_thread(groups.stop_feeding)
            everything = set(groups.values)
            await until(lambda: all(set(each.values) >= everything for each in groups.members), groups.members)
            done = {each.group: groups.produced for each in groups.members}

            async def is_committed() -> bool:
                found = await offsets_at(it.kafka.bootstrap, groups.members)
                return {group: sum(at) for group, at in found.items()} == done

            await eventually(is_committed, "all is committed at Kafka", 30)
        for each in groups.members:
            again = len(each.values) - len(set(each.values))
            print(f"{each.group}: {again} of {len(each.values)} records were read again after its rebalance")
        print(f"fences (ms): {fenced}")


async def _move_all(pods: Pods, muster: LocalCluster, kafka: KafkaCluster, bootstrap: str) -> None:
    groups = LiveGroups(bootstrap, INPUT, PREFIX)
    with groups:
        await until(lambda: all(each.assigned and each.commits > 20 for each in groups.members), "commits")
        for member in groups.members:
            await pods.move(member.group)
            await commits_go_on([member], "at Muster")
        fenced = [(await pods.status(each.group)).fenced_ms for each in groups.members]
        longest_ms = [round(1000 * each.longest_s) for each in groups.members]
        errors = [list(each.errors) for each in groups.members]
        at_kafka = await offsets_at(kafka.bootstrap, groups.members)
        os.kill(muster.run_record()["gateway"]["pid"], signal.SIGKILL)
        await commits_go_on(groups.members, "through the next gateway")
        os.kill(await pods.leader_of(groups.members[0].group), signal.SIGKILL)
        await commits_go_on(groups.members, "at the next leader")
        await asyncio.to_thread(groups.stop_feeding)
        await until(
            lambda: all(len(each.values) >= groups.produced for each in groups.members), ["records", *groups.members]
        )
        revoked = [each.revoked for each in groups.members]
        assert await offsets_at(kafka.bootstrap, groups.members) == at_kafka, "Kafka took a commit of a moved group"
    print(f"{groups.produced} records; fences (ms): {fenced}; longest commits (ms): {longest_ms}")
    assert errors == [[], [], []]
    assert revoked == [0, 0, 0]
    for each in groups.members:
        assert sorted(each.values, key=int) == groups.values, type(each)
    done = {each.group: groups.produced for each in groups.members}
    assert {group: sum(at) for group, at in (await offsets_at(bootstrap, groups.members)).items()} == done
    code, listed = await run_tool(*group_command(bootstrap, ["--list"]))
    assert (code, sorted(set(listed.split()) & set(done))) == (0, sorted(done))


async def commits_go_on(members: Sequence[Member], where: str) -> None:
    before = [each.commits for each in members]
    await until(
        lambda: all(each.commits > commits + 10 for each, commits in zip(members, before, strict=True)),
        [f"commits {where}", *members],
    )


async def offsets_at(bootstrap: str, members: list[Member]) -> dict[str, list[int]]:
    """Offsets by group, as the coordinator there has them."""

    def ask(group: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        partitions = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
        found = [each.offset for each in consumer.committed(partitions, timeout=30)]
        consumer.close()
        return found

    return {each.group: await asyncio.to_thread(ask, each.group) for each in members}
