"""The pod API over real HTTP on loopback, client and server together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_server import eventually, serve, start

from muster_coordinator.calls import CallStatus
from muster_coordinator.podapi.client import (
    PodClient,
    PodRefusedError,
    PodTimeoutError,
    PodUnreachableError,
    new_session,
)
from muster_coordinator.podapi.image import Broker, MetadataImage, PartitionLeader
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    HeartbeatEvent,
    PartitionEvent,
    ReplicaRequest,
    ReplicasRequest,
    Resignation,
    ResignationsRequest,
    StatusEvent,
)
from muster_coordinator.podapi.side_ports import MetricsRoutes
from muster_coordinator.states import ShardState


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_session() as session:
        yield session


@pytest.fixture
def pod() -> FakePod:
    return FakePod("pod-0", 0)


@pytest.fixture
async def client(pod: FakePod, session: aiohttp.ClientSession) -> AsyncIterator[PodClient]:
    async with serve(pod) as address:
        yield PodClient(session, "pod-0", address)


def replicas(*indexes: int) -> ReplicasRequest:
    return ReplicasRequest(1, tuple(ReplicaRequest(index) for index in indexes))


def election(index: int, epoch: int, log_id: str, *, bootstrap: bool = False) -> ElectionsRequest:
    return ElectionsRequest((Election(index, epoch, (log_id,), bootstrap=bootstrap),))


def image(version: int) -> MetadataImage:
    return MetadataImage(
        token=1,
        version=version,
        cluster_id="c",
        brokers=(Broker(0, "127.0.0.1", 9092, "pod-0"),),
        offsets_partitions=1,
        leaders=(PartitionLeader(0, -1, -1),),
    )


async def test_replicas_created_twice_keep_their_log_id(client: PodClient) -> None:
    first = await client.create_replicas(replicas(0, 3))
    again = await client.create_replicas(replicas(0, 3))
    assert [r.partition for r in first.results] == [0, 3]
    assert [r.log_id for r in again.results] == [r.log_id for r in first.results]
    assert not any(r.used for r in again.results)


async def test_elections_answer_per_partition_with_code_status_and_epoch(client: PodClient) -> None:
    created = (await client.create_replicas(replicas(0))).results[0]
    accepted = (await client.elect(election(0, 4, created.log_id, bootstrap=True))).results[0]
    assert (accepted.status, accepted.epoch) == (CallStatus.ACCEPTED, 4)
    stale = (await client.elect(election(0, 3, created.log_id))).results[0]
    assert (stale.status, stale.epoch) == (CallStatus.STALE_EPOCH, 4)
    absent = (await client.elect(election(7, 3, created.log_id))).results[0]
    assert absent.status is CallStatus.WRONG_REPLICA


async def test_resignation_names_the_epoch_that_ended(client: PodClient) -> None:
    created = (await client.create_replicas(replicas(0))).results[0]
    await client.elect(election(0, 4, created.log_id, bootstrap=True))
    answer = (await client.resign(ResignationsRequest((Resignation(0, 5),)))).results[0]
    assert (answer.status, answer.epoch, answer.ended_epoch) == (CallStatus.ACCEPTED, 5, 4)


async def test_status_and_partitions_show_the_same_replicas(client: PodClient) -> None:
    await client.create_replicas(replicas(1, 2))
    assert (await client.status()).partitions == await client.partitions()
    assert [p.partition for p in await client.partitions()] == [1, 2]


async def test_metadata_older_than_the_current_is_refused(client: PodClient, pod: FakePod) -> None:
    answer = await client.update_metadata(image(2))
    assert (answer.token, answer.version) == (1, 2)
    with pytest.raises(PodRefusedError) as caught:
        await client.update_metadata(image(1))
    assert (caught.value.status, caught.value.reason) == (409, "StaleImage")
    assert [i.version for i in pod.images] == [2]


async def test_older_fencing_token_is_a_409_with_both_tokens_in_the_message(client: PodClient) -> None:
    await client.create_replicas(ReplicasRequest(3, ()))
    assert (await client.status()).fencing_token == 3
    with pytest.raises(PodRefusedError, match="seen fencing token 3, yours is 2") as caught:
        await client.create_replicas(ReplicasRequest(2, ()))
    assert (caught.value.status, caught.value.reason) == (409, "StaleToken")
    await client.create_replicas(ReplicasRequest(3, ()))


async def test_higher_epoch_is_taken_from_an_operator_with_a_lower_token(client: PodClient) -> None:
    """A restored store lowers the token: elections carry none, so it cannot keep a partition without a leader."""
    created = (await client.create_replicas(replicas(0))).results[0]
    await client.update_metadata(msgspec.structs.replace(image(1), token=9))
    accepted = (await client.elect(election(0, 4, created.log_id, bootstrap=True))).results[0]
    assert (accepted.status, accepted.epoch) == (CallStatus.ACCEPTED, 4)
    resigned = (await client.resign(ResignationsRequest((Resignation(0, 5),)))).results[0]
    assert resigned.status is CallStatus.ACCEPTED


async def test_drain_reaches_the_pod(client: PodClient, pod: FakePod) -> None:
    await client.drain()
    assert pod.drained


async def test_drain_of_an_operator_that_was_replaced_is_refused(client: PodClient, pod: FakePod) -> None:
    await client.create_replicas(ReplicasRequest(3, ()))
    with pytest.raises(PodRefusedError) as caught:
        await client.drain(token=2)
    assert caught.value.reason == "StaleToken"
    assert not pod.drained
    await client.drain(token=3)
    assert pod.drained


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"{", "truncated", id="no-json"),
        pytest.param(b"[]", "object", id="wrong-top"),
        pytest.param(b"{}", "elections", id="field-missing"),
        pytest.param(b'{"elections":[{"partition":0,"epoch":"x","replicas":[]}]}', "epoch", id="type"),
        pytest.param(b'{"elections":[{"partition":-1,"epoch":1,"replicas":[]}]}', "partition", id="low"),
        pytest.param(b'{"elections":[{"partition":0,"epoch":2147483648,"replicas":[]}]}', "epoch", id="int32"),
    ],
)
async def test_bad_input_is_a_400_that_names_the_field(
    client: PodClient, session: aiohttp.ClientSession, body: bytes, words: str
) -> None:
    async with session.post(f"http://{client.address}/v1/elections", data=body) as response:
        assert response.status == 400
        assert words in (await response.json())["message"]


async def test_call_meant_for_another_pod_is_refused_with_421(
    client: PodClient, session: aiohttp.ClientSession
) -> None:
    stranger = PodClient(session, "pod-1", client.address)
    with pytest.raises(PodRefusedError, match="this is pod 'pod-0'") as caught:
        await stranger.create_replicas(replicas(0))
    assert (caught.value.status, caught.value.reason) == (421, "WrongPod")


async def test_probes_say_yes_or_no_with_a_line(client: PodClient, session: aiohttp.ClientSession) -> None:
    async with session.get(f"http://{client.address}/healthz/ready") as response:
        assert (response.status, await response.text()) == (503, "no metadata yet\n")
    await client.update_metadata(image(1))
    async with session.get(f"http://{client.address}/healthz/ready") as response:
        assert response.status == 200
    async with session.get(f"http://{client.address}/healthz/nonsense") as response:
        assert response.status == 404


async def test_metrics_are_served_as_text(client: PodClient, session: aiohttp.ClientSession) -> None:
    async with session.get(f"http://{client.address}/metrics") as response:
        assert await response.text() == "muster_up 1\n"


async def test_metrics_asked_for_at_once_share_a_text_made_after_the_question() -> None:
    texts: list[bytes] = []

    def render() -> bytes:
        texts.append(b"%d" % len(texts))
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass  # a text that takes long needs a long rest
        return texts[-1]

    app = web.Application()
    app.router.add_routes(MetricsRoutes(render).routes())
    async with TestClient(TestServer(app)) as client:

        async def ask() -> bytes:
            async with client.get("/metrics") as response:
                return await response.read()

        assert await ask() == b"0"
        assert await ask() == b"1"
        await asyncio.gather(*(ask() for _ in range(20)))
        assert len(texts) < 20  # they have all come before the rest ends that the next text needs
        assert int(await ask()) == len(texts) - 1


async def test_watch_starts_with_the_status_then_sends_changes_and_heartbeats(client: PodClient) -> None:
    log_id = (await client.create_replicas(replicas(0))).results[0].log_id
    async with aclosing(client.watch(5.0)) as events:
        first = await anext(events)
        assert isinstance(first, StatusEvent)
        assert first.status.partitions[0].log_id == log_id
        await client.elect(election(0, 1, log_id, bootstrap=True))
        changed = await anext(events)
        while isinstance(changed, HeartbeatEvent):
            changed = await anext(events)
        assert isinstance(changed, PartitionEvent)
        assert (changed.partition.state, changed.partition.leader_epoch) == (ShardState.ACTIVE, 1)
        assert isinstance(await anext(events), HeartbeatEvent)


async def test_watch_of_a_pod_with_many_partitions_gives_the_status_whole(client: PodClient) -> None:
    await client.create_replicas(replicas(*range(2000)))
    async with aclosing(client.watch(5.0)) as events:
        first = await anext(events)
    assert isinstance(first, StatusEvent)
    assert len(first.status.partitions) == 2000


async def test_watch_ends_when_the_pod_stops(pod: FakePod, session: aiohttp.ClientSession) -> None:
    server = await start(pod)
    async with aclosing(PodClient(session, "pod-0", server.address).watch(5.0)) as events:
        await anext(events)
        await server.stop()
        try:
            async for _ in events:
                pass
        except PodUnreachableError:
            pass  # broken or ended: both are an end
    with pytest.raises(PodUnreachableError) as caught:
        await PodClient(session, "pod-0", server.address).status()
    assert caught.value.refused


async def test_watch_reader_that_leaves_is_forgotten(client: PodClient, pod: FakePod) -> None:
    async with aclosing(client.watch(5.0)) as events:
        await anext(events)
        assert "streams=1" in repr(pod._hub)
    await eventually(lambda: "streams=0" in repr(pod._hub))  # found out at the next heartbeat


async def test_only_the_operators_stream_counts_as_hearing_it(
    client: PodClient, pod: FakePod, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"http://{client.address}/v1/watch") as response:
        for _ in range(3):
            await response.content.readline()
    assert pod.operator_heard_count == 0
    async with aclosing(client.watch(5.0)) as events:
        await anext(events)
        assert isinstance(await anext(events), HeartbeatEvent)
    assert pod.operator_heard_count >= 1


@asynccontextmanager
async def _beating(beats: int, apart_s: float) -> AsyncIterator[str]:
    """The address of a peer that sends so many heartbeats and is silent from then on."""

    async def beat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        line = msgspec.json.encode(HeartbeatEvent(now=1)) + b"\n"
        for _ in range(beats):
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await asyncio.sleep(apart_s)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(beat, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()


async def test_stream_that_falls_silent_is_a_timeout_counted_from_its_last_event(
    session: aiohttp.ClientSession,
) -> None:
    heard: list[float] = []
    now = asyncio.get_running_loop().time

    async def hear(address: str) -> None:
        async for _ in PodClient(session, "pod-0", address).watch(0.4):
            heard.append(now())

    async with _beating(beats=8, apart_s=0.1) as address:
        with pytest.raises(PodTimeoutError):
            await hear(address)
    assert len(heard) == 8
    assert 0.39 <= now() - heard[-1] < 0.6


async def test_what_came_while_the_reader_had_no_turn_is_no_silence(session: aiohttp.ClientSession) -> None:
    async with (
        _beating(beats=6, apart_s=0.02) as address,
        aclosing(PodClient(session, "pod-0", address).watch(0.2)) as events,
    ):
        await anext(events)
        await asyncio.sleep(0.3)  # longer than the limit, and nothing is read
        for _ in range(5):
            assert isinstance(await anext(events), HeartbeatEvent)


async def test_silent_peer_is_a_timeout(session: aiohttp.ClientSession) -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silence, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = PodClient(session, "pod-0", f"{host}:{port}")
    with pytest.raises(PodTimeoutError):
        await client.status(timeout_s=0.05)
    with pytest.raises(PodTimeoutError):
        await anext(client.watch(0.05))
    server.close()
