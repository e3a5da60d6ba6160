"""The end-to-end tests' cluster: Muster installed as a person would do it, with kubectl."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kube import REPOSITORY, bring_operator_back, custom_resources, install_operator, kubectl
from tests.support.muster_cluster import MusterCluster
from tests.support.watched_objects import WatchedObjects, watched_objects

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


@pytest.fixture(scope="session", autouse=True)
def watched() -> Iterator[WatchedObjects]:
    """What all tests of this session bring the custom resources into, for tests/kubernetes/test_whole_states.py."""
    with watched_objects(bool(os.environ.get("KUBECONFIG"))) as found:
        yield found


@pytest.fixture(scope="module")
def operator(custom_resources: None) -> None:
    """The operator of config/, whatever the modules before have done to it."""
    install_operator()


@pytest.fixture(scope="session")
def sample(custom_resources: None) -> Iterator[MusterCluster]:
    """The sample cluster, Ready. On failure the reason that its resources give is printed."""
    install_operator()
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


@pytest.fixture
def muster_cluster(sample: MusterCluster) -> MusterCluster:
    """The sample cluster, with an operator, whatever the test before has done to it."""
    bring_operator_back()
    return sample


@pytest.fixture(scope="session")
def roles(sample: MusterCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kubeconfigs of three people: one without a role in the namespace of the sample, one who may look, and one who may
    act as well."""
    folder, namespace = tmp_path_factory.mktemp("people"), sample.namespace
    bound = {"nobody": (), "looks": ("muster-view",), "acts": ("muster-view", "muster-operate")}
    for account, of_account in bound.items():
        kubectl("-n", namespace, "create", "serviceaccount", account)
        for role in of_account:
            binding = ("create", "rolebinding", f"{account}-{role}", f"--clusterrole={role}")
            kubectl("-n", namespace, *binding, f"--serviceaccount={namespace}:{account}")
        token = kubectl("-n", namespace, "create", "token", account).stdout.strip()
        config: dict[str, Any] = yaml.safe_load(kubectl("config", "view", "--raw", "--minify", "--flatten").stdout)
        config["users"][0]["user"] = {"token": token}
        config["contexts"][0]["context"]["namespace"] = namespace
        (folder / account).write_text(yaml.safe_dump(config))
    return {account: folder / account for account in bound}
