"""One client that asks for much, or does not read what it is answered, beside one that commits: nobody else waits."""

from __future__ import annotations

import asyncio
import statistics
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka import KafkaClient, commit_request, encode_request, entity, schema
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

PARTITIONS = 5_000
"""Of the group that is asked for."""
GROUPS = 5_000
"""Of those that are listed."""
BESIDE_S = 2.0
"""How long others are watched."""
LONGEST_S = 1.0
"""Nobody waits longer for a commit: a machine that is shared may take a part of it."""


def everything(*groups: str) -> Any:
    m = schema("offset_fetch", 8)
    return m.OffsetFetchRequest(
        groups=tuple(m.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups), require_stable=False
    )


async def commit_partitions(client: KafkaClient, group: str) -> None:
    for start in range(0, PARTITIONS, 500):
        response = await client.call(commit_request(group, [("t", p, p) for p in range(start, start + 500)]))
        assert {int(p.error_code) for topic in response.topics for p in topic.partitions} == {0}


@asynccontextmanager
async def attacked(pod: SoloPod, request: Any, connections: int, pipelined: int) -> AsyncIterator[list[KafkaClient]]:
    """`connections` clients that ask without end and read nothing."""
    clients = [await pod.client() for _ in range(connections)]
    frame = encode_request(request, 1) * pipelined

    async def ask(client: KafkaClient) -> None:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
        try:
            while True:
                client.writer.write(frame)
                await client.writer.drain()
        except ConnectionError:
            pass

    asking = [asyncio.create_task(ask(client)) for client in clients]
    try:
        yield clients
    finally:
        for task in asking:
            task.cancel()
        for client in clients:
            client.writer.transport.abort()  # type: ignore[attr-defined]


async def commits(client: KafkaClient, seconds: float = BESIDE_S) -> list[float]:
    """How long (s) each commit took, one after the other."""
    took, end, offset = [], time.monotonic() + seconds, 0
    while time.monotonic() < end:
        offset += 1
        before = time.monotonic()
        assert await asyncio.wait_for(client.commit("others", offset), 30) == 0
        took.append(time.monotonic() - before)
    return took


def bytes_of(pod: SoloPod) -> int:
    assert pod.process is not None
    lines = Path(f"/proc/{pod.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10


class Unsliced(SoloPod):
    """Makes every answer as a whole: the test of the bound can fail."""

    program = (sys.executable, "-m", "tests.support.unsliced_pod")


async def nobody_waits(pod: SoloPod, attack: Callable[[], Any]) -> None:
    other = await pod.client()
    alone, before = await commits(other), bytes_of(pod)
    async with attack():
        beside = await commits(other)
        grown = bytes_of(pod) - before
    print(
        f"median {statistics.median(alone):.4f} s alone, {statistics.median(beside):.4f} s beside; +{grown >> 20} MiB"
    )
    assert max(beside) < LONGEST_S
    assert grown < 256 << 20
    assert await pod.metric("muster_partitions", state="ACTIVE") == 1
    assert await pod.metric("muster_leaderships_total") == 1
    await other.close()


async def test_answers_that_are_not_read_are_not_made(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", topics={"t": PARTITIONS}) as pod:
        await commit_partitions(client := await pod.client(), "big")
        await nobody_waits(pod, lambda: attacked(pod, everything("big"), connections=4, pipelined=100))
        await client.close()


async def test_group_that_is_named_a_thousand_times_is_looked_at_once(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", topics={"t": PARTITIONS}) as pod:
        await commit_partitions(client := await pod.client(), "big")
        await nobody_waits(pod, lambda: attacked(pod, everything(*["big"] * 1000), connections=2, pipelined=2))
        few = await client.call(everything(*["big"] * 20))
        assert [len(group.topics[0].partitions) for group in few.groups] == [PARTITIONS] * 20
        await client.close()
    async with Unsliced(tmp_path / "unsliced", topics={"t": PARTITIONS}) as pod:
        await commit_partitions(client := await pod.client(), "big")
        with pytest.raises((AssertionError, TimeoutError)):
            await nobody_waits(pod, lambda: attacked(pod, everything(*["big"] * 1000), connections=2, pipelined=2))
        await client.close()


async def test_large_answer_is_equal_to_its_parts_and_others_go_on_while_it_is_read(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", topics={"t": PARTITIONS}) as pod:
        await commit_partitions(client := await pod.client(), "big")
        for version in range(2, 10):
            m = schema("offset_fetch", version)
            if version >= 8:
                whole = everything("big") if version == 8 else None
                if whole is None:
                    continue
                found = (await client.call(whole)).groups[0].topics[0].partitions
            else:
                stable = {"require_stable": True} if version >= 7 else {}
                found = (
                    (await client.call(m.OffsetFetchRequest(group_id="big", topics=None, **stable)))
                    .topics[0]
                    .partitions
                )
            assert {int(p.partition_index): int(p.committed_offset) for p in found} == {p: p for p in range(PARTITIONS)}
        await client.close()


async def test_flood_of_small_requests_keeps_nobody_waiting(tmp_path: Path) -> None:
    m = schema("heartbeat", 3)
    beat = m.HeartbeatRequest(group_id="flood", generation_id=0, member_id="m", group_instance_id=None)
    async with SoloPod(tmp_path / "data") as pod:
        await nobody_waits(pod, lambda: reading_flood(pod, beat, connections=16, pipelined=2000))


@asynccontextmanager
async def reading_flood(pod: SoloPod, request: Any, connections: int, pipelined: int) -> AsyncIterator[None]:
    """As `attacked`, by clients that read."""
    async with attacked(pod, request, connections, pipelined) as clients:

        async def read(client: KafkaClient) -> None:
            while await client.reader.read(1 << 20):
                pass

        for client in clients:
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        reading = [asyncio.create_task(read(client)) for client in clients]
        try:
            yield
        finally:
            for task in reading:
                task.cancel()


async def test_list_of_all_groups_is_made_for_many_at_once(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        client = await pod.client()
        for start in range(0, GROUPS, 100):
            for number in range(start, start + 100):
                client.send(commit_request(f"group-{number}", [("t", 0, 1)]))
            for _ in range(100):
                await client.receive(entity("offset_commit", 7, "response"))
        listed = await client.call(schema("list_groups", 4).ListGroupsRequest(states_filter=()))
        assert {group.group_id for group in listed.groups} == {f"group-{n}" for n in range(GROUPS)}
        everyone = schema("list_groups", 4).ListGroupsRequest(states_filter=())
        await nobody_waits(pod, lambda: reading_flood(pod, everyone, connections=8, pipelined=100))
        await client.close()


async def test_frames_of_the_largest_size_keep_nobody_waiting(tmp_path: Path) -> None:
    """Named groups that are not there: each costs a look."""
    many = everything(*[f"none-{number}" for number in range(20_000)])
    async with SoloPod(tmp_path / "data") as pod:
        await nobody_waits(pod, lambda: reading_flood(pod, many, connections=2, pipelined=1))


async def test_array_beyond_the_limit_closes_its_connection(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        client = await pod.client()
        body = struct.pack(">hhih", 15, 0, 1, -1) + struct.pack(">i", 200_000) + struct.pack(">h", 0) * 200_000
        client.writer.write(struct.pack(">i", len(body)) + body)
        assert await asyncio.wait_for(client.reader.read(), 30) == b""
        assert await pod.metric("muster_connection_errors_total", reason="malformed_request") == 1
        other = await pod.client()
        assert await other.commit("g", 1) == 0
        await asyncio.gather(client.close(), other.close())


async def test_answers_leave_in_the_order_of_requests_around_a_large_one(tmp_path: Path) -> None:
    """A parked join before it, small ones behind it."""
    async with SoloPod(
        tmp_path / "data", topics={"t": PARTITIONS}, config=["group.initial.rebalance.delay.ms=500"]
    ) as pod:
        await commit_partitions(client := await pod.client(), "big")
        beat = schema("heartbeat", 3).HeartbeatRequest(
            group_id="x", generation_id=0, member_id="m", group_instance_id=None
        )
        versions = schema("api_versions", 2).ApiVersionsRequest()
        sent: list[tuple[int, Any]] = []
        for request, api, version in [
            (beat, "heartbeat", 3),
            (everything("big", "big"), "offset_fetch", 8),
            (versions, "api_versions", 2),
            (everything("big"), "offset_fetch", 8),
            (beat, "heartbeat", 3),
        ]:
            sent.append((client.send(request), entity(api, version, "response")))
        for correlation_id, response_class in sent:
            assert (await asyncio.wait_for(client.receive(response_class), 30))[0] == correlation_id
        await client.close()
