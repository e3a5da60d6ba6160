"""Fixtures for tests against a real API server, which MUSTER_TEST_KUBECONFIG names (see tests/conftest.py).

Import `api_server` and `namespace` into the test module; both are skipped with one line when there is none.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from muster_operator.kube.client import KubeClient, connect
from muster_operator.kube.objects_seen import RESOURCES

REPOSITORY = Path(__file__).parents[2]
NAMESPACE_WITHOUT_OPERATOR = "test-"
"""The begin of the names of namespaces in which no operator is about, and tests write what they like."""


def kubectl(
    *arguments: str, stdin: str | None = None, check: bool = True, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run kubectl; its output is text. What it says of a failure is printed. Raises CalledProcessError."""
    command = ["kubectl", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s)
    if check and done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return done


def kubectl_when_ready(*arguments: str) -> None:
    """The same once the API server takes it: after a change of definitions or policies it refuses requests for some
    seconds (429, "storage is (re)initializing"). Raises CalledProcessError after half a minute.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if kubectl(*arguments, check=False).returncode == 0:
            return
        time.sleep(0.5)
    kubectl(*arguments)


def secret_files(namespace: str, name: str) -> dict[str, bytes]:
    """The content of a Secret, by key."""
    found = json.loads(kubectl("-n", namespace, "get", "secret", name, "-o", "json").stdout)
    return {file: base64.b64decode(each) for file, each in found["data"].items()}


def node_is_gone(namespace: str, claim: str) -> None:
    """The claim's volume says that only a node can use it which does not exist: as after the node was deleted."""
    admin = ("--kubeconfig", os.environ["MUSTER_TEST_KUBECONFIG"])
    volume = kubectl(*admin, "get", "pvc", claim, "-n", namespace, "-o", "jsonpath={.spec.volumeName}").stdout
    gone = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gone"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [gone]}]}}
    body = json.dumps({"spec": {"nodeAffinity": affinity}})
    kubectl(*admin, "patch", "pv", volume, "--type=merge", "-p", body)


@pytest.fixture(scope="session")
def custom_resources() -> None:
    """The CRDs of this tree, established in the API server."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("needs a Kubernetes for tests: make test-kubernetes, or MUSTER_TEST_KUBECONFIG (a path)")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(REPOSITORY / "crds"))
    for each in RESOURCES:
        kubectl_when_ready("get", each.plural, "-A")


def as_list(objects: Iterable[dict[str, Any]]) -> str:
    """Objects as kubectl of every supported version reads them: 1.32 takes no JSON documents with `---` between."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})


def install_operator() -> None:
    """The operator of config/, available, whatever tests before have done to it."""
    kubectl("apply", "-k", str(REPOSITORY / "config"))
    kubectl("-n", "muster-system", "rollout", "status", "deployment/muster-operator", "--timeout=50s")


def bring_operator_back() -> None:
    """Have the operator of config/ again if a test before has sent it away."""
    asked = ("-n", "muster-system", "get", "deployment/muster-operator", "-o", "jsonpath={.spec.replicas}")
    if kubectl(*asked, check=False).stdout in ("", "0"):
        install_operator()


def send_operator_away() -> None:
    """Scale an installed operator to nothing: it would act on the objects that a test of the store creates."""
    operator = ("-n", "muster-system", "deployment/muster-operator")
    if kubectl("get", *operator, check=False).returncode == 0:
        kubectl("scale", *operator, "--replicas=0")
        selector = "app.kubernetes.io/name=muster-operator"
        kubectl("wait", "-n", "muster-system", "--for=delete", "pod", "-l", selector, "--timeout=50s")


@contextmanager
def new_namespace() -> Iterator[str]:
    """A namespace with no operator about, deleted in the end."""
    send_operator_away()
    name = f"{NAMESPACE_WITHOUT_OPERATOR}{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl_when_ready("delete", "namespace", name, "--wait=false")


@pytest.fixture
def namespace(custom_resources: None) -> Iterator[str]:
    """A namespace of this test's own, with no operator about."""
    with new_namespace() as name:
        yield name


@pytest.fixture(scope="module")
def shared_namespace(custom_resources: None) -> Iterator[str]:
    """A namespace of all tests of a module that leave nothing there which another would meet."""
    with new_namespace() as name:
        yield name


@pytest_asyncio.fixture
async def api_server(custom_resources: None) -> AsyncIterator[KubeClient]:
    """A client of the operator's own kind."""
    client = await connect()
    yield client
    await client.close()
