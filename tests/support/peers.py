"""Peer networks on loopback, and stand-ins for pods that behave badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

from muster_coordinator.peers.addresses import Address, parse_address
from muster_coordinator.peers.frames import PONG, encode_frame, encode_hello
from muster_coordinator.peers.network import PeerIdentity, PeerNetwork
from muster_coordinator.peers.outbound import PeerTimes
from muster_coordinator.podapi.image import MetadataImage, Peer, ReplicaPlace
from muster_coordinator.replication.messages import Ack, Append, Batch, Message

CLUSTER = "cluster-1"
LIMIT_S = 20.0
"""The limit for what should take milliseconds, on a machine that has other things to do."""


async def until(holds: Callable[[], bool]) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.002)


def log_id(pod: str) -> str:
    return f"log-of-{pod}"


def ack(sender: str, to: str, number: int) -> Ack:
    """A small message, told from others by `number`."""
    return Ack(log_id(sender), log_id(to), 1, end=number, round=0, incarnation=0, rebuilding=False)


def append(sender: str, to: str, size: int, number: int = 0) -> Append:
    """A message with one batch of `size` bytes."""
    return Append(
        log_id(sender),
        log_id(to),
        1,
        start=number,
        end=number + 1,
        previous_epoch=-1,
        runs=((1, number),),
        batches=(Batch(number, number + 1, 1, bytes(size)),),
        commit_point=0,
        leader_end=number + 1,
        horizon=0,
        round=0,
        incarnation=0,
    )


def image(
    addresses: dict[str, str], version: int = 1, cluster_id: str = CLUSTER, places: Sequence[str] | None = None
) -> MetadataImage:
    """Each pod has one replica of partition 0, `places` names other pods for it than all."""
    peers = tuple(Peer(pod, *parse_address(address)) for pod, address in addresses.items())
    return MetadataImage(
        token=1,
        version=version,
        cluster_id=cluster_id,
        brokers=(),
        offsets_partitions=1,
        leaders=(),
        peers=peers,
        places=tuple(ReplicaPlace(0, log_id(pod), pod) for pod in (addresses if places is None else places)),
    )


class FakeReplicas:
    """Stands for a pod's replicas, and keeps what they heard."""

    def __init__(self) -> None:
        self.received: list[tuple[int, Message]] = []
        self.disconnected_ids: list[str] = []
        self.log_ids: dict[int, str] = {}
        self.doubled_here: dict[int, str] = {}

    def receive(self, partition: int, message: Message) -> None:
        self.received.append((partition, message))

    def doubled(self, partition: int, pods: str) -> None:
        self.doubled_here[partition] = pods

    def disconnected(self, log_id: str) -> None:
        self.disconnected_ids.append(log_id)

    @property
    def numbers(self) -> list[int]:
        return [m.end for _, m in self.received if isinstance(m, Ack)]


class PeerPod:
    """One pod's network with the replicas behind it."""

    def __init__(self, name: str, uid: str = "", times: PeerTimes | None = None, buffer_bytes: int = 1 << 20) -> None:
        self.name = name
        self.replicas = FakeReplicas()
        identity = PeerIdentity(name, uid or f"uid-of-{name}")
        self.network = PeerNetwork(identity, self._count, buffer_bytes=buffer_bytes, times=times, random=Random(1))
        self.lost_changes = 0

    def _count(self) -> None:
        self.lost_changes += 1

    async def start(self, port: int = 0, asked: Callable[[], asyncio.Protocol] | None = None) -> None:
        await self.network.start(self.replicas, ("127.0.0.1", port), lambda got: ("127.0.0.1", got), asked)

    def send(self, to: str, number: int, partition: int = 0) -> None:
        self.network.send(partition, ack(self.name, to, number))


@asynccontextmanager
async def pods(
    *names: str, times: PeerTimes | None = None, buffer_bytes: int = 1 << 20
) -> AsyncIterator[tuple[PeerPod, ...]]:
    """Pods that know and hear each other."""
    all_pods = tuple(PeerPod(name, times=times, buffer_bytes=buffer_bytes) for name in names)
    try:
        for pod in all_pods:
            await pod.start()
        introduce(*all_pods)
        await until(lambda: all(len(p.network.states) == len(names) - 1 for p in all_pods))
        await until(lambda: all(all(p.network.states.values()) for p in all_pods))
        yield all_pods
    finally:
        for pod in all_pods:
            await pod.network.stop()


def introduce(*all_pods: PeerPod, version: int = 1) -> None:
    """The same image to all of them."""
    the_image = image({p.name: p.network.address for p in all_pods}, version)
    for pod in all_pods:
        pod.network.update(the_image)


class FakePeer:
    """Listens like pod `name`: says hello to pod `to`, answers pings while `alive`, reads while `reads`."""

    def __init__(
        self, name: str, to: str, hello: bytes | None = None, *, alive: bool = True, reads: bool = True
    ) -> None:
        self._to = to
        self.alive = alive
        self.connections = 0
        self.received_bytes = 0
        self._name = name
        self._hello = hello
        self._reads = reads
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> FakePeer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            await reader.read(4096)
            writer.write(self._hello or encode_hello(CLUSTER, self._name, "uid", self.address, self._to))
            while self._reads:
                data = await reader.read(1 << 16)
                self.received_bytes += len(data)
                if not data:
                    break
                if self.alive:
                    writer.write(encode_frame(PONG))
        except ConnectionError:
            pass


async def connect_raw(address: str | Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = parse_address(address) if isinstance(address, str) else address
    return await asyncio.open_connection(host, port)
