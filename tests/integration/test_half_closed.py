"""A client that has closed its side of the connection gets the answers to what it asked for, as from Kafka."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.kafka import KafkaClient, commit_request, entity, schema
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

JOIN_DELAY_MS = 300


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[KafkaClient]:
    config = [f"group.initial.rebalance.delay.ms={JOIN_DELAY_MS}", "muster.max.in.flight.requests=4"]
    async with SoloPod(tmp_path / "data", config=config) as pod:
        client = await pod.client()
        async with asyncio.timeout(20):
            yield client
        await client.close()


def join_request() -> Any:
    m = schema("join_group", 3)
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout=datetime.timedelta(seconds=10),
        rebalance_timeout=datetime.timedelta(seconds=10),
        member_id="",
        protocol_type="consumer",
        protocols=(m.JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


async def assert_closed(client: KafkaClient) -> None:
    assert await client.reader.read() == b""


async def test_requests_sent_before_are_answered_in_their_order_and_then_the_connection_ends(
    client: KafkaClient,
) -> None:
    for offset in range(4):
        client.send(commit_request("g", [("t", 0, offset)]))
    client.writer.write_eof()
    answers = [await client.receive(entity("offset_commit", 7, "response")) for _ in range(4)]
    assert [number for number, _ in answers] == [1, 2, 3, 4]
    assert {int(answer.topics[0].partitions[0].error_code) for _, answer in answers} == {0}
    await assert_closed(client)


async def test_parked_request_is_answered_when_its_time_has_come(client: KafkaClient) -> None:
    client.send(join_request())
    client.send(commit_request("other", [("t", 0, 5)]))
    client.writer.write_eof()
    _, joined = await client.receive(entity("join_group", 3, "response"))
    assert (int(joined.error_code), joined.generation_id) == (0, 1)
    _, committed = await client.receive(entity("offset_commit", 7, "response"))
    assert int(committed.topics[0].partitions[0].error_code) == 0
    await assert_closed(client)


async def test_connection_without_a_request_ends_at_once(client: KafkaClient) -> None:
    assert await client.commit("g", 1) == 0
    client.writer.write_eof()
    await assert_closed(client)


async def test_frame_that_never_comes_whole_ends_the_connection(client: KafkaClient) -> None:
    client.writer.write(b"\x00\x00\x00\x50half a frame")
    client.writer.write_eof()
    await assert_closed(client)
