"""A pod that keeps every rule of the pod API and holds no data: for tests of whatever talks to pods.

`FakeVolume` is what survives a restart (log ids, promises), `FakePod` is one run of the process. `serve` puts one
behind the real server on loopback.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.models import (
    CallStatus,
    Election,
    ElectionResult,
    ElectionsRequest,
    ElectionsResponse,
    MetadataAnswer,
    MetadataImage,
    PartitionEvent,
    PartitionStatus,
    PodStatus,
    ReplicaResult,
    ReplicasRequest,
    ReplicasResponse,
    Resignation,
    ResignationResult,
    ResignationsRequest,
    ResignationsResponse,
    StatusEvent,
)
from muster_coordinator.podapi.server import build_app

_log_numbers = itertools.count(1)


@dataclass
class FakeReplica:
    log_id: str
    promised: int = -1
    leader: str | None = None
    used: bool = False
    end_offset: int = 0


@dataclass
class FakeVolume:
    replicas: dict[int, FakeReplica] = field(default_factory=dict)


class FakePod:
    """One run. `slow` partitions stay LOADING until `finish_loading`; `full` refuses with 507; `damaged` with 500."""

    def __init__(self, name: str, node_id: int, volume: FakeVolume | None = None) -> None:
        self.name = name
        self.node_id = node_id
        self.volume = volume if volume is not None else FakeVolume()
        self.slow: set[int] = set()
        self.damaged: set[int] = set()
        self.full = False
        self.kafka_address = f"127.0.0.1:{9092 + node_id}"
        self.elections: list[Election] = []
        self.election_calls = 0
        self.images: list[MetadataImage] = []
        self.drained = False
        self.operator_heard_count = 0
        self._led: dict[int, int] = {}  # partition -> epoch, of this run
        self._loading: set[int] = set()
        self._hub = EventHub(self.status)
        self.accepted: list[tuple[int, int]] = []  # (partition, epoch), promised by this run

    async def create_replicas(self, request: ReplicasRequest) -> ReplicasResponse:
        results = []
        created = False
        for wanted in request.partitions:
            replica = self.volume.replicas.get(wanted.partition)
            if replica is None:
                if self.full:
                    results.append(ReplicaResult.of(wanted.partition, CallStatus.CANNOT_WRITE, message="disk full"))
                    continue
                created = True
                replica = self.volume.replicas[wanted.partition] = FakeReplica(f"log-{next(_log_numbers)}")
            results.append(
                ReplicaResult.of(
                    wanted.partition,
                    CallStatus.ACCEPTED,
                    log_id=replica.log_id,
                    end_offset=replica.end_offset,
                    used=replica.used,
                )
            )
        if created:
            self._hub.publish_status()
        return ReplicasResponse(tuple(results))

    async def elect(self, request: ElectionsRequest) -> ElectionsResponse:
        self.election_calls += 1
        return ElectionsResponse(tuple(self._elect(election) for election in request.elections))

    def _elect(self, election: Election) -> ElectionResult:
        self.elections.append(election)
        index = election.partition
        replica = self.volume.replicas.get(index)
        if replica is None or replica.log_id not in election.replicas:
            return self._election(index, CallStatus.WRONG_REPLICA, "no such log here")
        if self._led.get(index) == election.epoch == replica.promised:  # the same election again, in the same run
            return self._election(index, CallStatus.LOADING if index in self._loading else CallStatus.ACCEPTED)
        if election.epoch <= replica.promised:
            return self._election(index, CallStatus.STALE_EPOCH, f"promised {replica.promised}")
        if self.full:
            return self._election(index, CallStatus.CANNOT_WRITE, "disk full")
        if index in self.damaged:
            return self._election(index, CallStatus.DAMAGED, "a flipped byte")
        if not replica.used and not election.bootstrap:
            return self._election(index, CallStatus.INVALID, "an empty log without bootstrap")
        replica.promised, replica.leader, replica.used = election.epoch, self.name, True
        replica.end_offset += 1
        self._led[index] = election.epoch
        self.accepted.append((index, election.epoch))
        if index in self.slow:
            self._loading.add(index)
        self._publish(index)
        return self._election(index, CallStatus.LOADING if index in self._loading else CallStatus.ACCEPTED)

    def _election(self, index: int, status: CallStatus, message: str = "") -> ElectionResult:
        replica = self.volume.replicas.get(index)
        return ElectionResult.of(
            index,
            status,
            epoch=replica.promised if replica else -1,
            message=message,
            log_id=replica.log_id if replica else "",
        )

    async def resign(self, request: ResignationsRequest) -> ResignationsResponse:
        return ResignationsResponse(tuple(self._resign(resignation) for resignation in request.resignations))

    def _resign(self, resignation: Resignation) -> ResignationResult:
        index = resignation.partition
        replica = self.volume.replicas.get(index)
        if replica is None:
            return ResignationResult.of(index, CallStatus.WRONG_REPLICA)
        if resignation.epoch <= replica.promised:
            return ResignationResult.of(index, CallStatus.STALE_EPOCH, epoch=replica.promised)
        replica.promised, replica.leader = resignation.epoch, None
        ended = self._led.pop(index, -1)
        self._loading.discard(index)
        self._publish(index)
        return ResignationResult.of(index, CallStatus.ACCEPTED, epoch=replica.promised, ended_epoch=ended)

    def status(self) -> PodStatus:
        return PodStatus(
            pod=self.name,
            node_id=self.node_id,
            pod_uid=f"uid-{self.name}",
            boot_id="boot-1",
            version="test",
            kafka_address=self.kafka_address,
            ready=bool(self.images),
            draining=self.drained,
            metadata_token=self.images[-1].token if self.images else -1,
            metadata_version=self.images[-1].version if self.images else -1,
            partitions=self.partitions(),
        )

    def partitions(self) -> tuple[PartitionStatus, ...]:
        return tuple(self._partition(index) for index in sorted(self.volume.replicas))

    def _partition(self, index: int) -> PartitionStatus:
        replica = self.volume.replicas[index]
        led = self._led.get(index, -1)
        leads = led == replica.promised and led >= 0
        return PartitionStatus(
            index,
            ("LOADING" if index in self._loading else "ACTIVE") if leads else "INITIAL",
            "leader" if leads else "none",
            replica.promised,
            led if leads else -1,
            replica.log_id,
            replica.used,
            replica.end_offset,
            replica.end_offset,
        )

    def finish_loading(self, index: int) -> None:
        self._loading.discard(index)
        self._publish(index)

    def promise_elsewhere(self, index: int, epoch: int) -> None:
        """A seal of somebody else: the replica promises an epoch that no operator here has issued."""
        replica = self.volume.replicas[index]
        replica.promised, replica.leader = epoch, "somebody"
        self._led.pop(index, None)
        self._publish(index)

    def _publish(self, index: int) -> None:
        self._hub.publish(self._partition(index))

    def update_metadata(self, image: MetadataImage) -> MetadataAnswer:
        current = self.images[-1] if self.images else None
        if current is not None and (image.token, image.version) < (current.token, current.version):
            return MetadataAnswer(False, current.token, current.version)
        self.images.append(image)
        self._hub.publish_status()
        return MetadataAnswer(True, image.token, image.version)

    def subscribe(self) -> AsyncGenerator[StatusEvent | PartitionEvent, None]:
        return self._hub.subscribe()

    def operator_heard(self) -> None:
        self.operator_heard_count += 1

    async def drain(self) -> None:
        self.drained = True
        self._hub.publish_status()
        for index, epoch in tuple(self._led.items()):
            replica = self.volume.replicas[index]
            replica.promised, replica.leader = epoch + 1, None
            del self._led[index]
            self._publish(index)

    def live(self) -> tuple[bool, str]:
        return True, "alive"

    def ready(self) -> tuple[bool, str]:
        return bool(self.images), "has metadata" if self.images else "no metadata yet"

    def started(self) -> tuple[bool, str]:
        return True, "started"


@dataclass
class Server:
    """A running server; `stop` closes the listener and every connection, as the death of the process would."""

    runner: web.AppRunner
    address: str

    async def stop(self) -> None:
        await self.runner.cleanup()


async def start(pod: FakePod, address: str = "127.0.0.1:0") -> Server:
    host, port = address.rsplit(":", 1)
    runner = web.AppRunner(build_app(pod, lambda: b"muster_up 1\n"), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, int(port), reuse_address=True)
    await site.start()
    bound = runner.addresses[0]
    return Server(runner, f"{bound[0]}:{bound[1]}")


@asynccontextmanager
async def serve(pod: FakePod, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = await start(pod, address)
    try:
        yield server.address
    finally:
        await server.stop()


async def eventually(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until `condition()` is true. Turns the loop, and fails with a time limit that only a hang reaches."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)
