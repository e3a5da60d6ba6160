"""All pods of Muster are killed for good: consumers start at Kafka itself, from offsets that were written there.

`make prove-moves` has 50 groups."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession
from confluent_kafka import Consumer, TopicPartition
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.live_groups import Confluent
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.moves_under_kills import KAFKA, OPTIONS, PARTITIONS, SETTINGS, TOPIC, Feed, PodsThatDie

from muster_coordinator.podapi.moves import MovesAnswer, RoutedGroup

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(900),
]

INTERVAL_MS = 1_000
GROUPS = tuple(f"mv-{number}" for number in range(1, 1 + int(os.environ.get("MOVE_GROUPS", "3"))))


class Recorder(Confluent):
    """Keeps when each commit was acknowledged (monotonic s), and how many records were committed then."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(bootstrap, group, topic)
        self.acknowledged: list[tuple[float, int]] = [(0.0, 0)]

    def commit(self, commit):  # type: ignore[no-untyped-def]
        before, count = self.commits, len(self.values)
        super().commit(commit)
        if self.commits > before:
            self.acknowledged.append((time.monotonic(), count))

    def by(self, at_s: float) -> int:
        """Records committed by acknowledged commits of that time."""
        return max(count for when_s, count in self.acknowledged if when_s <= at_s)


async def test_kafka_goes_on_alone_from_what_was_written_to_it(tmp_path: Path) -> None:
    config = [*SETTINGS, f"muster.upstream.write.back.interval.ms={INTERVAL_MS}"]
    options = [*OPTIONS, *(part for each in config for part in ("--config", each))]
    kafka_config = {**KAFKA, "group.min.session.timeout.ms": "1000"}
    async with KafkaBroker(tmp_path / "kafka", kafka_config, {TOPIC: PARTITIONS}) as kafka:
        bootstrap = f"127.0.0.1:{kafka.port}"
        with LocalCluster(tmp_path / "muster", *options, "--upstream", bootstrap) as muster, ExitStack() as stack:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
            members = [Recorder(line.split()[1].removeprefix("bootstrap="), group, TOPIC) for group in GROUPS]
            feed = Feed(bootstrap)
            stack.callback(feed.stop)
            for member in members:
                threading.Thread(target=member.run, daemon=True).start()
                stack.callback(member.stopped.set)  # nobody waits: its last commit has a minute for an answer, or more
            bounds = await _moved_and_killed(muster, members)
        committed = await asyncio.to_thread(_offsets_at, bootstrap)
        for member in members:
            safe_at_s = bounds[member.group]
            assert member.by(safe_at_s) <= committed[member.group] <= len(member.values), member.group
            assert committed[member.group] > 0
        await _consumed_at_kafka(bootstrap, members, committed, feed.produced)


async def _moved_and_killed(muster: LocalCluster, members: list[Recorder]) -> dict[str, float]:
    """By group: until when all of its commits are at Kafka (monotonic s), as the pods have said last."""
    async with ClientSession() as session:
        pods = PodsThatDie(session, muster)
        await asyncio.to_thread(wait_until, lambda: all(each.commits > 5 for each in members), "commits")
        for member in members:
            await pods.move(member.group)

        bounds: dict[str, float] = {}
        deadline_s = time.monotonic() + 120
        while len(bounds) < len(members):
            assert time.monotonic() < deadline_s, "no offset was written to Kafka within two minutes"
            for route in await _routes(session, pods):
                problem = route.write_problem
                assert not problem or "has members at Kafka" in problem or "with COORDINATOR_" in problem, problem
                if 0 <= route.unwritten_ms <= 3 * INTERVAL_MS and not route.write_problem:
                    bounds[route.group] = 0.0
            await asyncio.sleep(0.1)
        moved = {each.group: each.commits for each in members}
        wait = lambda: all(each.commits > moved[each.group] + 30 for each in members)  # noqa: E731
        await asyncio.to_thread(wait_until, wait, "commits at Muster")
        asked_s = time.monotonic()
        for route in await _routes(session, pods):
            assert route.unwritten_ms >= 0, route
            bounds[route.group] = asked_s - route.unwritten_ms / 1000
        record = muster.run_record()
        os.kill(record["supervisor"], signal.SIGKILL)
        for process in (*record["pods"], record["gateway"]):
            os.kill(process["pid"], signal.SIGKILL)
    return bounds


async def _routes(session: ClientSession, pods: PodsThatDie) -> list[RoutedGroup]:
    found: list[RoutedGroup] = []
    for api in pods.apis():
        async with session.get(f"http://{api}/v1/moves") as answer:
            found += msgspec.json.decode(await answer.read(), type=MovesAnswer).routes
    assert len(found) <= len(GROUPS)
    return found


def _offsets_at(bootstrap: str) -> dict[str, int]:
    found = {}
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        places = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], timeout=30)
        consumer.close()
        found[group] = sum(max(each.offset, 0) for each in places)
    return found


async def _consumed_at_kafka(bootstrap: str, members: list[Recorder], committed: dict[str, int], end: int) -> None:
    """The same groups, at Kafka: each goes on from its offsets, and no record is missing."""
    there = [Confluent(bootstrap, each.group, TOPIC) for each in members]
    threads = [threading.Thread(target=each.run, daemon=True) for each in there]
    for thread in threads:
        thread.start()
    try:
        wait = lambda: all(len(each.values) >= end - committed[each.group] for each in there)  # noqa: E731
        await asyncio.to_thread(wait_until, wait, "the rest is consumed at Kafka")
    finally:
        for each in there:
            each.stopped.set()
        for thread in threads:
            thread.join(60)
    for before, after in zip(members, there, strict=True):
        assert set(map(int, before.values)) | set(map(int, after.values)) == set(range(end)), before.group
