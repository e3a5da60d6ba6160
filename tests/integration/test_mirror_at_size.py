"""A mirror beside the Kafka cluster that it follows, with as many groups and commits as are asked for.

`make prove-mirror` has 10,000 groups, a million commits and 1,000 moments of the past, three brokers and three pods. A
ledger of the load says what counted when; Kafka has compacted its own log before the moments are asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.group_load import GROUP, TOPIC, TRANSACTION, Writer, coordinators, name_of, simple_groups
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster
from tests.support.mirror_watch import OFFSETS, ConsoleReader, Ends, LagWatch, MirrorReader, behind
from tests.support.mirrored import groups_of, listed, until
from tests.support.offsets_ledger import PARTITIONS, Key, Ledger

from muster_cli.main import cli
from muster_coordinator.records.partitioner import partition_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(3600),
]

GROUPS = int(os.environ.get("MIRROR_GROUPS", "300"))
COMMITS = int(os.environ.get("MIRROR_COMMITS", "30000"))
MOMENTS = int(os.environ.get("MIRROR_MOMENTS", "20"))
BROKERS = int(os.environ.get("MIRROR_BROKERS", "1"))
PODS = int(os.environ.get("MIRROR_PODS", "1"))
WRITERS = min(64, GROUPS // 10)
OFFSETS_PARTITIONS = int(os.environ.get("MIRROR_PARTITIONS", "8"))
AT_ONCE = 500
"""Groups in one question."""
KAFKA = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.segment.bytes": "1048576",
    "offsets.retention.check.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.rebalance.protocols": "classic",
    "transaction.partition.verification.enable": "false",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.compaction.lag.ms": str(24 * 3_600_000),
}
NAMES = [name_of(number) for number in range(GROUPS)]
TOUCHED = simple_groups(NAMES, OFFSETS_PARTITIONS)
"""Some of each offsets partition."""
ASKED_AT_KAFKA = 5
"""One moment in so many is asked for at Kafka's own log, too."""
WHOLE = 5
"""Moments at which all partitions are asked for at once; at the others it is one."""


async def test_groups_are_those_of_kafka_and_so_is_every_moment_of_the_past(tmp_path: Path) -> None:
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        kafka = await stack.enter_async_context(KafkaCluster(tmp_path / "kafka", {TOPIC: PARTITIONS}, BROKERS, KAFKA))
        writers = await _writers(kafka.bootstrap, ledger)
        for writer in writers:
            stack.push_async_callback(writer.close)
        ends = Ends(_leaders(kafka))
        stack.push_async_callback(ends.close)

        await _write(writers, ledger, COMMITS * 3 // 4)
        async with ConsoleReader(kafka.bootstrap) as console:
            consumer_rate = await _caught_up_by_console(console, await ends.ask())
        muster = stack.enter_context(LocalCluster(tmp_path / "muster", *_options(kafka)))
        mirror = MirrorReader(muster.data)
        stack.push_async_callback(mirror.close)
        mirror_rate = await _caught_up_by_mirror(mirror)
        print(f"catch-up in records/s: {mirror_rate:.0f}, of Kafka's consumer {consumer_rate:.0f}", flush=True)

        bootstrap = await asyncio.to_thread(muster.wait_ready)
        async with ConsoleReader(kafka.bootstrap) as console:
            await until(lambda: _has_all(console, ends), "the console consumer at the end", 120)
            began, before = time.monotonic(), ledger.commits
            async with LagWatch(ends, mirror, console) as watch:
                await _write(writers, ledger, COMMITS)
            rate = (ledger.commits - before) / (time.monotonic() - began)
        print(f"lag in records at {rate:.0f} commits/s: {_shares(watch.mirror)}, of Kafka's consumer", end=" ")
        print(_shares(watch.console), flush=True)

        for writer in writers:
            await writer.wait_expired()
        await _assert_equal(kafka.bootstrap, bootstrap)
        await _compact(kafka, writers)
        await _assert_equal(kafka.bootstrap, bootstrap)
        await until(lambda: _is_at_end(mirror, ends), "the mirror at the end")
        assert await asyncio.to_thread(muster.stop) == 0
    found = await asyncio.to_thread(_ask_moments, ledger, muster.data / "pods" / "muster-0", tmp_path / "kafka/kafka-0")
    print(f"{ledger.commits} commits; {found}")


async def _writers(bootstrap: str, ledger: Ledger) -> list[Writer]:
    names = [f"writer-{number}" for number in range(WRITERS)]
    ports = await coordinators(bootstrap, NAMES, GROUP)
    of_transactions = await coordinators(bootstrap, names, TRANSACTION)
    return [
        Writer(name, NAMES[number::WRITERS], ports | {name: of_transactions[name]}, ledger, number)
        for number, name in enumerate(names)
    ]


async def _write(writers: Sequence[Writer], ledger: Ledger, until_commits: int) -> None:
    await asyncio.gather(*(writer.run(lambda: ledger.commits >= until_commits) for writer in writers))
    await asyncio.gather(*(writer.touch(TOUCHED) for writer in writers))


def _options(kafka: KafkaCluster) -> list[str]:
    return ["--pods", str(PODS), "--any-topic", "--config", f"muster.upstream.bootstrap={kafka.bootstrap}"]


def _leaders(kafka: KafkaCluster) -> dict[int, list[int]]:
    """Partitions of the offsets topic, by the port of the broker that leads them."""
    found: dict[int, list[int]] = {}
    for number, partition in kafka.admin().list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions.items():
        found.setdefault(kafka.ports[partition.leader], []).append(number)
    return found


# -- how fast, and how far behind --------------------------------------------------------------------------------------


async def _caught_up_by_console(console: ConsoleReader, ends: dict[int, int]) -> float:
    """Records/s from its first record on: what it takes to start a JVM does not count."""

    async def all_read() -> bool:
        return behind(ends, console.positions) == 0

    await until(all_read, "the console consumer at the end", 240)
    return console.count / (time.monotonic() - console.first_s)


async def _caught_up_by_mirror(mirror: MirrorReader) -> float:
    """Records/s from the last moment at which nothing was read."""
    began = time.monotonic()
    async with asyncio.timeout(240):
        while True:
            partitions = await mirror.partitions()
            if len(partitions) == OFFSETS_PARTITIONS and all(each.complete for each in partitions):
                return sum(each.records for each in partitions) / (time.monotonic() - began)
            if not any(each.records for each in partitions):
                began = time.monotonic()
            await asyncio.sleep(0.02)


async def _has_all(console: ConsoleReader, ends: Ends) -> bool:
    return behind(await ends.ask(), console.positions) <= OFFSETS_PARTITIONS


async def _is_at_end(mirror: MirrorReader, ends: Ends) -> bool:
    positions = {each.partition: each.position for each in await mirror.partitions()}
    return behind(await ends.ask(), positions) == 0


def _shares(lags: list[int]) -> str:
    """Median, 99 of 100, most."""
    ordered = sorted(lags)
    return " / ".join(str(ordered[min(len(ordered) * share // 100, len(ordered) - 1)]) for share in (50, 99, 100))


# -- now ---------------------------------------------------------------------------------------------------------------


async def _everything(bootstrap: str) -> dict[str, Any]:
    """All groups, each as its coordinator describes it, with its offsets."""
    ports = await coordinators(bootstrap, NAMES)
    found: dict[str, Any] = {}
    for port in set(ports.values()):
        names = [name for name in NAMES if ports[name] == port]
        for first in range(0, len(names), AT_ONCE):
            found |= await groups_of(port, names[first : first + AT_ONCE])
    return found


async def _names(bootstrap: str) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for address in bootstrap.split(","):
        found |= await listed(int(address.rpartition(":")[2])) or set()
    return found


async def _assert_equal(kafka: str, muster: str) -> None:
    of_kafka = await _everything(kafka)
    assert set(of_kafka) == set(NAMES)
    assert all(group[0][0] == 0 and group[1][0] == 0 for group in of_kafka.values())
    wrong: dict[str, Any] = {}

    async def equal() -> bool:
        of_muster = await _everything(muster)
        wrong.clear()
        wrong.update({name: (of_kafka[name], of_muster[name]) for name in NAMES if of_kafka[name] != of_muster[name]})
        return not wrong

    try:
        await until(equal, "equal groups", 30)
    except AssertionError:
        pytest.fail(f"{len(wrong)} groups differ: {dict(list(wrong.items())[:3])}")
    assert await _names(kafka) == await _names(muster)
    members = sum(bool(group[0][4]) for group in of_kafka.values())
    offsets = sum(len(group[1][1]) for group in of_kafka.values())
    print(f"equal: {len(of_kafka)} groups, {members} of them with a member, {offsets} offsets", flush=True)
    assert members == sum(name.startswith("member") for name in NAMES)


# -- the past ----------------------------------------------------------------------------------------------------------


async def _compact(kafka: KafkaCluster, writers: Sequence[Writer]) -> None:
    """Let Kafka compact all that was written, and wait until most of it is gone from every partition."""
    before = _stored(kafka)
    changes = {"segment.ms": "100", "min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01"}
    await asyncio.to_thread(_configure, kafka.admin(), changes)
    await asyncio.gather(*(writer.touch(TOUCHED) for writer in writers))  # a new segment begins with a record

    async def compacted() -> bool:
        now = _stored(kafka)
        return all(now[partition] < size * 2 / 3 for partition, size in before.items())

    await until(compacted, "Kafka's cleaner", 120)
    await asyncio.to_thread(_configure, kafka.admin(), {"min.compaction.lag.ms": str(24 * 3_600_000)})
    print(f"Kafka has compacted {sum(before.values())} bytes to {sum(_stored(kafka).values())}", flush=True)


def _configure(admin: AdminClient, changes: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changes.items()]
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _stored(kafka: KafkaCluster) -> Counter[str]:
    """Bytes of the first broker's offsets partitions."""
    found: Counter[str] = Counter()
    for each in (kafka.directory / "kafka-0").glob(f"{OFFSETS}-*/*.log"):
        try:
            found[each.parent.name] += each.stat().st_size
        except FileNotFoundError:
            pass  # compacted meanwhile
    return found


def _ask_moments(ledger: Ledger, pod: Path, broker: Path) -> str:
    """Fails for a moment at which the mirror's log does not say what the ledger says."""
    chance = random.Random(MOMENTS)
    groups: dict[int, list[str]] = {}
    for name in NAMES:
        groups.setdefault(partition_for(name, OFFSETS_PARTITIONS), []).append(name)
    compacted = compared = 0
    for number in range(MOMENTS):
        if number % ASKED_AT_KAFKA == 0:
            group, at_ms = ledger.superseded(chance)
            partition = partition_for(group, OFFSETS_PARTITIONS)
        else:
            at_ms = chance.randint(ledger.first_ms, ledger.last_ms)
            partition = chance.choice(sorted(groups))
        names, place = (NAMES, "") if number < WHOLE else (groups[partition], f"{OFFSETS}-{partition}")
        found = _offsets_at(pod / place, at_ms)
        wrong = ledger.wrong(names, found, at_ms)
        assert not wrong, f"at {at_ms}: {len(wrong)} differ: {dict(list(wrong.items())[:3])}"
        compared += len(names)
        if number % ASKED_AT_KAFKA == 0:
            compacted += bool(ledger.wrong(names, _offsets_at(broker / place, at_ms), at_ms))
    asked = len(range(0, MOMENTS, ASKED_AT_KAFKA))
    assert compacted > asked / 2, "Kafka still has what it was told"
    return f"{MOMENTS} moments, {compared} groups: as told. Of {asked} Kafka's own log lacks {compacted}"


def _offsets_at(source: Path, at_ms: int) -> dict[Key, int]:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    command = ["pipeline", "offsets", str(source), "--engine", "local", "--at", moment, "--json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    rows = map(json.loads, done.stdout.splitlines())
    return {(row["group"], row["partition"]): row["committed_offset"] for row in rows if row["topic"] == TOPIC}
