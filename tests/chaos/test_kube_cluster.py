"""A Kubernetes that does not come up takes its logs with it when it is taken down: what they say is kept before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.chaos import kube_cluster
from tests.chaos.errors import HarnessError

SHAPE = {"pods": 3, "partitions": 50, "factor": 3}


class StuckCluster:
    """A pod of it stays Pending, and then the API server answers no more."""

    def __init__(self, *, pods: int, partitions: int, factor: int) -> None: ...

    def install(self) -> None:
        raise HarnessError("not within 120 s: every pod runs")

    def last_words(self) -> str:
        return "chaos-1 Pending"

    def save_logs(self, directory: Path) -> None:
        raise subprocess.TimeoutExpired("kubectl", 60)

    def remove(self) -> None: ...


@contextmanager
def a_machine() -> Iterator[dict[str, str]]:
    yield {"MUSTER_TEST_KUBECONFIG": "kubeconfig"}


def test_what_a_cluster_said_that_does_not_come_up_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, kept = tmp_path / "state", tmp_path / "kept"
    (state / "log").mkdir(parents=True)
    (state / "log" / "kubelet.log").write_text("no room for chaos-1")
    kept.mkdir()
    monkeypatch.setattr(kube_cluster, "KubeCluster", StuckCluster)
    monkeypatch.setattr(kube_cluster.machine, "missing", list)
    monkeypatch.setattr(kube_cluster.machine, "has_kind", lambda: False)
    monkeypatch.setattr(kube_cluster.machine, "running_cluster", a_machine)
    monkeypatch.setattr(kube_cluster.machine, "localkube_setting", {"STATE": str(state)}.__getitem__)

    with pytest.raises(HarnessError, match="every pod runs"), kube_cluster.kube_cluster(kept, **SHAPE):
        pytest.fail("it came up")

    assert (kept / "kubernetes" / "kubelet.log").read_text() == "no room for chaos-1"
    assert (kept / "cluster.log").read_text() == "chaos-1 Pending"
