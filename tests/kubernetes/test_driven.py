"""The commands that change something, on a real Kubernetes with the rights of muster-view and muster-operate alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.test_on_call import muster
from tests.support.muster_cluster import MusterCluster, wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]


def done(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stdout + result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["done"], told
    return told


def leads(cluster: MusterCluster, pod: str) -> int:
    return sum(each.leader == pod for each in cluster.partitions().values())


def test_leaders_are_moved_pods_drained_fenced_and_restarted(
    roles: dict[str, Path], muster_cluster: MusterCluster
) -> None:
    cluster, acts = muster_cluster, roles["acts"]
    first, last = f"{cluster.name}-0", f"{cluster.name}-2"
    wait_until(lambda: muster(acts, "status").returncode == 0, "the sample cluster is healthy", 60)

    number = next(each.index for each in cluster.partitions().values() if each.leader == last)
    assert muster(acts, "move", str(number), first, "--dry-run").returncode == 0
    assert cluster.partitions()[number].leader == last
    epoch = cluster.partitions()[number].epoch
    done(muster(acts, "move", str(number), first, "--json", "--timeout", "60"))
    assert cluster.partitions()[number].leader == first
    assert cluster.partitions()[number].epoch > epoch
    done(muster(acts, "move", str(number), "--undo", "--json"))

    done(muster(acts, "drain", first, "--json", "--timeout", "60"))
    assert leads(cluster, first) == 0
    done(muster(acts, "drain", first, "--undo", "--json"))
    wait_until(lambda: leads(cluster, first) > 0, "the drained pod leads again", 60)

    uids = {pod.name: pod.uid for pod in cluster.pods()}
    done(muster(acts, "restart", last, "--json", "--timeout", "150"))
    assert [pod.name for pod in cluster.pods() if pod.uid != uids[pod.name]] == [last]

    wait_until(lambda: muster(acts, "status").returncode == 0, "the sample cluster is healthy again", 90)
    done(muster(acts, "fence", first, "--json", "--timeout", "60"))
    assert leads(cluster, first) == 0
    assert "fenced" in muster(acts, "status").stdout
    done(muster(acts, "fence", first, "--undo", "--json"))
    names = {pod.name for pod in cluster.pods()}
    wait_until(lambda: all(leads(cluster, pod) for pod in names), "the cluster is as the next test expects it", 120)
    led = muster(acts, "allow-data-loss", str(number), "--yes")
    assert (led.returncode, "there is no loss to allow" in led.stderr) == (1, True)
