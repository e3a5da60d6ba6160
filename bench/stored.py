"""Over many stored offsets: election of warm standbys (three pods), and the cold start of a single pod, beside Kafka's.

The load generator stores the offsets: groups with 1,000 topic partitions each, 50 groups at a time, which commit them
again and again for half a second, so that the log is several times as long as what it comes to.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builds
import servers
from builds import BenchError

from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.models import PartitionEvent, PartitionStatus, StatusEvent

TOPIC_PARTITIONS = 1000
GROUPS_AT_ONCE = 50
REWRITE_S = 0.5
DEADLINE_S = 120.0
SILENCE_S = 60.0
POLL_S = 0.02
CHECKPOINT = "muster.checkpoint.interval.bytes=1048576"
"""Smaller than by default: so that a log of this length has one, and a tail behind it."""


def measure(directory: Path, offsets: int) -> dict[str, Any]:
    """All times in ms. Raises BenchError, MissingTool."""
    generator = builds.loadgen()
    rounds = max(offsets // (GROUPS_AT_ONCE * TOPIC_PARTITIONS), 1)
    report = {"offsets": rounds * GROUPS_AT_ONCE * TOPIC_PARTITIONS, "standby": standby(directory, generator, rounds)}
    return report | {"cold_start": cold_start(directory, generator, rounds)}


def standby(directory: Path, generator: Path, rounds: int) -> dict[str, Any]:
    """One of three pods hands over all that it leads: how long each partition's new leader took."""
    with _local_up(directory / "standby", 3) as pods:
        _store(generator, pods.bootstrap, rounds)
        times = asyncio.run(_handover(pods))
    times.sort()
    return {"elections": len(times), "p50_ms": times[len(times) // 2], "max_ms": times[-1]}


def cold_start(directory: Path, generator: Path, rounds: int) -> dict[str, Any]:
    """SIGKILL of a single pod: from the start of its next process until it leads everything."""
    with _local_up(directory / "cold", 1, CHECKPOINT) as pods:
        _store(generator, pods.bootstrap, rounds)
        before = pods.pids()
        os.kill(before[0], signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_S
        while not pods.pids() or pods.pids() == before:
            _not_late(deadline, "the pod is started again")
            time.sleep(POLL_S)
        started = time.monotonic()
        asyncio.run(_all_active(pods, deadline))
        return {"ms": _ms(time.monotonic() - started)}


@dataclass(frozen=True)
class _Pods:
    data: Path
    bootstrap: str

    def record(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = json.loads((self.data / "run.json").read_text(encoding="utf-8"))["pods"]
        return pods

    def pids(self) -> list[int]:
        return [pod["process"]["pid"] for pod in self.record() if pod["process"]]


@contextmanager
def _local_up(directory: Path, pods: int, *config: str) -> Iterator[_Pods]:
    directory.mkdir(parents=True)
    data = directory / "data"
    command = [sys.executable, "-m", "muster_cli", "local", "up", "--data-dir", str(data), "--base-port", "0"]
    command += ["--pods", str(pods), "--topic", f"{servers.TOPIC}:{TOPIC_PARTITIONS}"]
    command += ["--replication-factor", str(pods)]
    command += [argument for setting in config for argument in ("--config", setting)]
    with servers.process(command, directory / "muster.out") as started:
        line = servers.wait_for_line(started, directory / "muster.out", "ready bootstrap=")
        yield _Pods(data, line.split("bootstrap=")[1].split()[0])
    shutil.rmtree(directory, ignore_errors=True)


def _store(generator: Path, bootstrap: str, rounds: int) -> None:
    print(f"storing {rounds * GROUPS_AT_ONCE * TOPIC_PARTITIONS:,} offsets", file=sys.stderr)
    for number in range(rounds):
        command = [str(generator), "-bootstrap", bootstrap.split(",")[0], "-topic", servers.TOPIC]
        command += ["-connections", str(GROUPS_AT_ONCE), "-partitions", str(TOPIC_PARTITIONS)]
        command += ["-group-prefix", f"stored-{number}", "-warm-up", "0s", "-duration", f"{REWRITE_S}s"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"load generator: {done.stderr.strip()} {done.stdout.strip()}")


async def _handover(pods: _Pods) -> list[float]:
    """ms of each election that the drain of the pod that leads most causes: from the first sign of it to ACTIVE."""
    async with new_session() as session:
        clients = [PodClient(session, pod["name"], pod["apiAddress"]) for pod in pods.record()]
        led = {client.pod: len(_led((await client.status()).partitions)) for client in clients}
        victim = max(clients, key=lambda client: led[client.pod])
        others = [client for client in clients if client is not victim]
        begun: dict[int, float] = {}
        took: dict[int, float] = {}

        async def follow(client: PodClient) -> None:
            async for event in client.watch(SILENCE_S):
                if isinstance(event, PartitionEvent) and event.partition.role == "leader":
                    _note(event.partition, begun, took)
                elif isinstance(event, StatusEvent):
                    took.update(dict.fromkeys(_led(event.status.partitions), -1.0))

        following = [asyncio.create_task(follow(client)) for client in others]
        await _until(lambda: len(took) == sum(led[client.pod] for client in others), "the streams are there")
        had = set(took)
        await victim.drain(timeout_s=DEADLINE_S)
        await _until(lambda: len(took.keys() - had) == led[victim.pod], "every partition is handed over")
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        return [took[index] for index in took.keys() - had]


def _note(status: PartitionStatus, begun: dict[int, float], took: dict[int, float]) -> None:
    now = time.monotonic()
    if status.state == "ACTIVE":
        took.setdefault(status.partition, _ms(now - begun.get(status.partition, now)))
    else:
        begun.setdefault(status.partition, now)


async def _all_active(pods: _Pods, deadline: float) -> None:
    async with new_session() as session:
        [pod] = pods.record()
        client = PodClient(session, pod["name"], pod["apiAddress"])
        while True:
            try:
                partitions = (await client.status()).partitions
                if partitions and len(_led(partitions)) == len(partitions):
                    return
            except PodApiError:
                pass
            _not_late(deadline, "the pod leads everything again")
            await asyncio.sleep(POLL_S)


def _led(partitions: tuple[PartitionStatus, ...]) -> list[int]:
    return [each.partition for each in partitions if each.state == "ACTIVE" and each.role == "leader"]


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        _not_late(deadline, what)
        await asyncio.sleep(POLL_S)


def _not_late(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise BenchError(f"not within {DEADLINE_S:g} s: {what}")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def text(figures: dict[str, Any]) -> str:
    warm, cold = figures["standby"], figures["cold_start"]
    return (
        f"over {figures['offsets']:,} stored offsets:\n"
        f"election of a warm standby: p50 {warm['p50_ms']:,.0f} ms, max {warm['max_ms']:,.0f} ms "
        f"({warm['elections']} partitions at once)\n"
        f"cold start of a pod until it leads everything: {cold['ms']:,.0f} ms"
    )
