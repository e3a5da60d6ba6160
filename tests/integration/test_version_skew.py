"""Operator and pods that are one version apart: what the later one sends besides is ignored, and failover works."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.local_cluster import LocalCluster, wait_until

from muster_cli.demo.consumers import committed_offsets
from muster_cli.demo.meter import Meter

pytestmark = pytest.mark.integration

ONE_PARTITION = ("--pods", "3", "--partitions", "1", "--replication-factor", "3", "--topic", "orders:1")


def partition_of_groups(cluster: LocalCluster) -> dict[str, Any]:
    return next(each for each in cluster.status()["partitions"] if each["partition"] == 0)


@pytest.mark.parametrize("later", ["operator", "pods"])
def test_groups_are_elected_moved_and_kept_although_one_side_is_of_a_later_version(tmp_path: Path, later: str) -> None:
    with LocalCluster(tmp_path / "data", *ONE_PARTITION, command=("tests.support.later_version", later)) as cluster:
        bootstrap = cluster.wait_ready()
        meter = Meter(bootstrap, "billing", "orders")
        meter.start()
        wait_until(lambda: meter.count > 20, "a client commits")
        before = partition_of_groups(cluster)
        victim = next(pod for pod in cluster.status()["pods"] if pod["name"] == before["leader"])
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda: partition_of_groups(cluster)["epoch"] > before["epoch"], "another epoch is led")
        count = meter.count
        wait_until(lambda: meter.count > count + 20, "the client commits again")
        meter.stop()
        assert meter.error is None
        found = committed_offsets(bootstrap, "billing", "orders", 1, 20.0)
        assert found[0] in (meter.count, meter.count + 1)
        assert cluster.stop() == 0
