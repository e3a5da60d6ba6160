"""The end-to-end tests' cluster: Muster installed as a person would do it, with kubectl."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.kube import REPOSITORY, custom_resources, install_operator, kubectl
from tests.support.muster_cluster import MusterCluster

__all__ = ["custom_resources", "muster_cluster", "operator"]

SAMPLE = REPOSITORY / "tests" / "kubernetes" / "sample.yaml"


@pytest.fixture(scope="session")
def operator(custom_resources: None) -> None:
    """The operator of config/, once; a test that runs later than others that send it away installs it again."""
    install_operator()


@pytest.fixture(scope="session")
def muster_cluster(operator: None) -> Iterator[MusterCluster]:
    """The sample cluster, Ready. On failure the reason that its resources give is printed."""
    install_operator()  # tests of the store may have sent it away since
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
