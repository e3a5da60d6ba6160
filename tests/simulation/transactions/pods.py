"""A real pod that runs both coordinators: with its view of the cluster, the network over which pods ask one another,
what answers them there, and the writer of markers, as `process.compose` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.simulation.loop import SimulatedLoop
from tests.simulation.operating.loop import WiredLoop
from tests.simulation.operating.machine import peer_address
from tests.simulation.operating.pods import PEER_BUFFER_BYTES, PodRun
from tests.simulation.operating.wire import Wire
from tests.simulation.pods.archive import SharedArchive
from tests.simulation.pods.process import COMMIT_TIMEOUT_MS, HostedPod
from tests.simulation.request import Request
from tests.simulation.world import Violation, World

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.handlers.table import handler_table
from muster_coordinator.listener.pod_callers import PodCallers
from muster_coordinator.listener.state import ServerState
from muster_coordinator.partition_numbers import TRANSACTIONS, index_of
from muster_coordinator.peers.network import PeerIdentity, PeerNetwork
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.leaders import PromisedLeaders
from muster_coordinator.pod.marker_writer import MarkerWriter
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.replication.messages import Message
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator

__all__ = ["KAFKA_PORT", "TransactionalPod", "kafka_address"]


KAFKA_PORT = 9092


def kafka_address(pod: str) -> str:
    """Where clients connect."""
    return f"{peer_address(pod).rpartition(':')[0]}:{KAFKA_PORT}"


class TransactionalPod(HostedPod):
    """`waiting`: requests that the present process has got and not answered, with the time (ms) at which they came."""

    view: ClusterView

    def __init__(self, name: str, world: World, archive: SharedArchive, *, wire: Wire) -> None:
        super().__init__(name, world, archive)
        self._wire = wire
        address = peer_address(name)
        wire.hosts[address] = wire.hosts[kafka_address(name)] = name
        wire.ips[name] = address.rpartition(":")[0]
        self._handlers: Any = None
        self.waiting: dict[_Answer, int] = {}

    # -- life ---------------------------------------------------------------------------------------------------------

    def _new_loop(self) -> SimulatedLoop:
        self._process = PodRun(self, self.run)
        self._handlers = None
        self.waiting = {}
        address = peer_address(self.name).rpartition(":")[0]
        return WiredLoop(*self._loop_ports(), self._wire, self._process, address)

    def _before_manager(self) -> None:
        leaders = PromisedLeaders(self.name, self.partitions, _Pods(self))  # type: ignore[arg-type]
        self.view = ClusterView(self.name, leaders)
        identity = PeerIdentity(self.name, f"run {self.run}")
        self._network = PeerNetwork(identity, lambda: None, buffer_bytes=PEER_BUFFER_BYTES, random=Random(self.name))
        self._connections = PodConnections(self._network, 2 * COMMIT_TIMEOUT_MS / 1000)
        self._markers = MarkerWriter(self.view, self.partitions.shards, self._connections)

    def _new_machine(self, partition: int) -> StateMachine:
        if partition in TRANSACTIONS.numbers:
            writer = self._markers.of(partition)
            return TransactionCoordinator(TransactionConfig(), index_of(partition), self.view, writer)
        return super()._new_machine(partition)

    async def _run_process(self) -> None:
        await super()._run_process()
        manager = self.manager
        self._handlers = handler_table(self.view, manager.shards, manager.submit_early, self._connections)
        callers = PodCallers(ListenerSettings(), self.clock, self._handlers)
        host, _, port = peer_address(self.name).rpartition(":")
        at = host, int(port)
        await self._network.start(_NoReplicas(), at, lambda port: at, callers.connection)
        if self.world.options.pipelines:
            state = ServerState(ListenerSettings(), self.clock)
            await self.loop.create_server(lambda: KafkaConnection(state, self._handlers), host, KAFKA_PORT)
        self._ended.append((self.view, self._network, self._connections, self._markers, callers))

    def crash(self, *, power: bool = False) -> None:
        if not self.up:
            return
        super().crash(power=power)
        self._wire.ended(self._process, silent=power and self.random.random() < 0.5)

    # -- calls --------------------------------------------------------------------------------------------------------

    def show(self, image: MetadataImage) -> None:
        """As an operator does."""

        def take(manager: object) -> None:
            self.view.update(image)
            self._network.update(image)

        self.call(take)

    def ask(self, request: Request, seen: Callable[[Any], None]) -> None:
        """As its listener does. `seen` gets each response at the end of the callback that gave it, also if the client
        has gone."""

        def handle(manager: object) -> None:
            if not request.cancelled:
                self._handlers[type(request.message)](request.message, _Answer(self, request, seen))

        self.call(handle)

    def unanswered_since(self, before_ms: int) -> str:
        """What the present process was asked before then and has not answered; "" if there is nothing."""
        for answer, since_ms in self.waiting.items():
            if self.up and since_ms < before_ms:
                return f"{self.name} was asked {answer.message} at {since_ms}, and gives no answer"
        return ""


class _Answer:
    """Implements `shard.ports.Answer`."""

    def __init__(self, pod: TransactionalPod, request: Request, seen: Callable[[Any], None]) -> None:
        self.message = request.message
        self._pod = pod
        self._run = pod.run
        self._request = request
        self._seen = seen
        pod.waiting[self] = pod.world.now_ms

    def answer(self, response: Any) -> None:
        pod = self._pod
        if pod.run != self._run or not pod.is_running:
            return
        with pod.world.noting():
            if pod.waiting.pop(self, None) is None:
                raise Violation(f"{pod.name} answers {self.message} twice")
        pod.checks.append(partial(self._seen, response))
        self._request.answer(response)

    def refuse(self, code: ErrorCode) -> None:
        with self._pod.world.noting():
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Violation(f"{self._pod.name} has no answer for {self.message}")
        self.answer(refusal(self.message, code))


class _NoReplicas:
    """Of a network over which pods ask one another only: replicas have `ProcessNetwork`."""

    log_ids: dict[int, str] = {}

    def receive(self, partition: int, message: Message) -> None:
        raise NotImplementedError

    def doubled(self, partition: int, pods: str) -> None:
        raise NotImplementedError

    def disconnected(self, log_id: str) -> None:
        raise NotImplementedError


class _Pods:
    """What replication knows of other pods: never that one is lost, so that dead ones are asked too."""

    def __init__(self, pod: TransactionalPod) -> None:
        self._pod = pod

    def pod_of(self, log_id: str) -> str | None:
        for replica in self._pod.replicas:
            found = replica.partition.replica_of(log_id)
            if found is not None:
                return found.pod.name
        return None

    def is_lost(self, pod: str) -> bool:
        return False
