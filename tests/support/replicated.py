"""Several real pods on loopback that replicate every partition, and a stand-in operator over the real pod API.

The stand-in elects whom the test names, in ever higher epochs, and pushes the image; it watches nothing. Only clients
that are refused have it look: a leader that stepped down, because the machine stalled for a second, is elected again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from tests.support.kafka import KafkaClient, entity
from tests.support.pod import POLL_S, PodProcess

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.peers.addresses import parse_address
from muster_coordinator.podapi.client import PodApiError
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader, Peer, ReplicaPlace
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    ReplicaRequest,
    ReplicasRequest,
    ReplicaStatus,
)
from muster_coordinator.records.partitioner import partition_for

LIMIT_S = 30.0
"""The limit for an election or a catch-up, which take milliseconds on an idle machine."""


class ReplicatedPods:
    """`count` pods; each has a replica of each of `partitions` partitions. Partition p is led by pod p at first.

    `elects_again`: the operator helps a leader that stepped down; without, replicas have to nominate themselves.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        partitions: int = 3,
        config: Sequence[str] = (),
        *,
        elects_again: bool = True,
    ) -> None:
        self.pods = [PodProcess(f"pod-{n}", directory / f"pod-{n}", config) for n in range(count)]
        self.partitions = partitions
        self.elects_again = elects_again
        self.log_ids: dict[int, tuple[str, ...]] = {}  # by partition, in the order of the pods
        self.leaders: dict[int, tuple[int, int]] = {}  # partition -> (pod, epoch)
        self._image_version = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            for pod in self.pods:
                await self._stack.enter_async_context(pod)
            await self._create()
            for partition in range(self.partitions):
                await self.elect(partition, partition % len(self.pods), bootstrap=True)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _create(self) -> None:
        request = ReplicasRequest(1, tuple(ReplicaRequest(p) for p in range(self.partitions)))
        created = [(await pod.api.create_replicas(request, timeout_s=60)).results for pod in self.pods]
        self.log_ids = {p: tuple(results[p].log_id for results in created) for p in range(self.partitions)}
        await self.push_image()

    async def push_image(self) -> None:
        """Gives the image to every pod that runs. Leaders are those that this operator elected."""
        self._image_version += 1
        image = MetadataImage(
            token=1,
            version=self._image_version,
            cluster_id="test",
            brokers=tuple(Broker(pod.node_id, "127.0.0.1", pod.kafka_port, pod.name) for pod in self.pods),
            offsets_partitions=self.partitions,
            leaders=tuple(PartitionLeader(p, pod, epoch) for p, (pod, epoch) in self.leaders.items()),
            topics=(DeclaredTopic("t", 10),),
            peers=tuple(Peer(pod.name, *parse_address(f"127.0.0.1:{pod.peer_port}")) for pod in self.pods),
            places=tuple(
                ReplicaPlace(p, log_id, pod.name)
                for p, log_ids in self.log_ids.items()
                for pod, log_id in zip(self.pods, log_ids, strict=True)
            ),
        )
        for pod in self.running:
            await pod.api.update_metadata(image)

    @property
    def running(self) -> list[PodProcess]:
        return [pod for pod in self.pods if pod.process is not None]

    async def elect(
        self, partition: int, pod: int, *, bootstrap: bool = False, force: bool = False, push: bool = True
    ) -> CallResult:
        """Repeat until the pod leads; `push`: then tell the others."""
        epoch = self.leaders.get(partition, (-1, 0))[1] + 1
        async with asyncio.timeout(LIMIT_S):
            while True:
                call = Election(partition, epoch, self.log_ids[partition], bootstrap=bootstrap, force=force)
                (result,) = (await self.pods[pod].api.elect(ElectionsRequest((call,)), timeout_s=LIMIT_S)).results
                if result.status is CallStatus.ACCEPTED:
                    break
                if result.epoch >= epoch and result.status is not CallStatus.LOADING:
                    epoch = result.epoch + 1  # promised, and failed
                await asyncio.sleep(POLL_S)
        self.leaders[partition] = (pod, epoch)
        if push:
            await self.push_image()
        return result

    async def elect_again(self, partition: int) -> None:
        """One try to have the leader that the test named last lead again, if it runs and hears no leader."""
        pod, _ = self.leaders[partition]
        if not self.elects_again or self.pods[pod].process is None:
            return
        try:
            status = await self.status(partition, pod)
            if status.role != "none":
                return
            call = Election(partition, status.epoch + 1, self.log_ids[partition])
            (result,) = (await self.pods[pod].api.elect(ElectionsRequest((call,)), timeout_s=LIMIT_S)).results
        except PodApiError:  # it was killed meanwhile, say
            return
        begun = result.status in (CallStatus.ACCEPTED, CallStatus.LOADING)
        if begun and call.epoch > self.leaders[partition][1]:
            self.leaders[partition] = (pod, call.epoch)

    async def status(self, partition: int, pod: int) -> ReplicaStatus:
        return (await self.pods[pod].api.partitions())[partition]

    async def caught_up(self, partition: int) -> int:
        """Wait until every running pod has the leader's log and knows it committed; returns its end offset."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                seen = [await self.status(partition, pod.node_id) for pod in self.running]
                ends = {(one.log_end_offset, one.high_watermark) for one in seen}
                if len(ends) == 1 and seen[0].log_end_offset == seen[0].high_watermark:
                    return seen[0].log_end_offset
                await asyncio.sleep(POLL_S)


class GroupClient:
    """Commits of simple groups over any number of pods: finds the coordinator, and again when it moved."""

    def __init__(self, pods: ReplicatedPods) -> None:
        self._pods = pods
        self._connections: dict[int, KafkaClient] = {}  # by port

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def commit(self, group: str, offset: int) -> None:
        """Waits until it is acknowledged."""

        async def once(connection: KafkaClient) -> bool:
            return await connection.commit(group, offset) == ErrorCode.NONE

        await self._until_done(group, once)

    async def fetch(self, group: str) -> int:
        fetched = -1

        async def once(connection: KafkaClient) -> bool:
            nonlocal fetched
            fetched, code = await connection.fetch(group)
            return code == ErrorCode.NONE

        await self._until_done(group, once)
        return fetched

    async def _until_done(self, group: str, once: Callable[[KafkaClient], Awaitable[bool]]) -> None:
        """Repeat at the group's coordinator, wherever it is by then."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    port = await self.coordinator_port(group)
                    if port and await once(await self._connection(port)):
                        return
                except (OSError, EOFError):
                    await self.close()
                await self._pods.elect_again(partition_for(group, self._pods.partitions))
                await asyncio.sleep(POLL_S)

    async def coordinator_port(self, group: str, ask: int | None = None) -> int:
        """The coordinator's port by the answer of a running pod (`ask`: this one); 0: no coordinator is available."""
        pod = self._pods.pods[ask] if ask is not None else self._pods.running[0]
        request = entity("find_coordinator", 3)(key=group, key_type=0)
        answer = await (await self._connection(pod.kafka_port)).call(request)
        return int(answer.port) if answer.error_code == ErrorCode.NONE else 0

    async def _connection(self, port: int) -> KafkaClient:
        connection = self._connections.get(port)
        if connection is None:
            connection = self._connections[port] = await KafkaClient.connect(port)
        return connection


def group_of(partition: int, partitions: int, number: int = 0) -> str:
    """A group whose offsets partition that is."""
    return next(name for i in range(10_000) if partition_for(name := f"group-{number}-{i}", partitions) == partition)
