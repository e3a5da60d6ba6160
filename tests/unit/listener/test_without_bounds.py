"""What each bound of ADR 43 and ADR 20 prevents: with it the harm is absent, and without it the same test sees it."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest
from tests.unit.listener.clients import Clients, describe_groups, frame

from muster_coordinator.listener import connection, rotation
from muster_coordinator.requests.cluster import DescribeGroupsRequest
from muster_coordinator.security.handshakes import Door, listen
from muster_coordinator.tuning.descriptors import lowest_free_descriptor

FLOOD = 500
GROUPS = 20_000
UNBOUNDED = 1 << 40
BOUNDS = pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "without"])


@pytest.fixture
def bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether turns have their bounds."""
    if not request.param:
        monkeypatch.setattr(rotation, "TURN_UNITS", UNBOUNDED)
        monkeypatch.setattr(connection, "QUANTUM", UNBOUNDED)
    return bool(request.param)


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "without"], indirect=True)
async def test_fair_turns(bounded: bool) -> None:
    """How much of a flood is carried out before the one request of another client that comes next."""
    clients = Clients(2)
    flooding, other = clients.connections
    flooding.data_received(frame() * FLOOD)
    other.data_received(frame())
    while not clients.carried_out[other]:
        await asyncio.sleep(0)
    harmed = clients.carried_out[flooding] == FLOOD
    assert harmed is not bounded


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "without"], indirect=True)
async def test_own_work_of_the_pod(bounded: bool) -> None:
    """How much of a flood is carried out before a callback of the pod's own that is due."""
    clients = Clients(100)
    seen: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: seen.append(clients.carried_out.total()))
    for each in clients.connections:
        each.data_received(frame() * FLOOD)
    while not seen:
        await asyncio.sleep(0)
    harmed = seen[0] == 100 * FLOOD
    assert harmed is not bounded
    assert not bounded or seen[0] <= rotation.TURN_UNITS


@BOUNDS
async def test_descriptors(bounded: bool) -> None:
    """Whether connections take descriptors that are kept back."""
    share = lowest_free_descriptor(UNBOUNDED) + 60
    inside: list[asyncio.Transport] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            inside.append(cast(asyncio.Transport, transport))

    refused: list[str] = []
    door = Door(share if bounded else UNBOUNDED, refused.append)
    listening, port = await listen(Accepted, "127.0.0.1", 0, None, "test", door)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    while len(inside) + len(refused) < len(clients):
        await asyncio.sleep(0)
    harmed = any(each.get_extra_info("socket").fileno() >= share for each in inside)
    assert harmed is not bounded
    listening.close()
    for client in clients:
        client.close()
    for transport in inside:
        transport.abort()


@BOUNDS
async def test_memory(bounded: bool) -> None:
    """What clients hold together that send half of a large request."""
    limit, half = 1 << 20, (1 << 18).to_bytes(4, "big") + bytes(1 << 17)
    clients = Clients(50, max_buffered_bytes=limit if bounded else UNBOUNDED)
    for each in clients.connections:
        each.data_received(half)
        await asyncio.sleep(0)
    harmed = sum(each._reader.held for each in clients.connections) > limit
    assert harmed is not bounded


@BOUNDS
async def test_a_large_request(bounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether another client waits until a request of many groups is decoded."""
    if not bounded:
        monkeypatch.setattr(connection, "LARGE_BYTES", UNBOUNDED)
    clients, carried_out = Clients(2), list[int]()
    large, other = clients.connections
    large.serve({DescribeGroupsRequest: lambda request, _: carried_out.append(len(request.groups))})
    large.data_received(describe_groups(GROUPS))
    other.data_received(frame())
    while not clients.carried_out[other]:
        await asyncio.sleep(0)
    harmed = bool(carried_out)
    assert harmed is not bounded
    while not carried_out:
        await asyncio.sleep(0)
    assert carried_out == [GROUPS]
