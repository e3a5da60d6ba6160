"""Markers reach whoever leads a group's partition, and each attempt is resolved once for each partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest_asyncio
from tests.support.peers import PeerPod, introduce
from tests.unit.shard.fake_world import World

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.marker_writer import MarkerWriter
from muster_coordinator.pod.pod_connections import PodConnections, PodDialler
from muster_coordinator.podapi.image import Broker, MetadataImage, PartitionLeader
from muster_coordinator.requests.cluster import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from muster_coordinator.requests.transactions import InitProducerIdRequest, MarkersToWrite, MarkersWritten
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator
from muster_coordinator.wire.framing import FrameReader, encode_response_frame, read_header

NUMBER = TRANSACTIONS.first + 1
REQUEST = MarkersToWrite("tx", 17, 7, 3, True, 2, ((OFFSETS.name, (0, 1)),))


class Events:
    """In place of the transaction shard: keeps what it is told."""

    epoch = 9
    state = ShardState.LOADING

    def __init__(self) -> None:
        self.told: list[MarkersWritten] = []

    def notify(self, event: MarkersWritten) -> None:
        self.told.append(event)

    @property
    def codes(self) -> dict[int, int]:
        assert all((each.transactional_id, each.prepared_at) == ("tx", 17) for each in self.told)
        pairs = [pair for each in self.told for _, partitions in each.topics for pair in partitions]
        assert len(dict(pairs)) == len(pairs), "resolved once"
        return dict(pairs)


class OtherPod:
    """A pod that answers markers with `code`, or closes the connection when it is None."""

    def __init__(self) -> None:
        self.code: int | None = 0
        self.asked: list[WriteTxnMarkersRequest] = []
        self.connections = 0

    def connection(self) -> asyncio.Protocol:
        self.connections += 1
        return Answering(self)


class Answering(asyncio.Protocol):
    def __init__(self, pod: OtherPod) -> None:
        self._pod = pod
        self._reader = FrameReader(1 << 20)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            header = read_header(frame)
            request: Any = header.api.decode_request(header, frame, "/127.0.0.1")
            self._pod.asked.append(request)
            if self._pod.code is None:
                self._transport.close()
                return
            ((marker),) = request.markers
            topics = tuple((t, tuple((p, self._pod.code) for p in ps)) for t, ps in marker.topics)
            answer = WriteTxnMarkersResponse(((marker.producer_id, topics),))
            body = header.api.encode_response(header.api_version, answer)
            frame = encode_response_frame(header.api, header.api_version, header.correlation_id, body)
            self._transport.write(frame)


class Pod:
    """It leads a transaction partition and offsets partition 0; another pod leads offsets partition 1."""

    def __init__(self, dialler: PodDialler) -> None:
        self.events = Events()
        self.world = World(GroupCoordinator(GroupConfig(), ClusterView(), lambda: "x"))
        self.world.activate()
        self.world.turn()
        self.view = ClusterView()
        self.image = MetadataImage(
            token=1,
            version=1,
            cluster_id="c",
            brokers=(Broker(0, "127.0.0.1", 1, "pod-0"), Broker(1, "127.0.0.1", 2, "pod-1")),
            offsets_partitions=2,
            leaders=(PartitionLeader(0, 0, 1), PartitionLeader(1, 1, 1)),
        )
        self.view.update(self.image)
        self.shards: dict[int, Shard] = {0: self.world.shard, NUMBER: self.events}  # type: ignore[dict-item]
        self.connections = PodConnections(dialler, answer_timeout_s=20)
        self.writer = MarkerWriter(self.view, self.shards, self.connections)

    async def attempt(self) -> dict[int, int]:
        """Code by partition, when all are resolved."""
        self.events.told.clear()
        self.writer.of(NUMBER).attempt(REQUEST).answer(REQUEST)
        return await self.resolved()

    async def resolved(self) -> dict[int, int]:
        """Code by partition, when all are resolved."""
        self.world.commit()
        async with asyncio.timeout(20):
            while len(self.events.codes) < 2:
                self.world.turn()
                self.world.commit()
                await asyncio.sleep(0.001)
        return self.events.codes


@pytest_asyncio.fixture
async def other() -> AsyncIterator[tuple[OtherPod, Pod]]:
    here, there = PeerPod("pod-0"), PeerPod("pod-1")
    answering = OtherPod()
    await here.start()
    await there.start(asked=answering.connection)
    introduce(here, there)
    pod = Pod(here.network)
    yield answering, pod
    pod.connections.stop()
    await here.network.stop()
    await there.network.stop()


async def test_marker_goes_to_the_shard_here_and_to_the_pod_that_leads(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    assert await pod.attempt() == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    ((marker,),) = [request.markers for request in there.asked]
    assert (marker.producer_id, marker.producer_epoch, marker.committed) == (7, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (9, 2)
    assert marker.topics == ((OFFSETS.name, (1,)),)
    assert isinstance(pod.world.machine, GroupCoordinator)
    assert pod.world.machine.durable_state().producer_epochs == {7: 3}


async def test_one_connection_serves_all_markers(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    for _ in range(3):
        await pod.attempt()
    assert (there.connections, len(there.asked)) == (1, 3)


async def test_refusal_of_the_other_pod_is_passed_on(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    there.code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await pod.attempt() == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_connection_that_breaks_ends_the_attempt_and_the_next_one_has_another(
    other: tuple[OtherPod, Pod],
) -> None:
    there, pod = other
    there.code = None
    assert await pod.attempt() == {0: ErrorCode.NONE, 1: ErrorCode.NETWORK_EXCEPTION}
    there.code = 0
    assert await pod.attempt() == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert there.connections == 2


async def test_partition_without_a_leader_is_told_so(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    pod.view.update(
        MetadataImage(token=1, version=2, cluster_id="c", brokers=pod.image.brokers, offsets_partitions=2, leaders=())
    )
    assert await pod.attempt() == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert there.asked == []


async def test_refused_attempt_is_resolved_without_a_marker(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    pod.writer.of(NUMBER).attempt(REQUEST).refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert pod.events.codes == dict.fromkeys((0, 1), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert there.asked == []


async def test_attempt_of_a_leadership_that_has_ended_writes_nothing(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    del pod.shards[NUMBER]
    attempt = pod.writer.of(NUMBER).attempt(REQUEST)
    attempt.answer(REQUEST)
    attempt.refuse(ErrorCode.NOT_COORDINATOR)
    assert (pod.events.told, there.asked) == ([], [])


NAME, OTHER_NAME = "a" * 32, "b" * 32


async def test_markers_wait_for_the_end_of_a_hold(other: tuple[OtherPod, Pod]) -> None:
    there, pod = other
    assert pod.writer.hold.begin(NAME, 2)
    pod.writer.of(NUMBER).attempt(REQUEST).answer(REQUEST)
    pod.world.turn()
    pod.world.commit()
    await asyncio.sleep(0)
    assert (pod.events.told, there.asked, there.connections) == ([], [], 0)
    assert pod.writer.hold.end(NAME)
    assert await pod.resolved() == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert not pod.writer.hold.end(NAME), "it has ended before"


async def test_what_came_of_markers_waits_for_the_end_of_a_hold_too(other: tuple[OtherPod, Pod]) -> None:
    """Their transaction stays as it was cut: its producer begins no other one."""
    there, pod = other
    pod.writer.of(NUMBER).attempt(REQUEST).answer(REQUEST)
    assert pod.writer.hold.begin(NAME, 2)
    pod.world.turn()
    pod.world.commit()
    async with asyncio.timeout(20):
        while not there.asked:
            await asyncio.sleep(0.001)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert pod.events.told == []
    assert pod.writer.hold.end(NAME)
    assert await pod.resolved() == {0: ErrorCode.NONE, 1: ErrorCode.NONE}


def transactions(pod: Pod) -> World:
    """A transaction partition of the pod that has appended a record."""
    world = World(TransactionCoordinator(TransactionConfig(), 2, pod.view, pod.writer.of(NUMBER + 1)))
    world.activate()
    world.turn()
    world.commit()
    pod.shards[NUMBER + 1] = world.shard
    world.ask(InitProducerIdRequest("tx", 60_000))
    return world


async def test_hold_is_settled_when_all_that_was_queued_before_is_committed(other: tuple[OtherPod, Pod]) -> None:
    _, pod = other
    world = transactions(pod)
    settled = asyncio.create_task(pod.writer.settle(20))
    await asyncio.sleep(0)
    world.turn()
    await asyncio.sleep(0)
    assert not settled.done()
    world.commit()
    assert await settled


async def test_hold_is_not_settled_where_nothing_is_committed_or_the_leadership_ends(
    other: tuple[OtherPod, Pod],
) -> None:
    _, pod = other
    world = transactions(pod)
    world.turn()
    assert not await pod.writer.settle(0.01)
    settled = asyncio.create_task(pod.writer.settle(20))
    await asyncio.sleep(0)
    world.shard.close("it leads no more")
    assert not await settled


async def test_hold_that_nobody_ends_ends_by_itself_and_says_so(other: tuple[OtherPod, Pod]) -> None:
    _, pod = other
    assert pod.writer.hold.begin(NAME, 0.001)
    pod.writer.of(NUMBER).attempt(REQUEST).answer(REQUEST)
    assert await pod.resolved() == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert not pod.writer.hold.end(NAME)


async def test_markers_are_held_a_tenth_of_the_time_at_most_whoever_asks(other: tuple[OtherPod, Pod]) -> None:
    _, pod = other
    loop = asyncio.get_running_loop()
    holds = []
    while len(holds) < 4:
        if pod.writer.hold.begin(NAME, 2):
            began = loop.time()
            assert not pod.writer.hold.begin(OTHER_NAME, 2)
            assert not pod.writer.hold.end(OTHER_NAME)
            await asyncio.sleep(0.005)
            holds.append((began, loop.time()))
            assert pod.writer.hold.end(NAME)
        await asyncio.sleep(0)
    for (began, ended), (next_began, _) in pairwise(holds):
        assert next_began - ended >= 9 * (ended - began)


async def test_held_markers_of_a_leadership_that_has_ended_are_not_written_for_the_next(
    other: tuple[OtherPod, Pod],
) -> None:
    there, pod = other
    assert pod.writer.hold.begin(NAME, 2)
    pod.writer.of(NUMBER).attempt(REQUEST).answer(REQUEST)
    pod.shards[NUMBER] = Events()  # type: ignore[assignment]
    pod.writer.hold.end(NAME)
    pod.world.turn()
    assert (pod.events.told, there.connections) == ([], 0)
