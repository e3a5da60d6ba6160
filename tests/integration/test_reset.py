"""`muster groups reset` beside Kafka's own kafka-consumer-groups: on a real Kafka, and at Muster with Kafka's data."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka_broker import KafkaBroker, group_command, run_tool, why_no_kafka_yet
from tests.support.local_cluster import muster
from tests.support.pod import SoloPod

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(600),
]

TOPICS = {"t": 3, "u": 1}
RECORDS = {("t", 0): 20, ("t", 1): 10, ("t", 2): 0, ("u", 0): 5}
DELETED = {("t", 0): 4}
COMMITTED = {("t", 0): 12, ("t", 1): 7, ("u", 0): 3}
HOUR_S = 3_600


@dataclass(frozen=True)
class Site:
    """Kafka has the records: one an hour in each partition, the last one 30 minutes old."""

    kafka: str
    muster: str
    newest_s: float


def fill(kafka: str, newest_s: float) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for (topic, partition), count in RECORDS.items():
        for number in range(count):
            at_ms = int((newest_s - (count - 1 - number) * HOUR_S) * 1000)
            producer.produce(topic, b"x", partition=partition, timestamp=at_ms)
    assert producer.flush(60) == 0
    admin = AdminClient({"bootstrap.servers": kafka})
    for done in admin.delete_records([TopicPartition(*place, offset) for place, offset in DELETED.items()]).values():
        done.result(60)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    newest_s = time.time() - HOUR_S / 2
    async with (
        KafkaBroker(tmp_path / "kafka", {"message.timestamp.before.max.ms": str(1 << 60)}, TOPICS) as kafka,
        SoloPod(tmp_path / "muster", 4, TOPICS) as pod,
    ):
        found = Site(f"127.0.0.1:{kafka.port}", f"127.0.0.1:{pod.kafka_port}", newest_s)
        await asyncio.to_thread(fill, found.kafka, newest_s)
        yield found


def commit(bootstrap: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(*place, offset) for place, offset in COMMITTED.items()]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(30)


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30).topic_partitions
    return {(each.topic, each.partition): each.offset for each in told if each.offset >= 0}


async def ours(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report of `muster groups reset --json`."""
    done = await asyncio.to_thread(muster, "groups", "reset", *arguments, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


async def theirs(site: Site, *arguments: str) -> str:
    code, output = await run_tool(*group_command(site.kafka, ("--reset-offsets", *arguments)))
    assert code == 0, output
    assert "Error:" not in output, output
    return output


def words(newest_s: float, file: Path) -> list[list[str]]:
    """All that Kafka's tool can be asked for."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(newest_s - 4.5 * HOUR_S))
    file.write_text("t,0,2\nt,1,999\nu,0,4\n")
    return [
        ["--all-topics", "--to-earliest"],
        ["--topic", "t", "--to-latest"],
        ["--topic", "t:0,1", "--topic", "u", "--to-offset", "9"],
        ["--all-topics", "--shift-by", "-9"],
        ["--all-topics", "--shift-by", "2"],
        ["--topic", "t", "--to-datetime", at],
        ["--topic", "t", "--by-duration", "PT3H"],
        ["--topic", "t", "--to-current"],
        ["--from-file", str(file)],
    ]


async def test_offsets_are_those_of_kafkas_tool_on_kafka_and_at_muster(site: Site, tmp_path: Path) -> None:
    for number, asked in enumerate(words(site.newest_s, tmp_path / "offsets.csv")):
        group, other = f"ours-{number}", f"theirs-{number}"
        for bootstrap, of in ((site.kafka, other), (site.kafka, group), (site.muster, group)):
            await asyncio.to_thread(commit, bootstrap, of)
        await theirs(site, "--group", other, *asked, "--execute")
        wanted = await asyncio.to_thread(committed, site.kafka, other)
        for where in (
            ("--bootstrap-server", site.kafka),
            ("--bootstrap-server", site.muster, "--data-from", site.kafka),
        ):
            code, report = await ours(group, *where, *asked, "--dry-run")
            assert (code, report["groups"][0]["outcome"]) == (0, "to write"), report
            assert await asyncio.to_thread(committed, where[1], group) == COMMITTED, "a dry run writes nothing"
            code, report = await ours(group, *where, *asked, "--execute")
            assert (code, report["groups"][0]["outcome"]) == (0, "written"), report
            assert await asyncio.to_thread(committed, where[1], group) == wanted, asked


async def test_file_of_one_tool_is_read_by_the_other(site: Site, tmp_path: Path) -> None:
    for group in ("a", "b", "c"):
        await asyncio.to_thread(commit, site.kafka, group)
    here = ("--bootstrap-server", site.kafka)
    asked = ("--all-topics", "--shift-by", "-2", "--export")
    for groups in (("a",), ("a", "b")):
        named = [word for group in groups for word in ("--group", group)]
        output = await theirs(site, *named, *asked, "--dry-run")
        mine = await asyncio.to_thread(muster, "groups", "reset", *groups, *here, *asked)
        assert sorted(mine.stdout.splitlines()) == sorted(line for line in output.splitlines() if line), mine.stderr
        file = tmp_path / "offsets.csv"
        file.write_text(mine.stdout)
        await theirs(site, *named, "--from-file", str(file), "--execute")
        file.write_text(output)
        code, report = await ours(*groups, *here, "--from-file", str(file))
        assert (code, [each["now"] - each["to"] for group in report["groups"] for each in group["changes"]]) == (
            0,
            [0] * len(COMMITTED) * len(groups),
        ), report
        for group in groups:
            await asyncio.to_thread(commit, site.kafka, group)
    code, report = await ours("a", "b", "c", *here, "--from-file", str(file))
    assert (code, [each["outcome"] for each in report["groups"]]) == (1, ["to write", "to write", "refused"])


async def test_what_cannot_be_is_refused_and_nothing_is_written(site: Site) -> None:
    for bootstrap in (site.kafka, site.muster):
        await asyncio.to_thread(commit, bootstrap, "g")
    consumer = Consumer({"bootstrap.servers": site.kafka, "group.id": "live"})
    consumer.subscribe(["t"])

    async def refused(group: str, *arguments: str) -> str:
        code, report = await ours(group, *arguments, "--execute")
        assert code == 1, report
        return f"{report['groups'][0]['outcome']} {report['groups'][0].get('why', '')}"

    try:
        async with asyncio.timeout(120):
            while not consumer.assignment():
                await asyncio.to_thread(consumer.poll, 0.1)
        at_kafka = ("--bootstrap-server", site.kafka)
        assert await refused("live", *at_kafka, "--topic", "t", "--to-earliest") == "members "
        told = await refused("g", *at_kafka, "--topic", "t", "--shift-by", "1")
        assert "nothing is committed for t-2" in told
        assert "has no partition t-7" in await refused("g", *at_kafka, "--topic", "t:7", "--to-earliest")
        assert "name its topics" in await refused("nobody", *at_kafka, "--all-topics", "--to-earliest")
        told = await refused("g", "--bootstrap-server", site.muster, "--all-topics", "--to-latest")
        assert "name that in --data-from" in told
        unknown = await asyncio.to_thread(
            muster, "groups", "reset", "g", *at_kafka, "--topic", "gone", "--to-earliest", "--execute"
        )
        assert (unknown.returncode, "has no topic gone" in unknown.stderr) == (1, True), unknown.stderr
        for bootstrap in (site.kafka, site.muster):
            assert await asyncio.to_thread(committed, bootstrap, "g") == COMMITTED
        assert not await asyncio.to_thread(committed, site.kafka, "nobody")
    finally:
        await asyncio.to_thread(consumer.close)
