"""Where a running cluster is re-sharded: what `muster reshard` asks of the store, and where the pods are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from muster_cli.datadir import DataDir
from muster_cli.declare import CLUSTER
from muster_cli.errors import CliError
from muster_operator.api.models import GROUP, VERSION, OffsetsTopic, PartitionState, Reshard
from muster_operator.store.port import StoreError
from muster_operator.store.sqlite import SqliteStore

__all__ = ["EmbeddedSite", "KubernetesSite", "Site"]


CALL_TIMEOUT_S = 10.0
UNREACHABLE_FOR_S = 60.0
"""As long as the API server is asked again."""

_T = TypeVar("_T")


class Site(Protocol):
    """All raise CliError."""

    async def topic(self) -> OffsetsTopic:
        """As it is now."""

    async def ask(self, partitions: int | None) -> None:
        """Set spec.reshard, or take it back."""

    async def drop_retired(self) -> int:
        """Delete the OffsetsPartitions that a re-shard has replaced; the operator has their logs deleted. How many."""

    async def pods(self) -> dict[str, str]:
        """Address (host:port) of the pod API by name, of the pods that run."""

    def close(self) -> None: ...


class EmbeddedSite:
    """What `muster local up` runs on a data directory."""

    def __init__(self, data: DataDir) -> None:
        record = data.read_run()
        if record is None or not record.supervisor.alive():
            raise CliError(f"nothing runs on {data.root}; start it with: muster local up --data-dir {data.root}")
        self._data = data
        self._store = SqliteStore(data.store)

    async def topic(self) -> OffsetsTopic:
        try:
            records = await self._store.observe(CLUSTER)
        except StoreError as error:
            raise CliError(str(error)) from error
        if not records.topics:
            raise CliError(f"{self._data.root} has no offsets topic")
        return records.topics[0]

    async def ask(self, partitions: int | None) -> None:
        topic = await self.topic()
        wanted = None if partitions is None else Reshard(partitions)
        spec = msgspec.structs.replace(topic.spec, reshard=wanted)
        try:
            await self._store.apply(msgspec.structs.replace(topic, spec=spec))
        except StoreError as error:
            raise CliError(str(error)) from error

    async def drop_retired(self) -> int:
        try:
            retired = [
                each
                for each in (await self._store.observe(CLUSTER)).partitions
                if each.status.state is PartitionState.RETIRED
            ]
            await asyncio.gather(*map(self._store.delete, retired))
        except StoreError as error:
            raise CliError(str(error)) from error
        return len(retired)

    async def pods(self) -> dict[str, str]:
        record = self._data.read_run()
        return {} if record is None else {pod.name: pod.api_address for pod in record.pods if pod.alive}

    def close(self) -> None:
        self._store.close()


class KubernetesSite:
    """A CoordinatorCluster. The addresses are those of pods, so this must run where pods are reached: in a pod, mostly.

    As kubectl, it finds its way by the kubeconfig or, in a pod, by its service account.
    """

    def __init__(self, namespace: str, cluster: str) -> None:
        import pykube

        self._namespace = namespace
        self._cluster = cluster
        self._api = pykube.HTTPClient(pykube.KubeConfig.from_env(), timeout=CALL_TIMEOUT_S)
        self._topics = pykube.object_factory(self._api, f"{GROUP}/{VERSION}", "OffsetsTopic")
        self._partitions = pykube.object_factory(self._api, f"{GROUP}/{VERSION}", "OffsetsPartition")

    async def topic(self) -> OffsetsTopic:
        return msgspec.convert((await self._call(self._find)).obj, OffsetsTopic)

    def _find(self) -> Any:
        """The oldest of the cluster, which is the one that counts."""
        found = [
            each
            for each in self._topics.objects(self._api, namespace=self._namespace)
            if each.obj["spec"]["clusterRef"]["name"] == self._cluster
        ]
        if not found:
            raise CliError(f"namespace {self._namespace} has no OffsetsTopic of CoordinatorCluster {self._cluster}")
        return min(found, key=lambda each: (each.obj["metadata"]["creationTimestamp"], each.name))

    async def ask(self, partitions: int | None) -> None:
        wanted = None if partitions is None else {"partitions": partitions}
        await self._call(lambda: self._find().patch({"spec": {"reshard": wanted}}))

    async def drop_retired(self) -> int:
        def drop() -> int:
            topic = self._find().name
            retired = [
                each
                for each in self._partitions.objects(self._api, namespace=self._namespace)
                if each.obj["spec"]["topicRef"]["name"] == topic
                and each.obj.get("status", {}).get("state") == PartitionState.RETIRED.value
            ]
            for each in retired:
                each.delete()
            return len(retired)

        return await self._call(drop)

    async def pods(self) -> dict[str, str]:
        import pykube

        from muster_operator.kube.manifests import API_PORT, CLUSTER_LABEL

        labels = {CLUSTER_LABEL: self._cluster}
        found = await self._call(
            lambda: list(pykube.Pod.objects(self._api, namespace=self._namespace).filter(selector=labels))
        )
        return {each.name: f"{ip}:{API_PORT}" for each in found if (ip := each.obj["status"].get("podIP"))}

    async def _call(self, work: Callable[[], _T]) -> _T:
        """Blocking, so in a thread; a refused or broken call is tried for a while."""
        import pykube.exceptions
        import requests

        deadline = time.monotonic() + UNREACHABLE_FOR_S
        while True:
            try:
                return await asyncio.to_thread(work)
            except (requests.exceptions.RequestException, pykube.exceptions.PyKubeError) as error:
                if time.monotonic() > deadline:
                    raise CliError(f"the API server: {error}") from error
            await asyncio.sleep(1.0)

    def close(self) -> None:
        self._api.session.close()
