"""A pod is followed while it leads, dies, comes back and follows itself: all that is committed is seen, and no more."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.local_cluster import WAIT_TIMEOUT_S, LocalCluster

from muster_cli.demo.consumers import GroupConsumer
from muster_pipeline.decode.decoder import Decoder
from muster_pipeline.decode.schema import SCHEMA
from muster_pipeline.source.files import find_segments
from muster_pipeline.source.follow import Positions, advance, ranges
from muster_pipeline.source.places import open_segment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUP, TOPIC = "followed", "orders"
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
                batches += Decoder(fail_fast=True).decode(
                    source, split.segment.offsets_partition, split.start, split.end
                )
        self.rows += pa.Table.from_batches(batches, SCHEMA).drop_columns(["file", "position"]).to_pylist()
        self._at = end
        return max((row["committed_offset"] for row in self.rows if row["kind"] == "offset_commit"), default=0)


def read_until(follower: Follower, consumer: GroupConsumer, more: int) -> None:
    """Until ``more`` further commits were acknowledged and seen by the follower."""
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
