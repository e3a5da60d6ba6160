"""Bad bytes cost their own connection, are counted, and the pod serves on."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.kafka import KafkaClient, commit_request, encode_request, entity
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

LIMIT = 65_536


@pytest_asyncio.fixture
async def pod(tmp_path: Path) -> AsyncIterator[SoloPod]:
    async with SoloPod(tmp_path / "data", config=[f"socket.request.max.bytes={LIMIT}"]) as pod:
        yield pod


async def send_and_read_to_end(pod: SoloPod, data: bytes, *, finish: bool = True) -> bytes:
    """What the pod answers to `data` until it closes the connection (or we have)."""
    client = await pod.client()
    try:
        client.writer.write(data)
        if finish:
            client.writer.write_eof()
        async with asyncio.timeout(20):
            return await client.reader.read()
    except ConnectionError:
        return b""
    finally:
        await client.close()


async def assert_serves(pod: SoloPod) -> None:
    client = await pod.client()
    try:
        assert await client.commit("after", 5) == 0
        assert await client.fetch("after") == (5, 0)
    finally:
        await client.close()


async def test_truncated_frame_is_dropped_and_the_pod_serves_on(pod: SoloPod) -> None:
    frame = encode_request(commit_request("g", [("t", 0, 1)]), 1)
    for cut in range(1, len(frame)):
        assert await send_and_read_to_end(pod, frame[:cut]) == b""
    await assert_serves(pod)


async def test_unknown_api_key_closes_the_connection_and_is_counted(pod: SoloPod) -> None:
    frame = struct.pack(">ihhih", 10, 9999, 0, 1, 0)
    assert await send_and_read_to_end(pod, frame, finish=False) == b""
    assert await pod.metric("muster_connection_errors_total", reason="unsupported_request") == 1
    await assert_serves(pod)


async def test_frame_larger_than_the_limit_closes_the_connection_and_is_counted(pod: SoloPod) -> None:
    assert await send_and_read_to_end(pod, struct.pack(">i", LIMIT + 1), finish=False) == b""
    assert await send_and_read_to_end(pod, struct.pack(">i", -1), finish=False) == b""
    assert await pod.metric("muster_connection_errors_total", reason="frame_too_large") == 2
    await assert_serves(pod)


async def test_garbage_inside_a_known_request_closes_the_connection_and_is_counted(pod: SoloPod) -> None:
    frame = struct.pack(">hhih", 8, 7, 1, 0) + b"\xff" * 40
    assert await send_and_read_to_end(pod, struct.pack(">i", len(frame)) + frame, finish=False) == b""
    assert await pod.metric("muster_connection_errors_total", reason="malformed_request") == 1
    await assert_serves(pod)


async def test_unknown_version_of_api_versions_is_answered_with_what_is_served(pod: SoloPod) -> None:
    client = await pod.client()
    frame = struct.pack(">hhih", 18, 99, 7, 0) + b"\x00"
    client.writer.write(struct.pack(">i", len(frame)) + frame)
    correlation_id, response = await client.receive(entity("api_versions", 0, "response"))
    assert correlation_id == 7
    assert int(response.error_code) == 35
    assert [(int(k.api_key), int(k.min_version)) for k in response.api_keys] == [(18, 0)]
    again = await client.call(entity("api_versions", 0)())
    assert int(again.error_code) == 0, "the connection goes on, as clients expect (KIP-511)"
    await client.close()


async def test_unknown_version_of_api_versions_is_answered_in_its_turn_and_what_follows_too(pod: SoloPod) -> None:
    client = await pod.client()
    unknown = struct.pack(">hhih", 18, 99, 2, 0) + b"\x00"
    data = encode_request(commit_request("g", [("t", 0, 1)]), 1)
    data += struct.pack(">i", len(unknown)) + unknown
    data += encode_request(commit_request("g", [("t", 0, 2)]), 3)
    client.writer.write(data)
    answers = [("offset_commit", 7), ("api_versions", 0), ("offset_commit", 7)]
    assert [(await client.receive(entity(*each, "response")))[0] for each in answers] == [1, 2, 3]
    await client.close()


async def test_a_thousand_random_frames_leave_the_pod_serving(pod: SoloPod) -> None:
    random_ = random.Random(20_000)
    other = await pod.client()
    for number in range(1000):
        kind = random_.randrange(3)
        if kind == 0:  # plain noise
            data = random_.randbytes(random_.randrange(1, 200))
        elif kind == 1:  # a frame of noise
            body = random_.randbytes(random_.randrange(0, 200))
            data = struct.pack(">i", len(body)) + body
        else:  # a frame with a real key and version, then noise
            body = struct.pack(">hhih", random_.randrange(0, 75), random_.randrange(0, 13), number, -1)
            body += random_.randbytes(random_.randrange(0, 200))
            data = struct.pack(">i", len(body)) + body
        await send_and_read_to_end(pod, data)
        if number % 100 == 0:
            assert await other.commit("bystander", number) == 0, "another connection is not touched"
    assert await other.fetch("bystander") == (900, 0)
    await other.close()
    assert await pod.metric("muster_operation_errors_total") == 0
    await assert_serves(pod)


async def test_connections_beyond_the_limit_are_closed_and_counted(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=["max.connections=3"]) as pod:
        clients = [await pod.client() for _ in range(3)]
        for client in clients:
            assert await client.commit("g", 1) == 0
        assert await send_and_read_to_end(pod, b"", finish=False) == b""
        assert await pod.metric("muster_connection_errors_total", reason="too_many_connections") == 1
        assert await clients[0].commit("g", 2) == 0
        for client in clients:
            await client.close()


async def test_pipelined_requests_are_answered_in_their_order(pod: SoloPod) -> None:
    client = await KafkaClient.connect(pod.kafka_port)
    sent = [client.send(commit_request(f"g{i % 7}", [("t", 0, i)])) for i in range(300)]
    await client.writer.drain()
    received = [(await client.receive(entity("offset_commit", 7, "response")))[0] for _ in sent]
    assert received == sent
    await client.close()
