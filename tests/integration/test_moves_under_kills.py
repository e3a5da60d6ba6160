"""Pods and the gateway are killed at each step of a live group's move: one side serves it, and nothing acknowledged is
lost, repeated or answered by the other side."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientError, ClientSession
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.test_moving_groups import Pods
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.live_groups import Confluent
from tests.support.local_cluster import LocalCluster, wait_until

from muster_coordinator.podapi.moves import MovesAnswer, MoveStatus

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]

TOPIC, PARTITIONS = "in", 2
KAFKA = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
    "group.coordinator.rebalance.protocols": "classic",
}
OPTIONS = ["--partitions", "3", "--gateway-port", "0", "--muster-groups", "m-"]
SETTINGS = ["muster.upstream.movable.groups=mv-", "muster.upstream.lease.ms=1500"]
STEPS = ("waiting", "draining", "reading", "passing", "comparing", "deciding", "moved")
WHO = ("leader", "gateway")


class PodsThatDie(Pods):
    """Some of them are on their way up at any time."""

    async def start(self, group: str, *, dry_run: bool = False, back: bool = False) -> None:
        while True:
            try:
                return await super().start(group, dry_run=dry_run, back=back)
            except ClientError:
                await asyncio.sleep(0.05)

    async def _found(self, group: str) -> tuple[str, MoveStatus]:
        for api in self.apis():
            try:
                async with self._session.get(f"http://{api}/v1/moves") as answer:
                    moves = msgspec.json.decode(await answer.read(), type=MovesAnswer).moves
            except ClientError:
                continue
            for each in reversed(moves):
                if each.group == group:
                    return api, each
        raise AssertionError(f"no pod knows of a move of {group}")


class Feed:
    """Produces to Kafka itself until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.produced = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            self._producer.produce(TOPIC, str(self.produced), partition=self.produced % PARTITIONS)
            self.produced += 1
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


async def test_leader_and_gateway_are_killed_at_each_step(tmp_path: Path) -> None:
    options = [*OPTIONS, *(part for each in SETTINGS for part in ("--config", each))]
    async with KafkaBroker(tmp_path / "kafka", KAFKA, {TOPIC: PARTITIONS}) as kafka:
        with LocalCluster(tmp_path / "muster", *options, "--upstream", f"127.0.0.1:{kafka.port}") as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
            async with ClientSession() as session:
                bootstrap = line.split()[1].removeprefix("bootstrap=")
                await _kill_at_each_step(PodsThatDie(session, muster), muster, f"127.0.0.1:{kafka.port}", bootstrap)


async def _kill_at_each_step(pods: PodsThatDie, muster: LocalCluster, kafka: str, bootstrap: str) -> None:
    wanted = [(who, step) for step in STEPS for who in WHO]
    members = [Confluent(bootstrap, f"mv-{number}", TOPIC) for number in range(len(wanted))]
    feed = Feed(kafka)
    with ExitStack() as stack:
        for member in members:
            thread = threading.Thread(target=member.run, daemon=True)
            thread.start()
            stack.callback(thread.join, 30)
            stack.callback(member.stopped.set)
        await _until(lambda: all(each.commits > 5 for each in members), "commits of all groups")
        killed = []
        for (who, step), member in zip(wanted, members, strict=True):
            await pods.start(member.group)
            leader, at = await _reached(pods, member.group, step)
            gateway = muster.run_record()["gateway"]["pid"]
            os.kill(leader if who == "leader" else gateway, signal.SIGKILL)
            killed.append((who, at))
            before = member.commits
            await _until(lambda b=before, m=member: m.commits > b + 5, f"{member} after {killed[-1]}")  # type: ignore[misc]
        await asyncio.to_thread(feed.stop)
        await _until(lambda: all(len(each.values) >= feed.produced for each in members), "all records everywhere")
        revoked = [each.revoked for each in members]
    print(killed)
    assert revoked == [0] * len(members)
    for member in members:
        assert sorted(map(int, member.values)) == list(range(feed.produced)), member
        assert await asyncio.to_thread(_committed, bootstrap, member.group) == feed.produced


async def _reached(pods: PodsThatDie, group: str, step: str) -> tuple[int, str]:
    """(its leader's process, at which step the move is): that one or a later one, as some take a millisecond."""
    while True:
        found = (await pods.status(group)).step
        if found not in STEPS or STEPS.index(found) >= STEPS.index(step):
            return await pods.leader_of(group), found
        await asyncio.sleep(0)


async def _until(reached: Any, what: str) -> None:
    deadline_s = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline_s, f"not within a minute: {what}"
        await asyncio.sleep(0.05)


def _committed(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], timeout=30)
    consumer.close()
    return sum(each.offset for each in found)
