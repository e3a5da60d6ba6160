"""The end-to-end tests' cluster: Muster installed as a person would do it, with kubectl."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from tests.support.kube import REPOSITORY, custom_resources, install_operator, kubectl
from tests.support.muster_cluster import MusterCluster

__all__ = ["custom_resources", "muster_cluster", "operator"]

OPERATOR = "app.kubernetes.io/name=muster-operator"
SAMPLE = REPOSITORY / "tests" / "kubernetes" / "sample.yaml"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows its cluster as it is then: what is printed when the cluster goes is often whole again."""
    report = yield
    if report.failed and report.when == "call":
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, MusterCluster):
                report.sections.append(("cluster at the failure", value.summary()))
                for namespace, label in ((value.namespace, "muster.dev/gateway"), ("muster-system", OPERATOR)):
                    told = ("logs", "-n", namespace, "-l", label, "--prefix", "--tail=200")
                    report.sections.append((f"logs of {label}", kubectl(*told, check=False).stdout))
    return report


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
