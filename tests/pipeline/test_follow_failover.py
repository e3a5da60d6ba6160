"""A pod is followed while it leads, dies, comes back and follows itself: all that is committed is seen, and no more.

Nor is what it wrote as a leader without followers, and the next leader takes back.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.kafka import KafkaClient, commit_request
from tests.support.local_cluster import WAIT_TIMEOUT_S, LocalCluster, wait_until

from muster_cli.demo.consumers import GroupConsumer
from muster_coordinator.errors import ErrorCode
from muster_pipeline.decode.decoder import Decoder
from muster_pipeline.decode.schema import SCHEMA
from muster_pipeline.source.files import find_segments
from muster_pipeline.source.follow import Positions, advance, ranges
from muster_pipeline.source.locations import open_segment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUP, TOPIC = "followed", "orders"
TO_BE_TRIED_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
Rows = list[dict[str, Any]]


class Follower:
    """Reads on with every call, as a stream's micro-batches do."""

    def __init__(self, pod: str) -> None:
        self.pod = f"http://{pod}"
        self.rows: Rows = []
        self._at: Positions = {}

    def read(self) -> int:
        """Returns the highest committed offset of the group so far."""
        segments = find_segments([self.pod])
        end = advance(segments, self._at)
        batches: list[pa.RecordBatch] = []
        for split in ranges(segments, self._at, end):
            with open_segment(split.segment.path) as source:
                batches += Decoder(fail_fast=True).decode(source, split.segment.origin(split.start), split.end)
        self.rows += pa.Table.from_batches(batches, SCHEMA).drop_columns(["file", "position"]).to_pylist()
        self._at = end
        return max((row["committed_offset"] for row in self.rows if row["kind"] == "offset_commit"), default=0)


def read_until(follower: Follower, consumer: GroupConsumer, more: int) -> None:
    """Until `more` further commits were acknowledged and seen by the follower."""
    wanted = consumer.acknowledged.get(0, 0) + more
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while follower.read() < wanted:
        assert consumer.error is None
        assert time.monotonic() < deadline, f"{follower.read()} of {wanted} commits seen"


def test_follower_of_a_killed_leader_ends_with_exactly_the_committed_records(tmp_path: Path) -> None:
    options = ("--pods", "3", "--partitions", "1", "--replication-factor", "3", "--topic", f"{TOPIC}:1")
    with LocalCluster(tmp_path / "data", *options) as cluster:
        consumer = GroupConsumer(cluster.wait_ready(), GROUP, TOPIC, "member")
        consumer.start()
        pods = {pod["name"]: pod for pod in json.loads((tmp_path / "data" / "run.json").read_text())["pods"]}
        leader = cluster.status()["partitions"][0]["leader"]
        follower = Follower(pods[leader]["apiAddress"])
        read_until(follower, consumer, 10)
        os.kill(pods[leader]["process"]["pid"], signal.SIGKILL)
        read_until(follower, consumer, 10)  # asks the pod again until it is back
        consumer.stop()
        assert consumer.error is None
        other = next(Follower(pod["apiAddress"]) for name, pod in pods.items() if name != leader)
        acknowledged = consumer.acknowledged[0]
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while min(follower.read(), other.read()) < acknowledged or len(follower.rows) != len(other.rows):
            assert time.monotonic() < deadline, f"{len(follower.rows)} and {len(other.rows)} rows"
        assert follower.rows == other.rows
        commits = [row["committed_offset"] for row in follower.rows if row["kind"] == "offset_commit"]
        assert set(range(1, acknowledged + 1)) <= set(commits)
        offsets = [row["offset"] for row in follower.rows]
        assert offsets == sorted(set(offsets))
        assert cluster.stop() == 0


class Pods:
    """The pods of a cluster, as its run record has them at each look."""

    def __init__(self, data: Path) -> None:
        self._file = data / "run.json"

    def all(self) -> dict[str, dict[str, Any]]:
        return {pod["name"]: pod for pod in json.loads(self._file.read_text())["pods"]}

    def pid(self, name: str) -> int:
        process = self.all()[name]["process"]
        return -1 if process is None else int(process["pid"])

    def partition(self, name: str) -> dict[str, Any]:
        """What the pod says of partition 0, in the API's names; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.all()[name]['apiAddress']}/v1/partitions", timeout=5) as answer:
                found = json.loads(answer.read())["partitions"]
        except OSError:
            return {}
        return dict(found[0]) if found else {}

    def next_leader(self, names: Sequence[str]) -> str:
        """The first of them that is seen to lead. That answer stands: the next one may differ."""
        found: list[str] = []

        def leads() -> bool:
            found.extend(name for name in names if _leads(self.partition(name)))
            return bool(found)

        wait_until(leads, "another pod leads")
        return found[0]

    def freeze_next(self, name: str, pid: int) -> int:
        """Stops the process that comes after `pid` as soon as there is one, and returns its pid."""
        wait_until(lambda: self.pid(name) not in (-1, pid), "the killed pod was started again")
        os.kill(self.pid(name), signal.SIGSTOP)
        return self.pid(name)


async def commits(address: str, first: int, last: int) -> int:
    """Commits the offsets from `first` on. Returns the first one that the leader could not commit, `last` if there is
    none: one that does not hear a majority may step down, and a client asks again then.
    """
    host, _, port = address.partition(":")
    client = await KafkaClient.connect(int(port), host)
    try:
        for offset in range(first, last):
            if code := await client.commit(GROUP, offset, TOPIC):
                assert code in TO_BE_TRIED_AGAIN
                return offset
        return last
    finally:
        await client.close()


def commits_by_next_leader(pods: Pods, names: Sequence[str], first: int, last: int) -> str:
    """Until one of these pods has committed the last of the offsets; returns that one."""
    leader, done = "", first

    def all_committed() -> bool:
        nonlocal leader, done
        leader = pods.next_leader(names)
        done = asyncio.run(commits(pods.all()[leader]["kafkaAddress"], done, last))
        return done == last

    wait_until(all_committed, f"the offsets up to {last - 1} are committed")
    return leader


async def commits_without_answer(
    address: str, offset: int, count: int, followers: Sequence[int], appended: Callable[[], bool]
) -> None:
    """`count` commits of `offset` that the leader writes, and cannot answer: its `followers` (pids) are frozen.

    At the last moment: it steps down when it has not heard them for a second, and must have the commits before.
    """
    host, _, port = address.partition(":")
    client = await KafkaClient.connect(int(port), host)
    for pid in followers:
        os.kill(pid, signal.SIGSTOP)
    for _ in range(count):
        client.send(commit_request(GROUP, [(TOPIC, 0, offset)]))
    await asyncio.to_thread(wait_until, appended, "the leader wrote what it cannot commit")
    await client.close()


LOST = 777_777


def test_stream_ends_with_exactly_the_committed_records_after_a_tail_was_taken_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = ("--pods", "3", "--partitions", "1", "--replication-factor", "3", "--topic", f"{TOPIC}:1")
    data = tmp_path / "data"
    with LocalCluster(data, *options) as cluster:
        cluster.wait_ready()
        pods = Pods(data)
        leader = commits_by_next_leader(pods, list(pods.all()), 1, 21)
        others = [name for name in pods.all() if name != leader]
        stream = (
            spark.readStream.format("muster_offsets")
            .option("mode", "FAILFAST")
            .load(f"http://{pods.all()[leader]['apiAddress']}")
        )
        running = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "rows"))
        )
        running.processAllAvailable()
        before = pods.partition(leader)["logEndOffset"]
        asyncio.run(
            commits_without_answer(
                pods.all()[leader]["kafkaAddress"],
                LOST,
                5,
                [pods.pid(name) for name in others],
                lambda: pods.partition(leader).get("logEndOffset", -1) >= before + 5,
            )
        )
        running.processAllAvailable()
        dead = pods.pid(leader)
        os.kill(dead, signal.SIGKILL)
        for name in others:
            os.kill(pods.pid(name), signal.SIGKILL)  # and with them what the leader sent and they did not read yet
        frozen = pods.freeze_next(leader, dead)
        new = commits_by_next_leader(pods, others, 21, 41)
        os.kill(frozen, signal.SIGCONT)
        end = pods.partition(new)["logEndOffset"]
        wait_until(lambda: pods.partition(leader).get("highWatermark", -1) >= end, "the former leader caught up")
        running.processAllAvailable()
        running.stop()
        found = sorted(_rows(spark.read.parquet(str(tmp_path / "rows"))))
        served = spark.read.format("muster_offsets").load(f"http://{pods.all()[new]['apiAddress']}")
        assert found == sorted(row for row in _rows(served) if row[0] <= found[-1][0])
        committed = dict.fromkeys(row[2] for row in found if row[1] == "offset_commit")
        assert list(committed) == list(range(1, 41)), "some twice, if a leader could not say that it had committed them"
        assert cluster.stop() == 0


def _leads(partition: dict[str, Any]) -> bool:
    return partition.get("role") == "leader" and partition.get("state") == "ACTIVE"


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select("offset", "kind", "committed_offset", "leader_epoch").collect()]
