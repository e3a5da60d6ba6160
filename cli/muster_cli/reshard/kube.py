"""`muster reshard` of a CoordinatorCluster in Kubernetes. It connects to pods, so it mostly runs in a pod itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from muster_cli.errors import CliError
from muster_coordinator.partition_numbers import OFFSETS
from muster_operator.api.models import OffsetsPartition, OffsetsTopic, PartitionState
from muster_operator.kube.client import Json, KubeClient, connect
from muster_operator.kube.manifests import API_PORT, CLUSTER_LABEL
from muster_operator.kube.objects import API_VERSION
from muster_operator.store.port import StoreError

UNREACHABLE_FOR_S = 60.0
"""Seconds for which a call to the API server that fails is repeated."""
RETRY_S = 1.0

_T = TypeVar("_T")


@asynccontextmanager
async def kubernetes_site(namespace: str, cluster: str, topic: str) -> AsyncIterator[KubernetesSite]:
    """Connect with the service account of this pod or, as kubectl, with the kubeconfig. Raises CliError."""
    try:
        client = await connect()
    except StoreError as error:
        raise CliError(str(error)) from error
    try:
        yield KubernetesSite(client, namespace, cluster, topic)
    finally:
        await client.close()


class KubernetesSite:
    """One topic of a CoordinatorCluster. Implements `reshard.site.Site`."""

    tls = None

    def __init__(self, client: KubeClient, namespace: str, cluster: str, topic: str) -> None:
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._topic = topic

    async def topic(self) -> OffsetsTopic:
        return msgspec.convert(await _repeated(self._find), OffsetsTopic)

    async def ask(self, partitions: int | None) -> None:
        async def replace() -> None:
            topic = await self._find()
            spec = {name: value for name, value in topic["spec"].items() if name != "reshard"}
            if partitions is not None:
                spec["reshard"] = {"partitions": partitions}
            path = f"{self._path(OffsetsTopic.plural)}/{topic['metadata']['name']}"
            await self._client.replace(
                path, {"apiVersion": API_VERSION, "kind": OffsetsTopic.__name__, **topic, "spec": spec}
            )

        await _repeated(replace)

    async def drop_retired(self) -> int:
        path = self._path(OffsetsPartition.plural)

        async def drop() -> int:
            topic = (await self._find())["metadata"]["name"]
            retired = [
                each["metadata"]
                for each in (await self._client.list_all(path))["items"]
                if each["spec"]["topicRef"]["name"] == topic
                and each.get("status", {}).get("state") == PartitionState.RETIRED.value
            ]
            for each in retired:
                await self._client.delete(f"{path}/{each['name']}", each["uid"])
            return len(retired)

        return await _repeated(drop)

    async def pods(self) -> dict[str, str]:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        selector = f"{CLUSTER_LABEL}={self._cluster}"
        found = (await _repeated(lambda: self._client.list_all(path, label_selector=selector)))["items"]
        return {each["metadata"]["name"]: f"{ip}:{API_PORT}" for each in found if (ip := each["status"].get("podIP"))}

    async def _find(self) -> Json:
        """The oldest OffsetsTopic of that internal topic, which is the one that the operator serves."""
        topics = (await self._client.list_all(self._path(OffsetsTopic.plural)))["items"]
        of_cluster = [each for each in topics if each["spec"]["clusterRef"]["name"] == self._cluster]
        found = [each for each in of_cluster if each["spec"].get("topic", OFFSETS.name) == self._topic]
        if not found:
            of = f"of {self._topic} of CoordinatorCluster {self._cluster}"
            raise CliError(f"namespace {self._namespace} has no OffsetsTopic {of}")
        return min(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    def _path(self, plural: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self._namespace}/{plural}"


async def _repeated(call: Callable[[], Awaitable[_T]]) -> _T:
    """Call until it works. Raises CliError after `UNREACHABLE_FOR_S` seconds of errors."""
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        try:
            return await call()
        except StoreError as error:
            if time.monotonic() > deadline:
                raise CliError(f"the API server: {error}") from error
        await asyncio.sleep(RETRY_S)
