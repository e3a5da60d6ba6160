"""The running cluster that `muster reshard` changes: one of its topics in the store, and the addresses of its pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.declare import CLUSTER
from muster_cli.local.tls import tls_of
from muster_coordinator.security.roles import Role
from muster_coordinator.security.tls import Tls
from muster_operator.api.models import OffsetsTopic, PartitionState, Reshard
from muster_operator.store.port import StoreError
from muster_operator.store.sqlite import SqliteStore


class Site(Protocol):
    """The store and the pods of one cluster. All methods raise CliError. `tls`: for calls of the pods; None: plain."""

    @property
    def tls(self) -> Tls | None: ...

    async def topic(self) -> OffsetsTopic:
        """The topic as it is now."""

    async def ask(self, partitions: int | None) -> None:
        """Set spec.reshard to this number of partitions, or remove it."""

    async def drop_retired(self) -> int:
        """Delete the OffsetsPartitions that a re-shard has replaced, so that the operator deletes their logs.

        Returns how many there were.
        """

    async def pods(self) -> dict[str, str]:
        """The address (host:port) of the pod API of each running pod, by name."""


def open_site(data_dir: Path | None, namespace: str, cluster: str, topic: str) -> AbstractAsyncContextManager[Site]:
    """The internal topic `topic` of the embedded instance in `data_dir`, or else of this CoordinatorCluster of
    Kubernetes. Raises CliError."""
    if data_dir is not None:
        return _embedded(DataDir(data_dir), topic)
    from muster_cli.reshard.kube import kubernetes_site

    return kubernetes_site(namespace, cluster, topic)


@asynccontextmanager
async def _embedded(data: DataDir, topic: str) -> AsyncIterator[Site]:
    record = data.read_run()
    if record is None or not record.supervisor.alive():
        raise CliError(f"nothing runs on {data.root}; start it with: muster local up --data-dir {data.root}")
    store = SqliteStore(data.store)
    try:
        yield _EmbeddedSite(data, store, topic, tls_of(data, record, Role.OPERATOR))
    finally:
        store.close()


class _EmbeddedSite:
    """The instance that `muster local up` runs on a data directory."""

    def __init__(self, data: DataDir, store: SqliteStore, topic: str, tls: Tls | None) -> None:
        self.tls = tls
        self._topic = topic
        self._data = data
        self._store = store

    async def topic(self) -> OffsetsTopic:
        try:
            records = await self._store.observe(CLUSTER)
        except StoreError as error:
            raise CliError(str(error)) from error
        found = next((each for each in records.topics if each.spec.topic == self._topic), None)
        if found is None:
            raise CliError(f"{self._data.root} has no {self._topic}")
        return found

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
            numbers = (await self.topic()).numbers
            partitions = (await self._store.observe(CLUSTER)).partitions
            retired = [
                each
                for each in partitions
                if each.status.state is PartitionState.RETIRED and each.spec.index in numbers
            ]
            await asyncio.gather(*map(self._store.delete, retired))
        except StoreError as error:
            raise CliError(str(error)) from error
        return len(retired)

    async def pods(self) -> dict[str, str]:
        record = self._data.read_run()
        return {} if record is None else {pod.name: pod.api_address for pod in record.pods if pod.alive}
