"""The end-to-end tests' cluster: Muster installed as a person would do it, with kubectl."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.kube import REPOSITORY, custom_resources, kubectl
from tests.support.muster_cluster import MusterCluster

__all__ = ["custom_resources", "muster_cluster", "operator"]

SAMPLE = REPOSITORY / "tests" / "kubernetes" / "sample.yaml"
OPERATOR_NAMESPACE = "muster-system"


@pytest.fixture(scope="session")
def operator(custom_resources: None) -> None:
    """The operator of config/, available."""
    kubectl("apply", "-k", str(REPOSITORY / "config"))
    kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/muster-operator", "--timeout=50s")


@pytest.fixture(scope="session")
def muster_cluster(operator: None) -> Iterator[MusterCluster]:
    """The sample cluster, Ready. On failure the reason that its resources give is printed."""
    namespace = "muster-end-to-end"
    kubectl("create", "namespace", namespace)
    cluster = MusterCluster(namespace, "sample")
    try:
        kubectl("-n", namespace, "apply", "-f", str(SAMPLE))
        cluster.wait_ready()
        yield cluster
    finally:
        print(cluster.summary())
        kubectl("delete", "namespace", namespace, "--wait=false")
