"""A cluster of fake pods for the operator: real HTTP on loopback, the real embedded store, the real loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from tests.unit.podapi.fake_net import FakeNet
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_server import Server, start
from tests.unit.podapi.fake_volume import FakeVolume

from muster_coordinator.podapi.client import new_session
from muster_coordinator.states import ShardState
from muster_coordinator.tracing.ports import Spans
from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    DeclaredTopic,
    Failover,
    MusterUser,
    ObjectMeta,
    OffsetsPartition,
    OffsetsTopic,
    OffsetsTopicSpec,
    PartitionState,
)
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.access import AccessState, Credentials, access_of
from muster_operator.plan.observation import StrandedVolume
from muster_operator.pods.sessions import PodSessions
from muster_operator.reconcile import Reconciler
from muster_operator.steps import context
from muster_operator.store.port import ClusterKey, ClusterRecords, Notify, Unwatch
from muster_operator.store.sqlite import SqliteStore
from muster_operator.store.workload import BackupJobs, PodInfo, PodPhase, Restores, WorkloadState
from muster_operator.turns import Turns

KEY = ClusterKey("ns", "c")
TELL_EVERY_S = 0.02
"""Seconds between writes of a status, which nearly every test waits for; in production they are a second apart."""


def cluster(pods: int = 3, **changes: object) -> CoordinatorCluster:
    spec = CoordinatorClusterSpec(
        pods=pods,
        image="muster:test",
        topics=(DeclaredTopic("orders", 6),),
        failover=changes.pop("failover", Failover(suspect_after="1s", election_timeout="5s")),
        **changes,  # type: ignore[arg-type]  # any other field of the spec
    )
    return CoordinatorCluster(ObjectMeta("c", "ns"), spec)


def topic(
    partitions: int = 6, name: str = "t", cluster_name: str = "c", replication_factor: Literal[1, 3, 5] = 1
) -> OffsetsTopic:
    spec = OffsetsTopicSpec(ClusterRef(cluster_name), partitions, replication_factor)
    return OffsetsTopic(ObjectMeta(name, "ns"), spec)


@dataclass
class FakeWorkload:
    """Pods that the test starts and stops. `ensured` counts the calls that would start real ones."""

    infos: dict[str, PodInfo] = field(default_factory=dict)
    notify: list[Notify] = field(default_factory=list)
    ensured: int = 0
    restarted: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    wanted: list[tuple[CoordinatorCluster, bool]] = field(default_factory=list)
    told: WorkloadState = field(default_factory=WorkloadState)
    credentials: Mapping[str, Credentials] | None = None
    kept: list[tuple[str, ...]] = field(default_factory=list)
    backups: BackupJobs | None = None
    restores: Restores | None = None

    def watch(self, notify: Notify) -> Unwatch:
        self.notify.append(notify)
        return partial(self.notify.remove, notify)

    async def ensure_pods(self, cluster: CoordinatorCluster, *, keep_template: bool = False) -> str:
        self.ensured += 1
        self.wanted.append((cluster, keep_template))
        return "as declared"

    def state(self, cluster: CoordinatorCluster) -> WorkloadState:
        return self.told

    async def keep_users(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> str:
        self.kept.append(tuple(each.metadata.name for each in users))
        return ""

    def access(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> AccessState | None:
        return None if self.credentials is None else access_of(users, self.credentials, {})

    async def restart_pod(self, key: ClusterKey, name: str, uid: str) -> None:
        self.restarted.append(name)

    async def replace_volume(self, key: ClusterKey, volume: StrandedVolume) -> bool:
        self.replaced.append(volume.names)
        return True

    async def pods(self, key: ClusterKey) -> tuple[PodInfo, ...]:
        return tuple(sorted(self.infos.values(), key=lambda info: info.node_id)) if key == KEY else ()

    def bootstrap(self, cluster: CoordinatorCluster, pods: tuple[PodInfo, ...]) -> str:
        return ",".join(pod.kafka_address for pod in pods)

    def put(self, info: PodInfo) -> None:
        self.infos[info.name] = info
        for notify in self.notify:
            notify(KEY)


@dataclass
class World:
    """Pods `c-0` ... with volumes that outlive them, and one operator."""

    store: SqliteStore
    path: Path
    workload: FakeWorkload = field(default_factory=FakeWorkload)
    volumes: dict[int, FakeVolume] = field(default_factory=dict)
    pods: dict[int, FakePod] = field(default_factory=dict)
    servers: dict[int, Server] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    net: FakeNet = field(default_factory=FakeNet)

    async def start_pod(self, number: int) -> FakePod:
        """On its old volume and its old address, if it had them."""
        volume = self.volumes.setdefault(number, FakeVolume())
        pod = self.pods[number] = FakePod(f"c-{number}", number, volume, self.net)
        server = self.servers[number] = await start(pod, self.addresses.get(number, "127.0.0.1:0"))
        self.addresses[number] = server.address
        info = PodInfo(pod.name, number, f"uid-{number}", server.address, pod.kafka_address, PodPhase.RUNNING)
        self.workload.put(info)
        self.net.replicate()
        return pod

    async def stop_pod(self, number: int) -> None:
        """As SIGKILL does."""
        self.net.pods.pop(f"c-{number}", None)
        await self.servers.pop(number).stop()

    def reopen_store(self) -> None:
        """As another operator process would."""
        self.store.close()
        self.store = SqliteStore(self.path)

    async def records(self) -> ClusterRecords:
        return await self.store.observe(KEY)

    async def partition(self, index: int) -> OffsetsPartition:
        return (await self.records()).partitions[index]

    async def ready(self) -> bool:
        """The cluster says Ready, and it is true: every partition is led as recorded."""
        records = await self.records()
        cluster = records.cluster
        says = cluster is not None and any(
            each.type == "Ready" and each.status == "True" for each in cluster.status.conditions
        )
        return says and bool(records.partitions) and all(self._is_led(each) for each in records.partitions)

    def _is_led(self, partition: OffsetsPartition) -> bool:
        status, index = partition.status, partition.spec.index
        return status.state is PartitionState.LED and any(
            (each.partition, each.state, each.leader_epoch) == (index, ShardState.ACTIVE, status.epoch)
            for pod in self.pods.values()
            if pod.name == status.leader
            for each in pod.partitions()
        )

    async def until_state(self, index: int, state: PartitionState) -> OffsetsPartition:
        async with asyncio.timeout(10):
            while True:
                partitions = (await self.records()).partitions
                if len(partitions) > index and partitions[index].status.state is state:
                    return partitions[index]
                await asyncio.sleep(0.005)

    async def until_ready(self) -> None:
        async with asyncio.timeout(10):
            while not await self.ready():
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def operator(self, turns: Turns | None = None, spans: Spans | None = None) -> AsyncIterator[Reconciler]:
        clock = Clock()
        async with new_session() as http:
            sessions = PodSessions(http, clock)
            reconciler = Reconciler(
                self.store, self.workload, sessions, clock, lambda: 0.5, self.metrics, turns=turns, spans=spans
            )
            task = asyncio.create_task(reconciler.run())
            try:
                yield reconciler
                if task.done():
                    task.result()
            finally:
                task.cancel()
                await asyncio.wait({task})
                await sessions.close()
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def world(
    path: Path, pods: int = 3, partitions: int = 6, replication_factor: Literal[1, 3, 5] = 1
) -> AsyncIterator[World]:
    """The declared objects and running pods, without an operator yet. Operators write statuses each TELL_EVERY_S."""
    store = SqliteStore(path / "store.sqlite")
    made = World(store, path / "store.sqlite")
    await store.apply(cluster(pods))
    await store.apply(topic(partitions, replication_factor=replication_factor))
    for number in range(pods):
        await made.start_pod(number)
    try:
        with patch.object(context, "TELL_EVERY_S", TELL_EVERY_S):
            yield made
    finally:
        for number in [*made.servers]:
            await made.stop_pod(number)
        made.store.close()
