"""Over many stored offsets: election of warm standbys, in three pods.

Groups have 1,000 topic partitions each. The load generator stores the offsets, 20 groups at a time, which commit them
again and again for half a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import builds
import servers
from builds import BenchError

from muster_coordinator.podapi.client import PodClient, new_session
from muster_coordinator.podapi.models import PartitionEvent, ReplicaStatus, StatusEvent
from muster_coordinator.states import ReplicaRole, ShardState

PARTITIONS = 50
TOPIC_PARTITIONS = 1000
GROUPS_AT_ONCE = 20
REWRITE_S = 0.5
STORE_TRIES = 5
SETTLED_S = 2.0
"""The time without a record replayed."""
DEADLINE_S = 120.0
SILENCE_S = 60.0
POLL_S = 0.02
ELECTION_LIMIT_MS = 100.0


def warm(directory: Path, offsets: int) -> dict[str, Any]:
    """One of three pods hands over all that it leads: how long each partition's election took. ms.

    Raises BenchError, MissingTool.
    """
    rounds = _rounds(offsets)
    with _local_up(directory / "warm", 3) as pods:
        _store(pods.bootstrap, rounds)
        _settle(pods)
        times = sorted(asyncio.run(_handover(pods)))
    stored = rounds * GROUPS_AT_ONCE * TOPIC_PARTITIONS
    return {"offsets": stored, "elections": len(times), "p50_ms": times[len(times) // 2], "max_ms": times[-1]}


def _rounds(offsets: int) -> int:
    return max(offsets // (GROUPS_AT_ONCE * TOPIC_PARTITIONS), 1)


@dataclass(frozen=True)
class _Pods:
    data: Path
    bootstrap: str

    def record(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = json.loads((self.data / "run.json").read_text(encoding="utf-8"))["pods"]
        return pods


@contextmanager
def _local_up(directory: Path, pods: int) -> Iterator[_Pods]:
    directory.mkdir(parents=True)
    data = directory / "data"
    command = [sys.executable, "-m", "muster_cli", "local", "up", "--data-dir", str(data), "--base-port", "0"]
    command += ["--pods", str(pods), "--topic", f"{servers.TOPIC}:{TOPIC_PARTITIONS}"]
    command += ["--replication-factor", str(pods), "--partitions", str(PARTITIONS)]
    with servers.process(command, directory / "muster.out") as started:
        line = servers.wait_for_line(started, directory / "muster.out", "ready bootstrap=")
        yield _Pods(data, line.split("bootstrap=")[1].split()[0])
    shutil.rmtree(directory, ignore_errors=True)


def _store(bootstrap: str, rounds: int) -> None:
    generator = builds.loadgen()
    print(f"storing {rounds * GROUPS_AT_ONCE * TOPIC_PARTITIONS:,} offsets", file=sys.stderr)
    for number in range(rounds):
        command = [str(generator), "-bootstrap", bootstrap.split(",")[0], "-topic", servers.TOPIC]
        command += ["-connections", str(GROUPS_AT_ONCE), "-partitions", str(TOPIC_PARTITIONS)]
        command += ["-group-prefix", f"stored-{number}", "-warm-up", "0s", "-duration", f"{REWRITE_S}s"]
        for tries_left in reversed(range(STORE_TRIES)):  # a busy machine may make a leader step down
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            if not tries_left:
                raise BenchError(f"load generator: {done.stderr.strip()} {done.stdout.strip()}")


def _settle(pods: _Pods) -> None:
    """Waits until followers have replayed what they got, and the disk has it: nothing later shall wait for that."""
    os.sync()
    deadline = time.monotonic() + DEADLINE_S
    before, loaded = -1.0, _records_loaded(pods)
    while loaded != before:
        _not_late(deadline, "followers have replayed their logs")
        time.sleep(SETTLED_S)
        before, loaded = loaded, _records_loaded(pods)


def _records_loaded(pods: _Pods) -> float:
    """The records that all pods have loaded, into shards and standbys."""
    total = 0.0
    for pod in pods.record():
        page = urlopen(f"http://{pod['apiAddress']}/metrics", timeout=DEADLINE_S).read().decode()
        total += sum(map(float, re.findall(r"^muster_records_loaded(?:_total)? (\S+)$", page, re.MULTILINE)))
    return total


async def _handover(pods: _Pods) -> list[float]:
    """ms of each election that the drain of the pod that leads most causes: from the first sign of its epoch, which is
    the new leader's promise, to ACTIVE."""
    async with new_session() as session:
        clients = [PodClient(session, pod["name"], pod["apiAddress"]) for pod in pods.record()]
        led = {client.pod: _led((await client.status()).partitions) for client in clients}
        victim = max(clients, key=lambda client: len(led[client.pod]))
        epochs = led[victim.pod]
        begun: dict[int, float] = {}
        took: dict[int, float] = {}
        watched: set[str] = set()

        def note(status: ReplicaStatus) -> None:
            index, now = status.partition, time.monotonic()
            if status.epoch > epochs.get(index, status.epoch):
                begun.setdefault(index, now)
                if status.state is ShardState.ACTIVE and status.role is ReplicaRole.LEADER:
                    took.setdefault(index, _ms(now - begun[index]))

        async def follow(client: PodClient) -> None:
            async for event in client.watch(SILENCE_S):
                if isinstance(event, PartitionEvent):
                    note(event.partition)
                elif isinstance(event, StatusEvent):
                    watched.add(client.pod)

        following = [asyncio.create_task(follow(client)) for client in clients]
        await _until(lambda: len(watched) == len(clients), "the streams are there")
        await victim.drain(timeout_s=DEADLINE_S)
        await _until(lambda: took.keys() >= epochs.keys(), "every partition is handed over")
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        return list(took.values())


def _led(partitions: tuple[ReplicaStatus, ...]) -> dict[int, int]:
    """Partition -> epoch in which it is led there."""
    return {
        each.partition: each.epoch
        for each in partitions
        if each.state is ShardState.ACTIVE and each.role is ReplicaRole.LEADER
    }


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


def exceeded(figures: dict[str, Any]) -> list[str]:
    """A line if the bound does not hold."""
    if figures["max_ms"] <= ELECTION_LIMIT_MS:
        return []
    return [f"election of a warm standby: max {figures['max_ms']:,.0f} ms, limit {ELECTION_LIMIT_MS:g} ms"]


def text(figures: dict[str, Any]) -> str:
    return (
        f"election of a warm standby, {figures['offsets']:,} stored offsets in {PARTITIONS} partitions: "
        f"p50 {figures['p50_ms']:,.0f} ms, max {figures['max_ms']:,.0f} ms "
        f"({figures['elections']} elections, limit of the max {ELECTION_LIMIT_MS:g} ms)"
    )
