"""Connections of a pod without sockets, and what each of them has carried out."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.connection import KafkaConnection, nobody
from muster_coordinator.listener.state import ServerState
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse
from muster_coordinator.security.identity import Identity
from muster_coordinator.settings import ListenerSettings


def frame(client_id: str = "") -> bytes:
    """A Heartbeat v0."""
    body = struct.pack(">hhih", 12, 0, 1, len(client_id)) + client_id.encode()
    body += struct.pack(">h1sih1s", 1, b"g", 1, 1, b"m")
    return struct.pack(">i", len(body)) + body


def describe_groups(count: int, client_id: str = "") -> bytes:
    """A DescribeGroups v0 of so many groups."""
    body = struct.pack(">hhih", 15, 0, 1, len(client_id)) + client_id.encode()
    body += struct.pack(">i", count) + struct.pack(">h4s", 4, b"many") * count
    return struct.pack(">i", len(body)) + body


class Transport:
    """Takes what is written. `reads`: whether the client is read from."""

    def __init__(self) -> None:
        self.reads = True
        self.written = bytearray()
        self.is_closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Clients:
    """Connections of one pod. `carried_out`: requests of each connection that reached the handler."""

    def __init__(
        self, count: int, identity_of: Callable[[asyncio.BaseTransport], Identity] = nobody, **settings: int
    ) -> None:
        self.state = ServerState(ListenerSettings(**settings), SystemClock())
        self.holds = False  # keep the exchanges, and answer none
        self.held: list[Any] = []
        self.carried_out: Counter[KafkaConnection] = Counter()
        self.connections = [
            KafkaConnection(self.state, {HeartbeatRequest: self._heartbeat}, identity_of) for _ in range(count)
        ]
        self.transports = [Transport() for _ in range(count)]
        for connection, transport in zip(self.connections, self.transports, strict=True):
            connection.connection_made(cast(asyncio.Transport, transport))

    def _heartbeat(self, request: HeartbeatRequest, exchange: Any) -> None:
        self.carried_out[exchange.connection] += 1
        if self.holds:
            self.held.append(exchange)
            return
        exchange.answer(HeartbeatResponse(ErrorCode.NONE))

    async def turns(self) -> list[Counter[KafkaConnection]]:
        """What each turn of the event loop carries out, until nothing is left."""
        found: list[Counter[KafkaConnection]] = []
        while True:
            before = self.carried_out.copy()
            await asyncio.sleep(0)
            made = self.carried_out - before
            if not made and not any(connection._reader.has_frame() for connection in self.connections):
                return found
            found.append(made)
