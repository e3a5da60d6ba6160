"""The Kafka listeners of a pod: accept connections, and close idle ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.state import Handler, ServerState
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.shard.ports import Clock

HOUSEKEEPING_MS = 1000
"""How often idle connections are looked for: an idle time is exact to this."""

CLOSING_MS = 5000
"""How long a connection that is being closed may take to read its last answers."""


class KafkaListeners:
    """`state` is what connections and metrics share. `look` looks for files that have changed, at each housekeeping."""

    def __init__(self, settings: ListenerSettings, clock: Clock, look: Callable[[], object] = lambda: None) -> None:
        self.state = ServerState(settings, clock)
        self._look = look
        self._servers: list[asyncio.Server] = []
        self._housekeeping: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<KafkaListeners connections={len(self.state.connections)}>"

    async def listen(self, host: str, port: int, handlers: Mapping[type, Handler]) -> int:
        """Listen at one more address; returns the port. Raises OSError when the address is taken.

        `handlers` maps the type of a decoded request to what carries it out.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: KafkaConnection(self.state, handlers), host, port, backlog=1024)
        self._servers.append(server)
        if self._housekeeping is None:
            self._housekeep()
        return int(server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, write what is ready, close every connection."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        for server in self._servers:
            server.close()
        for connection in tuple(self.state.connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()

    def _housekeep(self) -> None:
        self._look()
        state = self.state
        # A connection that was active since the last housekeeping carries the time of that.
        oldest_ms = state.now_ms - state.settings.connections_max_idle_ms
        state.now_ms = state.clock.monotonic_ms()
        for connection in tuple(state.connections):
            closing_since_ms = connection.closing_since_ms
            if closing_since_ms is not None:
                if closing_since_ms < state.now_ms - CLOSING_MS:
                    connection.abort()
            elif connection.last_active_ms < oldest_ms and connection.is_idle:
                state.connection_errors["idle"] += 1
                connection.close()
        self._housekeeping = asyncio.get_running_loop().call_later(HOUSEKEEPING_MS / 1000, self._housekeep)
