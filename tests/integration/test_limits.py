"""Every limit that a client can reach: the promised error, or the one closed connection; others are not affected.

docs/limits.md lists them with these tests.
"""

from __future__ import annotations

import asyncio
import re
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka import KafkaClient, entity, schema
from tests.support.pod import SoloPod

from muster_coordinator.errors import ErrorCode
from muster_coordinator.settings_by_name import all_settings

pytestmark = pytest.mark.integration

MIB = 1 << 20
TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "limits.md"


def join_request(group: str, member_id: str = "", session_timeout_ms: int = 10_000, version: int = 4) -> Any:
    m = schema("join_group", version)
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout=timedelta(milliseconds=session_timeout_ms),
        rebalance_timeout=timedelta(seconds=60),
        member_id=member_id,
        protocol_type="other",
        protocols=(m.JoinGroupRequestProtocol(name="p", metadata=b"x"),),
    )


def commit_many(group: str, offsets: range, metadata: str) -> Any:
    """An OffsetCommit v7 of many partitions of topic t."""
    m = schema("offset_commit", 7)
    partitions = tuple(
        m.OffsetCommitRequestPartition(partition_index=p, committed_offset=p, committed_metadata=metadata)
        for p in offsets
    )
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(m.OffsetCommitRequestTopic(name="t", partitions=partitions),),
    )


EVERYTHING = schema("offset_fetch", 7).OffsetFetchRequest(group_id="big", topics=None, require_stable=False)


def codes_of(response: Any) -> set[int]:
    return {int(p.error_code) for topic in response.topics for p in topic.partitions}


async def assert_serves(pod: SoloPod, group: str = "after") -> None:
    client = await pod.client()
    assert await client.commit(group, 5) == 0
    assert await client.fetch(group) == (5, 0)
    await client.close()


async def ended(client: KafkaClient) -> bool:
    """The pod closed the connection."""
    try:
        async with asyncio.timeout(30):
            while await client.reader.read(MIB):
                pass
    except ConnectionError:
        pass
    return True


def peak_bytes(pod: SoloPod) -> int:
    """The largest resident size that the pod's process ever had."""
    assert pod.process is not None
    status = Path(f"/proc/{pod.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


# -- connections ------------------------------------------------------------------------------------------------------


async def test_connection_without_a_request_for_too_long_is_closed_and_an_active_one_is_not(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=["connections.max.idle.ms=1000"]) as pod:
        idle, active = await pod.client(), await pod.client()
        closing = asyncio.ensure_future(ended(idle))
        offset = 0
        while not closing.done():
            offset += 1
            assert await active.commit("g", offset) == 0
            await asyncio.sleep(0.1)
        assert await pod.metric("muster_connection_errors_total", reason="idle") == 1
        assert await active.commit("g", 0) == 0
        await idle.close()
        await active.close()


async def test_requests_beyond_those_in_flight_are_read_once_there_is_room_again(tmp_path: Path) -> None:
    """A parked join holds the connection's answers back; what the client sends meanwhile stays in its socket."""
    config = ["muster.max.in.flight.requests=4", "group.initial.rebalance.delay.ms=1000"]
    async with SoloPod(tmp_path / "data", config=config) as pod:
        client = await pod.client()
        sent = [client.send(join_request("parked", version=3))]
        heartbeat = schema("heartbeat", 3)
        request = heartbeat.HeartbeatRequest(group_id="other", generation_id=0, member_id="m", group_instance_id=None)
        sent += [client.send(request, client_id="x" * 30_000) for _ in range(100)]
        await assert_serves(pod)
        read = await pod.metric("muster_requests_total", api="Heartbeat")
        assert read < 30, "what one read of the socket brought, and no more"
        received = [(await client.receive(entity("join_group", 3, "response")))[0]]
        received += [(await client.receive(entity("heartbeat", 3, "response")))[0] for _ in range(100)]
        assert received == sent
        await client.close()


# -- memory -----------------------------------------------------------------------------------------------------------


async def test_half_requests_of_many_connections_stay_within_the_limit_of_memory(tmp_path: Path) -> None:
    limit = 32 * MIB
    config = [f"muster.max.buffered.bytes={limit}", f"socket.request.max.bytes={100 * MIB}"]
    async with SoloPod(tmp_path / "data", config=config) as pod:
        other = await pod.client()
        assert await other.commit("other", 1) == 0
        before = peak_bytes(pod)
        clients = [await pod.client() for _ in range(20)]
        half = struct.pack(">i", 20 * MIB) + bytes(10 * MIB)
        await asyncio.gather(*(send_all(client, half) for client in clients))
        assert await other.commit("other", 2) == 0
        assert peak_bytes(pod) - before < limit * 3, "200 MiB were sent"
        await until_metric(pod, "muster_connection_errors_total", 17, at_least=True, reason="too_many_bytes")
        assert await pod.metric("muster_connection_bytes") <= limit
        await asyncio.gather(*(client.close() for client in clients))
        await until_metric(pod, "muster_connection_bytes", 0)
        assert await other.fetch("other") == (2, 0)
        await other.close()


async def commit_big(client: KafkaClient) -> None:
    """Offsets of 1,000 partitions: the answer to a fetch of all has 4 MB."""
    for start in range(0, 1000, 200):
        assert codes_of(await client.call(commit_many("big", range(start, start + 200), "m" * 4000))) == {0}


async def test_answers_that_nobody_reads_stay_within_the_limit_of_memory(tmp_path: Path) -> None:
    limit = 8 * MIB
    async with SoloPod(tmp_path / "data", topics={"t": 1000}, config=[f"muster.max.buffered.bytes={limit}"]) as pod:
        other = await pod.client()
        await commit_big(other)
        slow = [await pod.client() for _ in range(40)]
        for client in slow:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
            for _ in range(5):  # sockets take one or two of them
                client.send(EVERYTHING)
        await until_metric(pod, "muster_connection_errors_total", 1, at_least=True, reason="too_many_bytes")
        assert await pod.metric("muster_connection_bytes") <= limit
        assert await other.commit("other", 1) == 0
        await asyncio.gather(*(client.close() for client in slow))
        await until_metric(pod, "muster_connection_bytes", 0)
        assert await other.fetch("other") == (1, 0)
        await other.close()


async def test_what_a_client_asks_for_and_does_not_read_is_not_made(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", topics={"t": 1000}) as pod:
        other = await pod.client()
        await commit_big(other)
        assert await other.fetch("big", "t") == (0, 0)
        before, asked = peak_bytes(pod), await pod.metric("muster_requests_total", api="OffsetFetch")
        slow = [await pod.client() for _ in range(10)]
        for client in slow:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
            sent = [client.send(EVERYTHING) for _ in range(20)]
        await until_metric(pod, "muster_connection_bytes", 10 * (64 << 10), at_least=True)
        assert await other.commit("other", 1) == 0
        assert await pod.metric("muster_requests_total", api="OffsetFetch") <= asked + 10 * 4, "sockets take a few"
        assert peak_bytes(pod) - before < 24 * MIB, "800 MB of answers were asked for"
        last = slow[-1]
        last.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for correlation_id in sent:
            got, response = await last.receive(entity("offset_fetch", 7, "response"))
            assert (got, len(response.topics[0].partitions)) == (correlation_id, 1000)
        await asyncio.gather(other.close(), *(client.close() for client in slow))


async def test_connection_that_is_being_closed_does_not_wait_for_ever_for_its_client_to_read(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", topics={"t": 1000}, config=["connections.max.idle.ms=1000"]) as pod:
        slow = await pod.client()
        await commit_big(slow)
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
        for _ in range(5):
            slow.send(EVERYTHING)
        await until_metric(pod, "muster_connection_bytes", 64 << 10, at_least=True)
        await until_metric(pod, "muster_connections", 0)
        assert await pod.metric("muster_connection_bytes") == 0
        await slow.close()
        await assert_serves(pod)


async def send_all(client: KafkaClient, data: bytes) -> None:
    """Send it as far as the pod takes it."""
    try:
        for start in range(0, len(data), 64 << 10):
            client.writer.write(data[start : start + (64 << 10)])
            await client.writer.drain()
    except ConnectionError:
        pass


async def until_metric(pod: SoloPod, name: str, value: float, *, at_least: bool = False, **labels: str) -> None:
    """Wait until the metric has the value."""
    async with asyncio.timeout(60):
        while True:
            found = await pod.metric(name, **labels)
            if found == value or (at_least and found >= value):
                return
            await asyncio.sleep(0.05)


# -- groups -----------------------------------------------------------------------------------------------------------


async def test_group_beyond_the_partitions_limit_is_refused_and_those_that_exist_go_on(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=["muster.max.groups=3"]) as pod:
        client = await pod.client()
        for number in range(3):
            assert await client.commit(f"g{number}", 1) == 0
        assert await client.commit("g3", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        joined = await client.call(join_request("g4", version=3))
        assert int(joined.error_code) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await client.commit("g0", 2) == 0
        assert await client.fetch("g0") == (2, 0)
        await client.close()


async def test_member_beyond_the_size_of_the_group_is_refused(tmp_path: Path) -> None:
    config = ["group.max.size=2", "group.initial.rebalance.delay.ms=200"]
    async with SoloPod(tmp_path / "data", config=config) as pod:
        members = [await pod.client() for _ in range(2)]
        joins = [asyncio.ensure_future(member.call(join_request("g", version=3))) for member in members]
        assert {int((await each).error_code) for each in joins} == {0}
        one_more = await pod.client()
        refused = await one_more.call(join_request("g", version=3))
        assert int(refused.error_code) == ErrorCode.GROUP_MAX_SIZE_REACHED
        for client in (*members, one_more):
            await client.close()


async def test_member_beyond_those_that_are_pending_is_refused(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=["muster.max.pending.members=2"]) as pod:
        client = await pod.client()
        codes = [int((await client.call(join_request("g"))).error_code) for _ in range(3)]
        assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
        other = await client.call(join_request("h"))
        assert int(other.error_code) == ErrorCode.MEMBER_ID_REQUIRED, "another group is not affected"
        await client.close()


@pytest.mark.parametrize("session_timeout_ms", [999, 2001])
async def test_session_timeout_outside_of_its_range_is_refused(tmp_path: Path, session_timeout_ms: int) -> None:
    config = ["group.min.session.timeout.ms=1000", "group.max.session.timeout.ms=2000"]
    async with SoloPod(tmp_path / "data", config=config) as pod:
        client = await pod.client()
        refused = await client.call(join_request("g", session_timeout_ms=session_timeout_ms))
        assert int(refused.error_code) == ErrorCode.INVALID_SESSION_TIMEOUT
        allowed = await client.call(join_request("g", session_timeout_ms=2000))
        assert int(allowed.error_code) == ErrorCode.MEMBER_ID_REQUIRED
        await client.close()


# -- offsets ----------------------------------------------------------------------------------------------------------


async def test_metadata_that_is_too_long_costs_its_own_partition_only(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=["offset.metadata.max.bytes=10"]) as pod:
        client = await pod.client()
        assert codes_of(await client.call(commit_many("g", range(2), "x" * 10))) == {0}
        request = commit_many("g", range(1), "x" * 11)
        assert codes_of(await client.call(request)) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert await client.commit("g", 7) == 0
        await client.close()


async def test_commit_larger_than_a_batch_may_be_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", topics={"t": 100}, config=["message.max.bytes=4000"]) as pod:
        client = await pod.client()
        refused = await client.call(commit_many("g", range(100), ""))
        assert codes_of(refused) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert await client.fetch("g", partition=3) == (-1, 0), "nothing of it was committed"
        assert codes_of(await client.call(commit_many("g", range(20), ""))) == {0}
        assert await client.fetch("g", partition=3) == (3, 0)
        await client.close()


# -- the page ---------------------------------------------------------------------------------------------------------


def test_page_of_limits_names_settings_and_tests_that_exist() -> None:
    page = PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    settings = {setting.name for setting in all_settings()}
    for row in rows:
        name, *_, test = (cell.strip(" `") for cell in row.strip("|").split("|"))
        assert name in settings, name
        path, _, function = test.partition("::")
        assert re.search(rf"def {function}\(", (TESTS / path).read_text()), test
    assert len(rows) >= 10
