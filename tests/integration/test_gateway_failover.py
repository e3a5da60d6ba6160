"""A leader of Muster is killed under a consumer that commits all the time: through the gateway it notices nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.gateway import GatewayProcess
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(300),
]

TOPIC, GROUP = "orders", "committers"
KILLS = int(os.environ.get("KILLS", "3"))
EVERY_S = 0.01
QUIET_S = 2.0  # before the first kill, and after each one


class Committer:
    """A member that commits every 10 ms, and notes when each commit was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[float] = []
        self.errors: list[str] = []
        self.assignments = 0
        self.last_offset = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "error_cb": lambda error: self.errors.append(str(error)),
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Committer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def longest_pause_s(self, begin: float) -> float:
        times = [each for each in self.acknowledged if each >= begin]
        return max(later - earlier for earlier, later in pairwise(times))

    def _run(self) -> None:
        def assigned(*_: Any) -> None:
            self.assignments += 1

        self._consumer.subscribe([TOPIC], on_assign=assigned)
        while not self._stop.is_set():
            message = self._consumer.poll(EVERY_S)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            if not self.assignments:
                continue
            try:
                self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.last_offset + 1)], asynchronous=False)
            except KafkaException as error:
                self.errors.append(str(error))
            else:
                self.last_offset += 1
                self.acknowledged.append(time.monotonic())


def leader(muster: LocalCluster, coordinator: int) -> int:
    """Pid of the pod that leads the group's partition."""
    (pod,) = [each for each in muster.status()["pods"] if each["name"] == f"muster-{coordinator}"]
    return int(pod["pid"])


async def coordinator_of(bootstrap: str, group: str) -> int:
    """Node id of the pod, asked at Muster itself."""
    for address in bootstrap.split(","):
        try:
            client = await KafkaClient.connect(int(address.rpartition(":")[2]))
        except OSError:
            continue
        found = await client.call(
            schema("find_coordinator", 4).FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
        )
        await client.close()
        return int(found.coordinators[0].node_id)
    raise AssertionError("no pod answers")


def is_whole(muster: LocalCluster) -> bool:
    """Every pod is there, and follows or leads each partition."""
    report = muster.status()
    return all(pod["alive"] for pod in report["pods"]) and all(
        line["leader"] and len(line["followers"]) == 2 for line in report["partitions"]
    )


async def killed_under_commits(muster: LocalCluster, pods: str, bootstrap: str) -> tuple[Committer, list[float]]:
    """The committer, and its longest pause at each kill."""
    pauses = []
    with Committer(bootstrap) as committer:
        await asyncio.to_thread(wait_until, lambda: len(committer.acknowledged) > 50, "commits")
        await asyncio.sleep(QUIET_S)
        for _ in range(KILLS):
            await asyncio.to_thread(wait_until, lambda: is_whole(muster), "a whole cluster")
            pid = leader(muster, await coordinator_of(pods, GROUP))
            begin = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(QUIET_S)
            await asyncio.to_thread(
                wait_until, lambda begin=begin: sum(t > begin + QUIET_S for t in committer.acknowledged) > 10, "commits"
            )
            pauses.append(committer.longest_pause_s(begin - 0.1))
    return committer, pauses


async def committed(bootstrap: str) -> int:
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    offset, error = await client.fetch(GROUP, TOPIC)
    await client.close()
    assert error == 0
    return offset


async def test_a_consumer_does_not_notice_that_its_coordinator_was_killed(tmp_path: Path) -> None:
    """Beside the same consumer without the gateway, which looks for its coordinator once a second."""
    options = ["--config", "group.initial.rebalance.delay.ms=100", "--partitions", "5", "--topic", f"{TOPIC}:2"]
    async with KafkaCluster(tmp_path / "kafka", {TOPIC: 2}, brokers=1) as kafka:
        with LocalCluster(tmp_path / "muster", *options) as muster:
            pods = await asyncio.to_thread(muster.wait_ready)
            _, direct = await killed_under_commits(muster, pods, pods)
            async with GatewayProcess(tmp_path, kafka.bootstrap, pods, {"muster.groups": "*"}) as gateway:
                committer, pauses = await killed_under_commits(muster, pods, gateway.bootstrap)
                assert committer.errors == []
                assert committer.assignments == 1
                assert await committed(gateway.bootstrap) == committer.last_offset
    print(f"longest pauses in ms, direct: {_ms(direct)}, through the gateway: {_ms(pauses)}")
    # Of a few kills beside other tests one may take long for the machine's sake: two of three hold.
    judged = max if KILLS >= 20 else statistics.median
    assert judged(pauses) < judged(direct) / 5


def _ms(pauses: list[float]) -> list[int]:
    return [round(each * 1000) for each in pauses]
