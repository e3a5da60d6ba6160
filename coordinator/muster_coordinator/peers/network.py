"""The peer network of a pod: implements `replica.ports.Peers`.

A pod makes one connection to each pod that shares a partition with it, and to each pod that connects here; its own
messages go out on those, for all partitions together, and the others' come in on the connections that they made.
Messages may get lost (a full buffer, a closed connection): the protocol sends again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import structlog

from muster_coordinator.peers.addresses import Address, PeerAddresses, parse_address
from muster_coordinator.peers.asking import Asking
from muster_coordinator.peers.endpoint import PeerEndpoint
from muster_coordinator.peers.frames import (
    ASK,
    FRAME_BYTES_MAX,
    HELLO,
    Hello,
    HelloError,
    encode_frame,
    encode_hello,
    why_not,
)
from muster_coordinator.peers.holders import Holders
from muster_coordinator.peers.inbound import Inbound
from muster_coordinator.peers.outbound import Outbound, PeerState, PeerTimes
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.replication.messages import Message, encode_message, urgency_of
from muster_coordinator.security.handshakes import Listening
from muster_coordinator.tuning.pacing import Urgency

logger = structlog.get_logger(__name__)

INBOUND_MAX = 256
"""Connections that may be open here at a time; one more is closed."""


class Replicas(Protocol):
    """The replicas of this pod: `pod.replica_manager` implements it."""

    @property
    def log_ids(self) -> dict[int, str]:
        """Those of all replicas here at this moment, by partition."""
        ...

    def receive(self, partition: int, message: Message) -> None:
        """Take a message for a replica of `partition`."""
        ...

    def doubled(self, partition: int, pods: str) -> None:
        """`pods` have the log of the replica here, so it must take no part; "": only this pod has it again."""
        ...

    def disconnected(self, log_id: str) -> None:
        """The pod of that replica is lost: nothing listens there, or it is silent."""
        ...


@dataclass(frozen=True)
class PeerIdentity:
    """Name of this pod, and its Kubernetes uid, which changes with each start."""

    pod: str
    uid: str


@dataclass
class PeerCounters:
    """Since the start; `process.metrics` exports them."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0

    def __post_init__(self) -> None:
        self.dropped: Counter[str] = Counter()  # messages, by reason
        self.errors: Counter[str] = Counter()  # connections with bad input, by reason


class PeerNetwork:
    """`start` and `stop` once each."""

    def __init__(
        self,
        identity: PeerIdentity,
        lost_changed: Callable[[], None],
        *,
        buffer_bytes: int,
        endpoint: PeerEndpoint | None = None,
        times: PeerTimes | None = None,
        random: Random | None = None,
    ) -> None:
        """`lost_changed` is called when `lost` has changed. `buffer_bytes` may wait for one pod. `endpoint`: plain
        connections by default."""
        self.counters = PeerCounters()
        self.address = ""  # HOST:PORT that other pods are told; "" before `start`
        self._identity = identity
        self._lost_changed = lost_changed
        self._buffer_bytes = buffer_bytes
        self._endpoint = endpoint or PeerEndpoint()
        self._times = times or PeerTimes()
        self._random = random or Random()
        self._replicas: Replicas | None = None
        self._asked: Callable[[], asyncio.Protocol] | None = None
        self._addresses = PeerAddresses(identity.pod)
        self._holders = Holders(identity.pod)
        self._own_log_ids: dict[int, str] = {}
        self._own_doubled: dict[int, str] = {}
        self._peers: dict[str, Outbound] = {}
        self._inbound: set[Inbound] = set()
        self._by_pod: dict[str, Inbound] = {}
        self._dirty: list[Outbound] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._server: Listening | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._ticked_s = 0.0

    def __repr__(self) -> str:
        return f"<PeerNetwork {self._identity.pod} peers={list(self._peers.values())} inbound={len(self._inbound)}>"

    async def start(
        self,
        replicas: Replicas,
        listen_at: Address,
        advertise: Callable[[int], Address],
        asked: Callable[[], asyncio.Protocol] | None = None,
    ) -> int:
        """Listen, and connect to whom the image names; returns the port, which `advertise` turns into the address
        that others are told. `asked` serves the connection of a pod that asks; None: such pods are refused. Raises
        OSError when the address cannot be had."""
        self._loop = asyncio.get_running_loop()
        self._asked = asked
        self._replicas = replicas
        self._own_log_ids = replicas.log_ids
        self._server, port = await self._endpoint.listen(
            lambda: Inbound(self, self._times.connect_ms / 1000), *listen_at
        )
        self.address = "{}:{}".format(*advertise(port))
        self._ticked_s = self._loop.time()
        self._tick()
        self._connect()
        return port

    async def stop(self) -> None:
        """Close everything; what was written is still sent."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._server is not None:
            self._server.close()
        self._server = None
        self._flush()
        peers, self._peers = self._peers, {}
        await asyncio.gather(*self._stopping, *(peer.stop() for peer in peers.values()))
        for connection in tuple(self._inbound):
            connection.close()

    # -- who is where -------------------------------------------------------------------------------------------------

    def update(self, image: MetadataImage) -> None:
        """Take the addresses of pods and replicas from `image`; connections that do not fit it are closed."""
        changed = self._addresses.cluster_id not in ("", image.cluster_id)
        before = self.lost
        self._addresses.update(image)
        if changed:
            for connection in tuple(self._inbound):
                connection.abort()
            for peer in self._peers.values():
                peer.reset("this pod is of another cluster now")
        self._connect()
        if self.lost != before:
            self._lost_changed()

    def pod_of(self, log_id: str) -> str | None:
        """The pod that has this replica, as far as it is known here."""
        return self._addresses.pod_of(log_id)

    @property
    def lost(self) -> tuple[str, ...]:
        """Pods that share a partition with this one and are not heard."""
        sharing = self._addresses.sharing
        return tuple(sorted(pod for pod, peer in self._peers.items() if peer.lost and pod in sharing))

    def is_lost(self, pod: str) -> bool:
        peer = self._peers.get(pod)
        return peer is not None and peer.lost

    @property
    def states(self) -> dict[str, bool]:
        """Pod -> whether it is connected and heard."""
        return {pod: peer.state is PeerState.UP and not peer.lost for pod, peer in self._peers.items()}

    @property
    def waiting_bytes(self) -> int:
        return sum(peer.waiting_bytes for peer in self._peers.values())

    def _connect(self) -> None:
        """Make the connections fit `PeerAddresses.wanted`."""
        if self._server is None:
            return
        wanted = self._addresses.wanted
        for pod, peer in tuple(self._peers.items()):
            if wanted.get(pod) != peer.address:
                del self._peers[pod]
                task = self._loop.create_task(peer.stop())
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)
        for pod, address in wanted.items():
            if pod not in self._peers:
                peer = Outbound(pod, address, self, self._endpoint, self._buffer_bytes, self._times, self._random)
                self._peers[pod] = peer
                peer.start()

    async def ask(
        self, pod: str, received: Callable[[bytes], None], lost: Callable[[str], None], timeout_s: float
    ) -> Asking:
        """A new connection to ask `pod`, whether it shares a partition or not. Raises OSError (TimeoutError and
        SSLError included): it cannot be reached, or its address is not known."""
        address = self._addresses.address_of(pod)
        if address is None:
            raise ConnectionError(f"the address of {pod} is not known")

        def factory() -> Asking:
            return Asking(self._hello(pod, ASK), lambda hello: self.check_hello(hello, pod), received, lost)

        return await self._endpoint.connect(factory, *address, pod, timeout_s)

    # -- sending: replica.ports.Peers ---------------------------------------------------------------------------------

    def send(self, partition: int, message: Message) -> None:
        """Queue for the pod that has the replica `message.to`; written at the end of this turn of the loop, at once
        if an election waits for it.
        """
        if self._is_doubled(message):
            return
        pod = self._addresses.pod_of(message.to)
        peer = self._peers.get(pod) if pod is not None else None
        if peer is None:
            self.counters.dropped["unknown_replica"] += 1
            return
        frame = encode_frame(partition, encode_message(message))
        dropped = peer.send(frame) if len(frame) <= FRAME_BYTES_MAX else "too_large"
        if dropped:
            self.counters.dropped[dropped] += 1
            if dropped == "too_large":
                logger.error("peer_message_too_large", partition=partition, size=len(frame), limit=FRAME_BYTES_MAX)
            return
        self.counters.messages_sent += 1
        self.counters.bytes_sent += len(frame)
        if urgency_of(message) is Urgency.ELECTION:
            peer.flush_now()

    def write_soon(self, peer: Outbound) -> None:
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(peer)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for peer in dirty:
            peer.flush()

    # -- called by outgoing connections -------------------------------------------------------------------------------

    @property
    def own_log_ids(self) -> dict[int, str]:
        return self._own_log_ids

    def own_hello(self, to: str) -> bytes:
        return self._hello(to, HELLO)

    def _hello(self, to: str, kind: int) -> bytes:
        return encode_hello(self._addresses.cluster_id, self._identity.pod, self._identity.uid, self.address, to, kind)

    def check_hello(self, hello: Hello, pod: str) -> None:
        error = why_not(hello, self._addresses.cluster_id, self._identity.pod)
        if error is None and hello.pod != pod:
            error = HelloError("wrong_pod", f"{hello.pod!r} listens there, not {pod!r}")
        if error is not None:
            raise error

    def lost_changed(self, peer: Outbound) -> None:
        if self._peers.get(peer.pod) is not peer:
            return
        if peer.lost and self._replicas is not None:
            for log_id in self._addresses.log_ids_of(peer.pod):
                self._replicas.disconnected(log_id)
        self._look_for_doubles()
        if peer.pod in self._addresses.sharing:
            self._lost_changed()

    def failed(self, peer: Outbound, reason: str, message: str) -> None:
        self.counters.errors[reason] += 1
        logger.warning("peer_refused", peer=peer.pod, reason=reason, error=message)

    # -- called by incoming connections -------------------------------------------------------------------------------

    def accept(self, connection: Inbound) -> None:
        self._inbound.add(connection)
        if len(self._inbound) > INBOUND_MAX:
            self.rejected(connection, "too_many_connections", f"{INBOUND_MAX} are open")
            connection.abort()

    def asked(self, hello: Hello) -> asyncio.Protocol:
        self._check_caller(hello)
        if self._asked is None:
            raise HelloError("asks", "nothing here answers what pods ask")
        return self._asked()

    def _check_caller(self, hello: Hello) -> None:
        error = why_not(hello, self._addresses.cluster_id, self._identity.pod)
        if error is not None:
            raise error

    def introduced(self, connection: Inbound, hello: Hello) -> None:
        self._check_caller(hello)
        try:
            address = parse_address(hello.address)
        except ValueError as malformed:
            raise HelloError("malformed", f"its address {malformed}") from malformed
        before = self._by_pod.get(hello.pod)
        self._by_pod[hello.pod] = connection
        if before is not None:
            if before.uid != hello.uid:
                self.counters.errors["replaced"] += 1
                logger.warning("peer_replaced", peer=hello.pod, was=repr(before), uid=hello.uid)
            before.abort()
            self._holders.left(hello.pod)
        self._addresses.guest(hello.pod, address)
        self._connect()
        peer = self._peers.get(hello.pod)
        if peer is not None:
            peer.hurry()

    def received(self, connection: Inbound, partition: int, message: Message, size: int) -> None:
        self.counters.messages_received += 1
        self.counters.bytes_received += size
        if connection.senders.get(partition) != message.sender:
            connection.senders[partition] = message.sender
            self._addresses.show(message.sender, connection.pod)
            if self._holders.shown(connection.pod, partition, message.sender):
                self._look_for_doubles()
        if not self._is_doubled(message):
            assert self._replicas is not None
            self._replicas.receive(partition, message)

    def announced(self, connection: Inbound, log_ids: dict[int, str]) -> None:
        self._holders.announced(connection.pod, log_ids)
        self._look_for_doubles()

    def rejected(self, connection: Inbound, reason: str, message: str) -> None:
        self.counters.errors[reason] += 1
        logger.warning("peer_connection_closed", peer=repr(connection), reason=reason, error=message)

    def left(self, connection: Inbound) -> None:
        self._inbound.discard(connection)
        if self._by_pod.get(connection.pod) is connection:
            del self._by_pod[connection.pod]
            self._addresses.guest_left(connection.pod)
            self._holders.left(connection.pod)
            self._connect()
            self._look_for_doubles()

    # -- a log id on two volumes --------------------------------------------------------------------------------------

    def _is_doubled(self, message: Message) -> bool:
        """Nothing is taken from such a replica, and nothing is sent to it."""
        doubled = self._holders.doubled
        if not doubled or (message.to not in doubled and message.sender not in doubled):
            return False
        self.counters.dropped["doubled"] += 1
        return True

    def _look_for_doubles(self) -> None:
        if not self._holders.look(self._own_log_ids, self.is_lost):
            return
        for log_id, pods in self._holders.doubled.items():
            logger.error("log_doubled", log_id=log_id, pods=pods)
        before = self._own_doubled
        self._own_doubled = {
            partition: self._holders.doubled[log_id]
            for partition, log_id in self._own_log_ids.items()
            if log_id in self._holders.doubled
        }
        assert self._replicas is not None
        for partition in before.keys() | self._own_doubled.keys():
            if before.get(partition) != self._own_doubled.get(partition):
                self._replicas.doubled(partition, self._own_doubled.get(partition, ""))

    # -- time ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        interval_s = self._times.ping_ms / 2000
        if self._replicas is not None and self._own_log_ids != self._replicas.log_ids:
            self._own_log_ids = self._replicas.log_ids
            self._look_for_doubles()
        now_s = self._loop.time()
        late_s = now_s - self._ticked_s - interval_s
        self._ticked_s = now_s
        grace_s = late_s if late_s > interval_s else 0.0  # this process slept: what came meanwhile is not read yet
        for peer in tuple(self._peers.values()):
            peer.tick(grace_s)
        self._ticking = self._loop.call_later(interval_s, self._tick)
