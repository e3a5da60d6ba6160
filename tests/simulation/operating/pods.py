"""A real pod with its API and its peer network, as `process.compose` puts it together, but for the Kafka listener.

No log is there before the operator has it created, and what the operator has deleted is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from aiohttp import web
from tests.simulation.injected import Injected
from tests.simulation.loop import SimulatedLoop
from tests.simulation.operating.loop import WiredLoop
from tests.simulation.operating.machine import api_address, kafka_address, peer_address
from tests.simulation.operating.record import Recorded
from tests.simulation.operating.wire import Wire
from tests.simulation.pods.archive import SharedArchive
from tests.simulation.pods.process import HostedPod
from tests.simulation.pods.replica import DATA, HostedReplica
from tests.simulation.world import Violation, World
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.peers.inbound import Inbound
from muster_coordinator.peers.network import PeerIdentity, PeerNetwork
from muster_coordinator.pod import control
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.leaders import PromisedLeaders
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.pod.routes.fences import fence_routes
from muster_coordinator.pod.routes.segments import segment_routes
from muster_coordinator.podapi import models as p
from muster_coordinator.podapi.server import build_app
from muster_coordinator.replica.ports import Peers
from muster_coordinator.replication.messages import Message
from muster_coordinator.settings import PeerSettings
from muster_coordinator.shard.fencing import Fencing

__all__ = ["OperatedPod", "OperatedReplica"]

API_PORT, PEER_PORT = (int(address("pod-0").rpartition(":")[2]) for address in (api_address, peer_address))
PEER_BUFFER_BYTES = 1 << 20


class PodRun:
    """Implements `process.Process` for one start of a pod."""

    def __init__(self, pod: HostedPod, run: int) -> None:
        self._pod = pod
        self._run = run
        self.name = pod.name

    @property
    def is_alive(self) -> bool:
        return self._pod.run == self._run and self._pod.is_running

    def deliver(self, do: Callable[[], None]) -> None:
        if self.is_alive:
            self._pod.when_thawed(self._run, lambda: self._pod.loop.enter(do))


class OperatedPod(HostedPod):
    def __init__(self, name: str, world: World, archive: SharedArchive, *, wire: Wire, recorded: Recorded) -> None:
        super().__init__(name, world, archive)
        self._wire = wire
        self._recorded = recorded
        self._control: control.Pod | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def _new_loop(self) -> SimulatedLoop:
        self._process = PodRun(self, self.run)
        self._control = None
        address = api_address(self.name).rpartition(":")[0]
        return WiredLoop(*self._loop_ports(), self._wire, self._process, address)

    def _new_peers(self) -> Peers:
        identity = PeerIdentity(self.name, f"run {self.run}")
        self._network = _LossyNetwork(self, identity, self.events.pod_changed)
        return self._network

    async def _run_process(self) -> None:
        await super()._run_process()
        disk, network, manager = self.disk_here, self._network, self.manager
        view = ClusterView(self.name, PromisedLeaders(self.name, self.partitions, network))
        last_image = LastImage(disk, DATA)  # type: ignore[arg-type]  # the operations that it uses
        pod = _WatchedPod(self._recorded, self._identity(), manager, view, network, last_image)
        self.events.watch(pod)
        remembered = last_image.load()
        if remembered is not None:
            pod.remember(remembered)
        api = build_app(pod, lambda: b"")
        api.router.add_routes(segment_routes(manager.hosts, lambda: view.current_partitions or manager.hosts))
        api.router.add_routes(fence_routes(Fencing(manager.shards, self.events.partition_changed), pod.tokens))
        host = peer_address(self.name).rpartition(":")[0]
        await network.start(manager, (host, PEER_PORT), lambda port: (host, port))
        logger: Any = _Defects(self.world)
        runner = web.AppRunner(api, access_log=None, shutdown_timeout=1.0, logger=logger)
        await runner.setup()
        await web.TCPSite(runner, host, API_PORT).start()
        self._ended.append((pod, runner, network))
        self._control = pod
        pod.listening()

    def _identity(self) -> control.PodIdentity:
        number = int(self.name.rpartition("-")[2])
        boot = f"boot {self._boots}"
        return control.PodIdentity(self.name, number, f"run {self.run}", boot, "simulated", kafka_address(self.name))

    def enter(self, do: Callable[[], None]) -> None:
        """Run `do` on the loop of the present process."""
        self._enter(do)

    def crash(self, *, power: bool = False) -> None:
        if not self.up:
            return
        super().crash(power=power)
        self._wire.ended(self._process, silent=power and self.random.random() < 0.5)

    def drain(self) -> None:
        """It is asked to end, as by SIGTERM, and starts again afterwards."""
        pod = self._control
        if self.up and pod is not None:
            self.world.log(f"{self.name} drains")
            self.call(lambda manager: self.loop.create_task(self._drain(pod, manager)) and None)

    async def _drain(self, pod: control.Pod, manager: ReplicaManager) -> None:
        await pod.drain()
        self.world.log(f"{self.name} has drained")
        self._restart_needed()


class _Defects:
    """aiohttp's logger: what it logs of a handler that raised is a defect of the pod, unless a connection broke."""

    def __init__(self, world: World) -> None:
        self._world = world

    def debug(self, *args: object, **how: object) -> None:
        pass

    warning = debug

    def exception(self, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        if not isinstance(exc_info, OSError):
            self._world.at(0, partial(self._fail, f"{text}: {exc_info!r}"))

    @staticmethod
    def _fail(text: str) -> None:
        raise Violation(text)


class _WatchedPod(control.Pod):
    """The real one; what operators call is compared with what they recorded."""

    def __init__(
        self,
        recorded: Recorded,
        identity: control.PodIdentity,
        manager: ReplicaManager,
        view: ClusterView,
        network: PeerNetwork,
        last_image: LastImage,
    ) -> None:
        settings = PeerSettings(self_nomination_after_ms=0)
        health = MirrorHealth()
        super().__init__(
            identity, manager, view, network, last_image, settings, health, delete_offsets_of_removed_topics=False
        )
        self._recorded = recorded
        self._world = recorded.server.world

    async def elect(self, request: p.ElectionsRequest) -> p.CallResults:
        for each in request.elections:
            self._recorded.elects(self.identity.name, each)
        results = await super().elect(request)
        for each in results.results:
            self._world.log(f"{self.identity.name}/{each.partition} answers {each.status} {each.epoch} {each.message}")
        return results

    async def resign(self, request: p.ResignationsRequest) -> p.CallResults:
        for each in request.resignations:
            self._recorded.resigns(self.identity.name, each)
        return await super().resign(request)


class _LossyNetwork(PeerNetwork):
    """The real one, over connections; messages may be lost or come twice all the same."""

    def __init__(self, pod: OperatedPod, identity: PeerIdentity, lost_changed: Callable[[], None]) -> None:
        super().__init__(identity, lost_changed, buffer_bytes=PEER_BUFFER_BYTES, random=Random(f"{identity}"))
        self._pod = pod
        self._said: dict[str, set[str]] = {}  # log ids that other pods say they have

    def announced(self, connection: Inbound, log_ids: dict[int, str]) -> None:
        self._said[connection.pod] = set(log_ids.values())
        super().announced(connection, log_ids)

    def received(self, connection: Inbound, partition: int, message: Message, size: int) -> None:
        """What comes from a log that several pods have is taken from none of them."""
        dropped = self.counters.dropped["doubled"]
        said = {pod for pod, log_ids in self._said.items() if message.sender in log_ids and self.states.get(pod)}
        super().received(connection, partition, message, size)
        if len(said | {connection.pod}) > 1 and self.counters.dropped["doubled"] == dropped:
            with self._pod.world.noting():
                raise Violation(
                    f"{self._pod.name} takes {message} from {connection.pod}, {said} said that they have it"
                )

    def left(self, connection: Inbound) -> None:
        self._said.pop(connection.pod, None)
        super().left(connection)

    def send(self, partition: int, message: Message) -> None:
        pod, world = self._pod, self._pod.world
        if not pod.is_running:
            return
        with world.noting():
            pod.replica_of(partition).sends(message)
        if world.faults and pod.random.random() < world.options.loss:
            world.injected[Injected.LOSS] += 1
            return
        super().send(partition, message)
        if world.faults and pod.random.random() < world.options.duplicates:
            world.injected[Injected.DUPLICATE] += 1
            delay_s = pod.random.randint(0, world.options.long_delay_ms) / 1000
            pod.loop.call_later(delay_s, super().send, partition, message)


class OperatedReplica(HostedReplica):
    """The replica of a partition that a pod has at present; before the first one, and between two, there is none."""

    def new_replica(self) -> None:
        self.becomes(f"none on {self.name}")
        self._is_new = False
        self._is_here = False

    def process_starts(self, fake: FakeDisk) -> None:
        self._is_here = False
        super().process_starts(fake)

    def observe(self) -> None:
        host = self.host
        if host is not None:
            self._is_here = True
        elif self._is_here and not self.pod.carries_copy:
            self.world.log(f"{self.name} has deleted log {self.storage.log_id[:4]}")
            self.new_replica()
        super().observe()
