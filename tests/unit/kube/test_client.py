"""The client of the API server tells what it writes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from muster_operator.kube.client import KubeClient, resource_of
from muster_operator.metrics import OperatorMetrics
from muster_operator.store.port import ConflictError

TOPICS = "/apis/muster.dev/v1/namespaces/shop/offsetstopics"


class Api:
    """Answers each request with `status`, and an object."""

    def __init__(self, status: int = 200) -> None:
        self.status = status

    async def param_serialize(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return ()

    async def call_api(self, *_: Any, **__: Any) -> Any:
        async def read() -> bytes:
            return b"{}"

        return SimpleNamespace(status=self.status, read=read)


def counted(metrics: OperatorMetrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["verb"], sample.labels["resource"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "muster_operator_writes_total"
    }


def test_writes_are_counted_by_verb_and_resource_and_reads_and_dry_runs_are_not() -> None:
    metrics = OperatorMetrics()
    api: Any = Api()
    client = KubeClient(api, wrote=metrics.wrote)

    async def run() -> None:
        await client.get(f"{TOPICS}/offsets")
        await client.list_all("/api/v1/pods")
        await client.look(f"{TOPICS}/offsets")
        await client.merge(f"{TOPICS}/offsets", {}, manager="someone", dry_run=True)
        await client.merge(f"{TOPICS}/offsets", {}, manager="someone")
        await client.create("/api/v1/namespaces/shop/pods", {})
        await client.replace(f"{TOPICS}/offsets/status", {})
        await client.replace(f"{TOPICS}/offsets/status", {})
        await client.apply("/apis/apps/v1/namespaces/shop/statefulsets/small", {})
        await client.delete("/api/v1/namespaces/shop/pods/small-0", "uid")

    asyncio.run(run())
    assert counted(metrics) == {
        ("patch", "offsetstopics"): 1,
        ("create", "pods"): 1,
        ("update", "offsetstopics/status"): 2,
        ("patch", "statefulsets"): 1,
        ("delete", "pods"): 1,
    }


def test_write_that_the_api_server_refuses_counts_as_well() -> None:
    metrics = OperatorMetrics()
    api: Any = Api(409)
    client = KubeClient(api, wrote=metrics.wrote)
    with pytest.raises(ConflictError):
        asyncio.run(client.replace(f"{TOPICS}/offsets/status", {}))
    assert counted(metrics) == {("update", "offsetstopics/status"): 1}


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/shop", "namespaces"),
        ("/api/v1/nodes/n1", "nodes"),
        ("/api/v1/namespaces/shop/persistentvolumeclaims/data-0", "persistentvolumeclaims"),
        ("/apis/coordination.k8s.io/v1/namespaces/shop/leases/muster-operator", "leases"),
        ("/apis/muster.dev/v1/namespaces/shop/coordinatorclusters/small/status", "coordinatorclusters/status"),
    ],
)
def test_resource_is_named_by_its_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource
