"""The Kafka listener of a pod: accepts connections within limits, and writes what became ready once per turn of the
loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.exchange import Exchange
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.shard.ports import Clock

logger = structlog.get_logger(__name__)

Handler = Callable[[Any, Exchange], None]

HOUSEKEEPING_MS = 1000

CLOSING_MS = 5000
"""How long a connection that is being closed may take to read its last answers."""


class KafkaListener:
    """``handlers`` maps the type of a decoded request to what carries it out."""

    def __init__(self, settings: ListenerSettings, clock: Clock, handlers: Mapping[type, Handler]) -> None:
        self.settings = settings
        self.clock = clock
        self.handlers = handlers
        self.now_ms = clock.monotonic_ms()  # as of the last housekeeping: idle times need no more
        self.requests: Counter[int] = Counter()  # by API key
        self.connection_errors: Counter[str] = Counter()  # by reason
        self.accepted = 0
        self.held_bytes = 0  # what the connections hold of requests and answers, as they told (see ``held``)
        self._connections: set[KafkaConnection] = set()
        self._ready: list[KafkaConnection] = []
        self._server: asyncio.Server | None = None
        self._housekeeping: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<KafkaListener connections={len(self._connections)}>"

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: KafkaConnection(self), host, port, backlog=1024)
        self._housekeep()
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, write what is ready, close every connection."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        if self._server is not None:
            await self._server.wait_closed()

    # -- called by connections ----------------------------------------------------------------------------------------

    def opened(self, connection: KafkaConnection) -> None:
        self.accepted += 1
        self._connections.add(connection)
        if len(self._connections) > self.settings.max_connections:
            self.connection_errors["too_many_connections"] += 1
            logger.warning("connection_refused", reason="too_many_connections", limit=self.settings.max_connections)
            connection.close()

    def closed(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)

    def held(self, change: int) -> None:
        """A connection holds so many bytes more, or less. Beyond the limit the one that holds most is closed."""
        self.held_bytes += change
        while change > 0 and self.held_bytes > self.settings.max_buffered_bytes:
            largest = max(self._connections, key=lambda connection: connection.held_bytes)
            self.connection_errors["too_many_bytes"] += 1
            logger.warning(
                "connection_closed",
                client=repr(largest),
                reason="too_many_bytes",
                held=largest.held_bytes,
                limit=self.settings.max_buffered_bytes,
            )
            largest.abort()

    def write_soon(self, connection: KafkaConnection) -> None:
        """Write ``connection``'s answers at the end of this turn of the loop."""
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._write_ready)
        self._ready.append(connection)

    def _write_ready(self) -> None:
        ready, self._ready = self._ready, []
        for connection in ready:
            connection.write()

    # -- housekeeping -------------------------------------------------------------------------------------------------

    def _housekeep(self) -> None:
        oldest_ms = self.now_ms - self.settings.connections_max_idle_ms  # what was active since bears the last now_ms
        self.now_ms = self.clock.monotonic_ms()
        for connection in tuple(self._connections):
            closing_since_ms = connection.closing_since_ms
            if closing_since_ms is not None:
                if closing_since_ms < self.now_ms - CLOSING_MS:
                    connection.abort()
            elif connection.last_active_ms < oldest_ms and connection.is_idle:
                self.connection_errors["idle"] += 1
                connection.close()
        self._housekeeping = asyncio.get_running_loop().call_later(HOUSEKEEPING_MS / 1000, self._housekeep)
