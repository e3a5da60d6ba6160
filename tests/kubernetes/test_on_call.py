"""`kubectl muster` against a real API server, with the rights of muster-view and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kube import kubectl
from tests.support.muster_cluster import MusterCluster, wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

ACCOUNT = "on-call"


@pytest.fixture
def kubeconfig(muster_cluster: MusterCluster, tmp_path: Path) -> Iterator[Path]:
    """For a service account that is bound to muster-view in the namespace of the sample."""
    namespace = muster_cluster.namespace
    kubectl("-n", namespace, "create", "serviceaccount", ACCOUNT)
    binding = ("create", "rolebinding", ACCOUNT, "--clusterrole=muster-view")
    kubectl("-n", namespace, *binding, f"--serviceaccount={namespace}:{ACCOUNT}")
    token = kubectl("-n", namespace, "create", "token", ACCOUNT).stdout.strip()
    config: dict[str, Any] = yaml.safe_load(kubectl("config", "view", "--raw", "--minify", "--flatten").stdout)
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = namespace
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    yield file
    kubectl("-n", namespace, "delete", "rolebinding,serviceaccount", ACCOUNT)


def muster(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "muster_cli", *arguments, "--kubeconfig", str(kubeconfig))
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_status_with_the_view_role_tells_of_pods_partitions_and_the_operator(
    kubeconfig: Path, muster_cluster: MusterCluster
) -> None:
    def healthy() -> bool:
        return muster(kubeconfig, "status", "--json").returncode == 0

    wait_until(healthy, "the sample cluster is healthy", 60)
    told = json.loads(muster(kubeconfig, "status", "--json").stdout)
    (cluster,) = told["clusters"]
    assert (cluster["name"], cluster["led"]) == (muster_cluster.name, len(cluster["partitions"]))
    assert cluster["operator"]
    assert len(cluster["pods"]) == cluster["declared_pods"]
    assert "NotAsked" not in [each["reason"] for each in cluster["notes"]]


def test_doctor_with_the_view_role_reads_all_that_is_in_the_namespace(
    kubeconfig: Path, muster_cluster: MusterCluster
) -> None:
    result = muster(kubeconfig, "doctor", "--json")
    assert result.returncode in (0, 1), result.stderr
    (told,) = json.loads(result.stdout)
    levels = {each["check"]: each["level"] for each in told["findings"]}
    assert told["cluster"] == muster_cluster.name
    assert (levels["disruptions"], levels["kubernetes"]) == ("ok", "ok")
    unknown = {check for check, level in levels.items() if level == "unknown"}
    assert unknown <= {"zones", "storage class"}, "the others are in the namespace, where muster-view is bound"


def test_bundle_with_the_view_role_has_logs_and_events_and_lacks_metrics_alone(
    kubeconfig: Path, muster_cluster: MusterCluster, tmp_path: Path
) -> None:
    file = tmp_path / "b.tar.gz"
    result = muster(kubeconfig, "bundle", "--output", str(file))
    assert result.returncode == 0, result.stderr
    with tarfile.open(file) as archive:
        names = archive.getnames()
    folder = f"b/logs/{muster_cluster.namespace}/{muster_cluster.name}-0"
    assert f"{folder}/coordinator.log" in names
    assert f"b/objects/{muster_cluster.namespace}/events.json" in names
    elsewhere = ("metrics/", "/api/v1/nodes", "/apis/storage.k8s.io", "pods of namespace muster-system")
    missing = [line.removeprefix("missing: ") for line in result.stderr.splitlines()]
    assert [line for line in missing if not line.startswith(elsewhere)] == []
