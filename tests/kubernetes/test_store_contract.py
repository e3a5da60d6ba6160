"""The store over a real API server against the contract of every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.support.kube import api_server, custom_resources, kubectl, send_operator_away
from tests.unit.operator.store_contract import NAMESPACE, StoreContract, Subject

from muster_operator.api.models import Resource
from muster_operator.kube.client import KubeClient
from muster_operator.kube.objects import API_VERSION, object_path
from muster_operator.kube.run import sources
from muster_operator.kube.store import KubeStore
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey
from muster_operator.watch.watcher import Watcher

__all__ = ["api_server", "custom_resources"]

pytestmark = pytest.mark.kubernetes


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_null(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_null(each) for each in value]
    return value


@pytest_asyncio.fixture
async def store(api_server: KubeClient) -> AsyncIterator[Subject]:
    """A store with a running watch over an empty namespace; `apply` returns when the watch has brought the object."""
    send_operator_away()
    kubectl("create", "namespace", NAMESPACE, check=False)
    kubectl("delete", "offsetspartitions,offsetstopics,coordinatorclusters", "--all", "-n", NAMESPACE)
    store = KubeStore(api_server, lambda _: 1, NAMESPACE)
    workload = KubeWorkload(api_server, "image", NAMESPACE)
    await store.load()
    changed = asyncio.Event()

    def notify(_: ClusterKey) -> None:
        changed.set()

    store.watch(notify)
    watcher = Watcher(sources(store, workload), NAMESPACE, lambda: None)
    watcher.start()

    async def apply(resource: Resource) -> None:
        meta = resource.metadata
        body = {
            "apiVersion": API_VERSION,
            "kind": type(resource).__name__,
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "spec": without_null(msgspec.to_builtins(resource.spec)),
        }
        written = await api_server.apply(object_path(type(resource), meta.namespace, meta.name), body)
        version = written["metadata"]["resourceVersion"]
        async with asyncio.timeout(20):
            while store.seen.resource_version(type(resource), (meta.namespace, meta.name)) < int(version):
                changed.clear()
                await changed.wait()

    yield store, apply
    await watcher.close()


class TestKubeStore(StoreContract):
    pass
