"""How connections come in at a port that anybody may reach."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from muster_coordinator.security.handshakes import ACCEPTED_AT_ONCE, Door, listen

CONNECTIONS = 12
BUFFER_BYTES = 102_400


class Accepted(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)


async def test_connections_come_in_a_few_at_a_time() -> None:
    made: list[Accepted] = []

    def factory() -> asyncio.Protocol:
        made.append(Accepted())
        return made[-1]

    listening, port = await listen(factory, "127.0.0.1", 0, None, "test", Door(descriptors=10_000))
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    turns = []
    while len(made) < CONNECTIONS:
        before = len(made)
        await asyncio.sleep(0)
        turns.append(len(made) - before)
    assert max(turns) == ACCEPTED_AT_ONCE, "whoever is in already is served between two turns"
    listening.close()
    for each in clients:
        each.close()


async def test_connections_have_small_buffers() -> None:
    made: list[Accepted] = []

    def factory() -> asyncio.Protocol:
        made.append(Accepted())
        return made[-1]

    door = Door(descriptors=10_000, buffer_bytes=BUFFER_BYTES)
    listening, port = await listen(factory, "127.0.0.1", 0, None, "test", door)
    with socket.create_connection(("127.0.0.1", port)):
        while not made or made[0].transport is None:
            await asyncio.sleep(0)
        accepted = made[0].transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            assert accepted.getsockopt(socket.SOL_SOCKET, option) == 2 * BUFFER_BYTES, "Linux doubles what is asked for"
        made[0].transport.close()
    listening.close()
