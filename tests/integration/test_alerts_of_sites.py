"""The alerts of sites fire on their faults and go out after them: a real pod, a real follower and a real Prometheus,
which finds them as the PodMonitors of config/ say."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.local_cluster import LocalCluster, muster, wait_until
from tests.support.pod import free_ports
from tests.support.prometheus import META, Prometheus, running_prometheus

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

from alerts import TRIED_ON_SITES  # hack/ is no package

from muster_cli.local.declare import CLUSTER

pytestmark = pytest.mark.integration

FENCED, BEHIND = TRIED_ON_SITES
MINUTE_S = 1


def target(address: str, pod: str, name: str) -> dict[str, Any]:
    """The port of a pod as Prometheus' discovery of Kubernetes has it."""
    labels = {
        "pod_label_app_kubernetes_io_part_of": "muster",
        "pod_label_app_kubernetes_io_name": name,
        "namespace": "here",
        "pod_name": pod,
        "pod_phase": "Running",
        "pod_container_name": "one",
        "pod_container_port_name": "metrics",
    }
    return {"targets": [address], "labels": {META + label: value for label, value in labels.items()}}


def pods_of(data: Path) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError):
        pods = json.loads((data / "run.json").read_text())["pods"]
        return [target(each["apiAddress"], each["name"], "muster-coordinator") for each in pods]
    return []


def fires(prometheus: Prometheus, alert: str, **labels: str) -> None:
    wait_until(lambda: bool(prometheus.firing(alert)), f"{alert} fires")
    (found,) = prometheus.firing(alert)
    assert labels.items() <= found.items()


def goes_out(prometheus: Prometheus, alert: str) -> None:
    wait_until(lambda: not prometheus.firing(alert), f"{alert} goes out")


def test_site_without_a_claim_and_follower_without_a_cluster(tmp_path: Path) -> None:
    data, store, (port,) = tmp_path / "east", str(tmp_path / "store"), free_ports(1)
    arguments = ("backup", "follow", "--store", store, "--data-dir", str(data), "--every", "10", "--json")
    command = [sys.executable, "-m", "muster_cli", *arguments, "--metrics-listen", f"127.0.0.1:{port}"]

    def targets() -> list[dict[str, Any]]:
        return [target(f"127.0.0.1:{port}", "muster-follower-x", "muster-follower"), *pods_of(data)]

    with (
        running_prometheus(tmp_path, MINUTE_S, targets) as prometheus,
        (tmp_path / "rounds").open("w") as rounds,
        subprocess.Popen(command, stdout=rounds) as follower,
    ):
        try:
            fires(prometheus, BEHIND, namespace="here", cluster=str(data))
            with LocalCluster(
                data, "--pods", "1", "--partitions", "1", "--config", f"muster.site=east@{store}"
            ) as east:
                east.wait_line("ready")
                fires(prometheus, FENCED, namespace="here", pod=f"{CLUSTER.name}-0")
                goes_out(prometheus, BEHIND)
                done = muster("backup", "take-over", "--site", "east", "--store", store, "--data-dir", str(data))
                assert done.returncode == 0, done.stderr
                goes_out(prometheus, FENCED)
                assert east.stop() == 0
        finally:
            follower.terminate()
    assert follower.returncode == 0
    told = [json.loads(line) for line in (tmp_path / "rounds").read_text().splitlines()]
    assert ("nothing runs" in told[0]["trouble"], bool(told[-1]["backup"])) == (True, True)
