"""A session with a real server behind it: what the view says as the pod comes, goes, falls silent, or is another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from msgspec.structs import replace
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_server import Server, eventually, start

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.client import PodUnreachableError, new_session
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    ReplicaRequest,
    ReplicasRequest,
    ReplicaStatus,
)
from muster_coordinator.states import FailureReason, ReplicaRole, ShardState
from muster_operator.clock import Clock
from muster_operator.plan.observation import Connection
from muster_operator.pods.session import PodSession
from muster_operator.pods.sessions import PodSessions
from muster_operator.store.port import ClusterKey
from muster_operator.store.workload import PodInfo, PodPhase


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_session() as session:
        yield session


@pytest.fixture
def pod() -> FakePod:
    return FakePod("c-0", 0)


@pytest.fixture
async def server(pod: FakePod) -> AsyncIterator[Server]:
    server = await start(pod)
    yield server
    await server.stop()


def session_to(http: aiohttp.ClientSession, address: str, name: str = "c-0", silence_s: float = 5.0) -> PodSession:
    info = PodInfo(name, 0, "uid", address, "", PodPhase.RUNNING if address else PodPhase.PENDING)
    return PodSession(http, info, silence_s, Clock(), lambda: None)


@pytest.fixture
async def session(http: aiohttp.ClientSession, server: Server) -> AsyncIterator[PodSession]:
    session = session_to(http, server.address)
    session.start()
    await eventually(lambda: session.view().connection is Connection.UP)
    yield session
    session.stop()


async def led(pod: FakePod, session: PodSession, epoch: int = 0) -> None:
    await pod.create_replicas(ReplicasRequest(1, (ReplicaRequest(0),)))
    log_id = pod.volume.replicas[0].log_id
    await pod.elect(ElectionsRequest((Election(0, epoch, (log_id,), bootstrap=True),)))
    await eventually(lambda: 0 in session.view().replicas and session.view().replicas[0].epoch == epoch)


async def test_view_follows_the_events_of_the_pod(pod: FakePod, session: PodSession) -> None:
    await led(pod, session)
    replica = session.view().replicas[0]
    assert (replica.state, replica.epoch, replica.leader_epoch, replica.used) == (ShardState.ACTIVE, 0, 0, True)


async def test_pod_that_stops_is_down_because_refused(session: PodSession, server: Server) -> None:
    await server.stop()
    await eventually(lambda: session.view().connection is Connection.DOWN)
    assert session.view().detail == "connection refused"


async def test_closed_stream_is_followed_up_before_anybody_is_told(session: PodSession, server: Server) -> None:
    told: list[Connection] = []
    session._changed = lambda: told.append(session.view().connection)
    await server.stop()
    await eventually(lambda: Connection.DOWN in told)
    assert Connection.UNSURE not in told


async def test_positions_alone_are_no_news(pod: FakePod, session: PodSession) -> None:
    await led(pod, session)
    told: list[int] = []
    session._changed = lambda: told.append(session.view().replicas[0].log_end_offset)
    (status,) = pod.partitions()
    session._take_replica(replace(status, log_end_offset=50, high_watermark=49))
    assert (told, session.view().replicas[0].log_end_offset) == ([], 50)
    session._take_replica(replace(status, log_end_offset=60, needs_higher_epoch=True))
    assert told == [60]


async def test_pod_whose_process_does_not_run_is_down_at_once(http: aiohttp.ClientSession) -> None:
    session = session_to(http, "127.0.0.1:1")
    session.info = PodInfo("c-0", 0, "uid", "127.0.0.1:1", "", PodPhase.PENDING)
    assert session.view().connection is Connection.DOWN
    session.info = PodInfo("c-0", 0, "uid", "127.0.0.1:1", "", PodPhase.TERMINATING)
    assert (session.view().draining, session.view().gone) == (True, False)
    session.info = PodInfo("c-0", 0, "uid", "127.0.0.1:1", "", PodPhase.GONE)
    assert (session.view().draining, session.view().gone) == (True, True)


async def test_pod_that_comes_back_is_up_with_what_it_says_now(
    pod: FakePod, session: PodSession, server: Server
) -> None:
    await led(pod, session, epoch=3)
    await server.stop()
    await eventually(lambda: session.view().connection is Connection.DOWN)
    again = await start(FakePod("c-0", 0, pod.volume), server.address)
    await eventually(lambda: session.view().connection is Connection.UP)
    replica = session.view().replicas[0]
    assert (replica.state, replica.epoch, replica.leader_epoch) == (ShardState.INITIAL, 3, -1)
    assert session.runs == 2
    await again.stop()


async def test_call_that_a_run_of_before_owes_an_answer_is_given_up_when_the_pod_is_back(
    pod: FakePod, session: PodSession, server: Server
) -> None:
    """As a machine that lost power: it resets no connection on which nothing more is sent."""
    answer = asyncio.Event()
    owed = asyncio.create_task(session.while_it_runs(answer.wait()))
    given = asyncio.create_task(session.while_it_runs(asyncio.sleep(0, "answer")))
    assert await given == "answer"
    await server.stop()
    await eventually(lambda: session.view().connection is Connection.DOWN)
    assert not owed.done()
    again = await start(FakePod("c-0", 0, pod.volume), server.address)
    with pytest.raises(PodUnreachableError, match="c-0 has restarted"):
        await owed
    assert session._waiting == []
    await again.stop()


async def test_pod_that_comes_goes_and_is_back_is_told_each_time(
    http: aiohttp.ClientSession, pod: FakePod, server: Server
) -> None:
    key, sessions = ClusterKey("ns", "c"), PodSessions(http, Clock())
    news: list[ClusterKey] = []
    sessions.watch(news.append, lambda error: None)
    sessions.sync(key, (PodInfo("c-0", 0, "uid", server.address, "", PodPhase.RUNNING),), 5.0)
    await eventually(lambda: sessions.views(key)[0].is_up and key in news)
    news.clear()
    await server.stop()
    await eventually(lambda: not sessions.views(key)[0].is_up and key in news)
    news.clear()
    again = await start(FakePod("c-0", 0, pod.volume), server.address)
    await eventually(lambda: sessions.views(key)[0].is_up and key in news)
    await sessions.close()
    await again.stop()


async def test_pod_that_falls_silent_is_suspected(http: aiohttp.ClientSession) -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        line = (
            b'{"type":"status","status":{"pod":"c-0","nodeId":0,"podUid":"u","bootId":"b","version":"1",'
            b'"kafkaAddress":"h:1","ready":true}}\n'
        )
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    session = session_to(http, f"{host}:{port}", silence_s=0.05)
    views: list[tuple[Connection, str]] = []
    session._changed = lambda: views.append((session.view().connection, session.view().detail))
    session.start()
    await eventually(lambda: (Connection.SUSPECT, "it is silent") in views)
    assert Connection.UP in {connection for connection, _ in views}  # the first line may have been late, too
    session.stop()
    server.close()


async def test_another_pod_at_the_address_is_not_believed(http: aiohttp.ClientSession, server: Server) -> None:
    session = session_to(http, server.address, name="c-1")
    session.start()
    await eventually(lambda: session.view().connection is Connection.DOWN)
    assert session.view().detail == "another process answers at its address"
    assert session.view().replicas == {}
    session.stop()


async def test_pod_without_an_address_is_down_and_says_so(http: aiohttp.ClientSession) -> None:
    session = session_to(http, "")
    session.start()
    assert (session.view().connection, session.view().detail) == (Connection.DOWN, "it has no address yet")


async def test_pod_that_still_opens_its_logs_is_not_believed_to_have_none(
    pod: FakePod, http: aiohttp.ClientSession
) -> None:
    honest = pod.status
    pod.status = lambda: replace(honest(), started=False)  # type: ignore[method-assign]
    pod._hub._status = pod.status
    server = await start(pod)
    session = session_to(http, server.address)
    session.start()
    await eventually(lambda: session.runs == 1)
    assert session.view().connection is Connection.UNSURE
    pod._hub._status = honest
    pod._hub.publish_status()
    await eventually(lambda: session.view().connection is Connection.UP)
    session.stop()
    await server.stop()


async def test_answer_of_an_election_is_known_before_its_event(pod: FakePod, session: PodSession) -> None:
    await led(pod, session)
    log_id = session.view().replicas[0].log_id
    answer = CallResult(0, CallStatus.ACCEPTED, epoch=5, log_id=log_id)
    session.learn_elections(session.runs, {0: 5}, [answer])
    replica = session.view().replicas[0]
    assert (replica.state, replica.epoch, replica.leader_epoch) == (ShardState.ACTIVE, 5, 5)


async def test_stale_epoch_in_an_answer_raises_the_promise_that_is_known(pod: FakePod, session: PodSession) -> None:
    await led(pod, session)
    log_id = session.view().replicas[0].log_id
    session.learn_elections(session.runs, {0: 5}, [CallResult(0, CallStatus.STALE_EPOCH, epoch=9, log_id=log_id)])
    assert session.view().replicas[0].epoch == 9


async def test_answer_from_an_earlier_life_of_the_pod_is_ignored(pod: FakePod, session: PodSession) -> None:
    await led(pod, session)
    log_id = session.view().replicas[0].log_id
    answer = CallResult(0, CallStatus.ACCEPTED, epoch=5, log_id=log_id)
    session.learn_elections(session.runs - 1, {0: 5}, [answer])
    assert session.view().replicas[0].epoch == 0


async def test_late_loading_event_does_not_undo_active(pod: FakePod, session: PodSession) -> None:
    await led(pod, session)
    log_id = session.view().replicas[0].log_id
    session._take_replica(ReplicaStatus(0, ShardState.LOADING, ReplicaRole.LEADER, 0, 0, log_id, True))
    assert session.view().replicas[0].state is ShardState.ACTIVE
    session._take_replica(
        ReplicaStatus(0, ShardState.FAILED, ReplicaRole.NONE, 0, -1, log_id, True, reason=FailureReason.CANNOT_WRITE)
    )
    assert session.view().replicas[0].state is ShardState.FAILED
