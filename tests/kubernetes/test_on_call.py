"""`kubectl muster` against a real API server, with the rights of muster-view and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.support.muster_cluster import MusterCluster, wait_until

from muster_coordinator.records.partitioner import partition_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]


def muster(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "muster_cli", *arguments, "--kubeconfig", str(kubeconfig))
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_status_with_the_view_role_tells_of_pods_partitions_and_the_operator(
    roles: dict[str, Path], muster_cluster: MusterCluster
) -> None:
    def healthy() -> bool:
        return muster(roles["looks"], "status", "--json").returncode == 0

    wait_until(healthy, "the sample cluster is healthy", 60)
    told = json.loads(muster(roles["looks"], "status", "--json").stdout)
    (cluster,) = told["clusters"]
    assert (cluster["name"], cluster["led"]) == (muster_cluster.name, len(cluster["partitions"]))
    assert cluster["operator"]
    assert len(cluster["pods"]) == cluster["declared_pods"]
    assert "NotAsked" not in [each["reason"] for each in cluster["notes"]]


def test_doctor_with_the_view_role_reads_all_that_is_in_the_namespace(
    roles: dict[str, Path], muster_cluster: MusterCluster
) -> None:
    result = muster(roles["looks"], "doctor", "--json")
    assert result.returncode in (0, 1), result.stderr
    (told,) = json.loads(result.stdout)
    levels = {each["check"]: each["level"] for each in told["findings"]}
    assert told["cluster"] == muster_cluster.name
    assert (levels["disruptions"], levels["kubernetes"]) == ("ok", "ok")
    unknown = {check for check, level in levels.items() if level == "unknown"}
    assert unknown <= {"zones", "storage class"}, "the others are in the namespace, where muster-view is bound"


def test_bundle_with_the_view_role_has_logs_and_events_and_lacks_metrics_alone(
    roles: dict[str, Path], muster_cluster: MusterCluster, tmp_path: Path
) -> None:
    file = tmp_path / "b.tar.gz"
    result = muster(roles["looks"], "bundle", "--output", str(file))
    assert result.returncode == 0, result.stderr
    with tarfile.open(file) as archive:
        names = archive.getnames()
    folder = f"b/logs/{muster_cluster.namespace}/{muster_cluster.name}-0"
    assert f"{folder}/coordinator.log" in names
    assert f"b/objects/{muster_cluster.namespace}/events.json" in names
    elsewhere = ("metrics/", "/api/v1/nodes", "/apis/storage.k8s.io", "pods of namespace muster-system")
    missing = [line.removeprefix("missing: ") for line in result.stderr.splitlines()]
    assert [line for line in missing if not line.startswith(elsewhere)] == []


def test_explain_with_the_view_role_says_where_a_partition_and_a_group_are(
    roles: dict[str, Path], muster_cluster: MusterCluster
) -> None:
    partitions = muster_cluster.partitions()
    number = partition_for("billing", len(partitions))
    for about in ((str(number),), ("billing", "--group")):
        result = muster(roles["looks"], "explain", *about, "--json")
        assert result.returncode == 0, result.stderr
        (told,) = json.loads(result.stdout)
        assert (told["kafka_name"], told["state"]) == (f"__consumer_offsets-{number}", "Led")
        assert told["leader"] == partitions[number].leader
