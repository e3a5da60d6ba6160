"""A leader of Muster is killed under consumers that commit all the time: through the gateway they notice nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.gateway import GatewayProcess
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import java, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until

from muster_coordinator.records.partitioner import partition_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(900),
]

TOPIC = "orders"
LIBRDKAFKA, JAVA = "committers-librdkafka", "committers-java"
"""Groups, in the same partition, so that they have one coordinator."""
PARTITIONS = 5
KILLS = int(os.environ.get("KILLS", "3"))
EVERY_S = 0.01
SOURCE = Path(__file__).parents[1] / "support" / "Committer.java"
QUIET_S = 2.0  # before the first kill, and after each one


class Committer:
    """A member that commits every 10 ms. `acknowledged`: when each commit was, on the monotonic clock."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.acknowledged: list[float] = []
        self.errors: list[str] = []
        self.assignments = 0
        self.last_offset = 0

    def longest_pause_s(self, begin: float) -> float:
        times = [each for each in self.acknowledged if each >= begin]
        return max(later - earlier for earlier, later in pairwise(times))


class JavaCommitter(Committer):
    """Kafka's own library, in a process of its own."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(JAVA)
        self._bootstrap = bootstrap

    def __enter__(self) -> JavaCommitter:
        self._process = subprocess.Popen(
            java(str(SOURCE), self._bootstrap, TOPIC, JAVA),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, text = line.strip().partition(" ")
            if kind == "committed":
                self.acknowledged.append(time.monotonic())
                self.last_offset = int(text)
            elif kind == "assigned":
                self.assignments += 1
            else:
                self.errors.append(text)


class LibrdkafkaCommitter(Committer):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(LIBRDKAFKA)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": LIBRDKAFKA,
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

    def __enter__(self) -> LibrdkafkaCommitter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

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


Pauses = dict[str, list[float]]
"""By group: the longest one at each kill, in seconds."""


async def killed_under_commits(muster: LocalCluster, pods: str, bootstrap: str) -> tuple[list[Committer], Pauses]:
    with LibrdkafkaCommitter(bootstrap) as of_librdkafka, JavaCommitter(bootstrap) as of_java:
        committers: list[Committer] = [of_librdkafka, of_java]
        pauses: Pauses = {each.group: [] for each in committers}

        def acknowledged(since: float, count: int) -> bool:
            return all(sum(t > since for t in each.acknowledged) > count for each in committers)

        await asyncio.to_thread(wait_until, lambda: acknowledged(0.0, 50), "commits")
        await asyncio.sleep(QUIET_S)
        for _ in range(KILLS):
            await asyncio.to_thread(wait_until, lambda: is_whole(muster), "a whole cluster")
            pid = leader(muster, await coordinator_of(pods, LIBRDKAFKA))
            begin = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(QUIET_S)
            await asyncio.to_thread(wait_until, lambda begin=begin: acknowledged(begin + QUIET_S, 10), "commits")
            for each in committers:
                pauses[each.group].append(each.longest_pause_s(begin - 0.1))
    return committers, pauses


async def committed(bootstrap: str, group: str) -> int:
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    offset, error = await client.fetch(group, TOPIC)
    await client.close()
    assert error == 0
    return offset


async def test_consumers_do_not_notice_that_their_coordinator_was_killed(tmp_path: Path) -> None:
    """Beside the same consumers without the gateway, which look for their coordinator once a second, or back off."""
    assert partition_for(JAVA, PARTITIONS) == partition_for(LIBRDKAFKA, PARTITIONS)
    options = ["--config", "group.initial.rebalance.delay.ms=100", "--partitions", str(PARTITIONS)]
    async with KafkaCluster(tmp_path / "kafka", {TOPIC: 2}, brokers=1) as kafka:
        with LocalCluster(tmp_path / "muster", *options, "--topic", f"{TOPIC}:2") as muster:
            pods = await asyncio.to_thread(muster.wait_ready)
            _, direct = await killed_under_commits(muster, pods, pods)
            async with GatewayProcess(tmp_path, kafka.bootstrap, pods, {"muster.groups": "*"}) as gateway:
                committers, pauses = await killed_under_commits(muster, pods, gateway.bootstrap)
                for committer in committers:
                    assert committer.errors == []
                    assert committer.assignments == 1
                    assert await committed(gateway.bootstrap, committer.group) == committer.last_offset
    for group, times in pauses.items():
        print(f"{group}: longest pauses in ms, direct: {_ms(direct[group])}, through the gateway: {_ms(times)}")
    # Of a few kills beside other tests one may take long for the machine's sake, so of these only the order is judged.
    through, straight = list(map(max, *pauses.values())), list(map(max, *direct.values()))
    if KILLS >= 20:
        assert max(through) < max(straight) / 5
    else:
        assert statistics.median(through) < max(straight)


def _ms(pauses: list[float]) -> list[int]:
    return [round(each * 1000) for each in pauses]
