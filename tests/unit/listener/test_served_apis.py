"""A connection reads the versions of the table that its pod has chosen, and announces what is in it."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest
from tests.unit.listener.clients import Transport

from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.state import ServerState
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.requests.cluster import DeleteGroupsRequest, DeleteGroupsResponse
from muster_coordinator.requests.groups import DeleteGroupResponse
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.wire.served import KAFKA_4_3, KAFKA_4_4, ServedApis


def frame(key: int, version: int, body: bytes) -> bytes:
    payload = struct.pack(">hhih", key, version, 7, 1) + b"x\0" + body
    return struct.pack(">i", len(payload)) + payload


async def answered(served: ServedApis, data: bytes) -> tuple[bytes, bool]:
    """The bytes that come back, and whether the connection is closed."""

    def delete(request: DeleteGroupsRequest, exchange: Any) -> None:
        exchange.answer(DeleteGroupsResponse(tuple([DeleteGroupResponse(each, 69) for each in request.group_ids])))

    connection = KafkaConnection(
        ServerState(ListenerSettings(), SystemClock(), served=served), {DeleteGroupsRequest: delete}
    )
    transport = Transport()
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.data_received(data)
    await asyncio.sleep(0.01)
    return bytes(transport.written), transport.is_closed


async def test_version_of_kafka_4_4_is_answered_by_a_pod_that_follows_it_and_closes_others() -> None:
    request = frame(42, 3, b"\2\2g\0")
    body = struct.pack(">i", 7) + b"\0" + bytes(4) + b"\2\2g" + struct.pack(">h", 69) + b"\0\0\0"
    assert await answered(KAFKA_4_4, request) == (struct.pack(">i", len(body)) + body, False)
    assert await answered(KAFKA_4_3, request) == (b"", True)


@pytest.mark.parametrize(("served", "highest"), [(KAFKA_4_3, 4), (KAFKA_4_4, 5)])
async def test_unknown_version_of_api_versions_is_told_the_highest_one(served: ServedApis, highest: int) -> None:
    written, closed = await answered(served, frame(18, highest + 1, b"\1\1\0"))
    body = struct.pack(">ihihhh", 7, 35, 1, 18, 0, highest)
    assert (written, closed) == (struct.pack(">i", len(body)) + body, False)
