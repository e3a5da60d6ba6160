"""What is protected is not deleted, and what is not says where its volumes go."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.support.kube import REPOSITORY, custom_resources, kubectl, namespace
from tests.support.muster_cluster import wait_until

__all__ = ["custom_resources", "namespace"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(120)]

POLICIES = REPOSITORY / "config" / "deletion-protection.yaml"


@pytest.fixture
def protected(namespace: str) -> Iterator[str]:
    """A namespace in which the policies act. They take a moment after they are created."""
    kubectl("apply", "-f", str(POLICIES))
    probe = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{namespace}-probe"}}
    probe["metadata"]["labels"] = {"muster.dev/deletion-protection": "true"}  # type: ignore[index]
    kubectl("apply", "-f", "-", stdin=json.dumps(probe))

    def acts() -> bool:
        return kubectl("delete", "namespace", f"{namespace}-probe", "--dry-run=server", check=False).returncode != 0

    wait_until(acts, "the policies act", 30)
    yield namespace
    kubectl("label", "namespace", f"{namespace}-probe", "muster.dev/deletion-protection-")
    kubectl("delete", "namespace", f"{namespace}-probe", "--wait=false")


def declared(kind: str, name: str, spec: dict[str, object]) -> str:
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return json.dumps(body)


OBJECTS = {
    "CoordinatorCluster": {"deletionProtection": True},
    "OffsetsTopic": {"clusterRef": {"name": "a"}, "deletionProtection": True},
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_protected_object_is_deleted_only_after_its_protection(protected: str, kind: str) -> None:
    kubectl("apply", "-n", protected, "-f", "-", stdin=declared(kind, "a", OBJECTS[kind]))  # type: ignore[arg-type]
    refused = kubectl("delete", "-n", protected, kind, "a", "--wait=false", check=False)
    assert refused.returncode != 0
    command = refused.stderr.split("first, with ", 1)[1].strip()
    assert command.startswith(f"kubectl -n {protected} patch {kind.lower()} a")
    kubectl(*(word.strip("'") for word in command.split()[1:]))
    kubectl("delete", "-n", protected, kind, "a", "--wait=false")


def test_object_without_protection_is_deleted(protected: str) -> None:
    kubectl("apply", "-n", protected, "-f", "-", stdin=declared("CoordinatorCluster", "b", {}))
    kubectl("delete", "-n", protected, "coordinatorcluster", "b", "--wait=false")


def test_namespace_with_the_label_is_not_deleted(protected: str) -> None:
    refused = kubectl("delete", "namespace", f"{protected}-probe", "--wait=false", check=False)
    assert refused.returncode != 0
    assert f"kubectl label namespace {protected}-probe muster.dev/deletion-protection-" in refused.stderr
