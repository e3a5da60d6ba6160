"""The Kafka listeners of a pod: accept connections, and close idle ones."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from muster_coordinator.listener.connection import KafkaConnection, nobody
from muster_coordinator.listener.entrance import Entrance
from muster_coordinator.listener.sasl import Sasl
from muster_coordinator.listener.session import Session
from muster_coordinator.listener.state import Handler, ServerState
from muster_coordinator.security.handshakes import Door, Listening, listen
from muster_coordinator.security.identity import Identity
from muster_coordinator.security.quotas import Quotas
from muster_coordinator.security.tls import Tls
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.shard.ports import Clock
from muster_coordinator.tuning.descriptors import DescriptorShares, lowest_free_descriptor
from muster_coordinator.wire.served import KAFKA_4_3, ServedApis

logger = structlog.get_logger(__name__)

HOUSEKEEPING_MS = 1000
"""The interval (ms) of looks for idle connections: idle times are exact to this."""

CLOSING_MS = 5000
"""Time that a connection that is being closed has to read its last answers."""


BUFFER_BYTES = 102_400
"""Kafka's socket.receive.buffer.bytes and socket.send.buffer.bytes. Linux would give a connection megabytes of each,
which count as the pod's memory."""


@dataclass(frozen=True)
class ListenerSecurity:
    """The TLS and logins of one listener. `tls`, `sasl`: None: without. `identity_of`: who the client of a
    connection is, without SASL."""

    tls: Tls | None = None
    sasl: Sasl | None = None
    identity_of: Callable[[asyncio.BaseTransport], Identity] = nobody


NO_SECURITY = ListenerSecurity()


class Known(Protocol):
    """The users that the pod knows, and what each may take of it, from files that may change."""

    def look(self) -> bool:
        """Look for files that have changed, and return whether there may be other users."""
        ...

    def knows(self, identity: Identity) -> bool:
        """True if the user still exists."""
        ...

    def quotas_of(self, principal: str) -> Quotas:
        """The quota that counts for the user now."""
        ...


class KafkaListeners:
    """`state` is what connections and metrics share. `descriptors`: what of them is whose. `may_answer`: whether
    anything may be told to clients now; None: it may always. `served`: the APIs that clients may ask for."""

    def __init__(
        self,
        settings: ListenerSettings,
        clock: Clock,
        known: Known,
        descriptors: DescriptorShares,
        may_answer: Callable[[], bool] | None = None,
        served: ServedApis = KAFKA_4_3,
    ) -> None:
        self.state = ServerState(settings, clock, known.quotas_of, may_answer, served)
        self._known = known
        self._descriptors = descriptors
        self._servers: list[Listening] = []
        self._housekeeping: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<KafkaListeners connections={len(self.state.connections)}>"

    async def listen(
        self, host: str, port: int, handlers: Mapping[type, Handler], security: ListenerSecurity = NO_SECURITY
    ) -> int:
        """Listen at one more address; returns the port. Raises OSError when the address is taken.

        `handlers` maps the type of a decoded request to what carries it out.
        """
        share = self._descriptors.clients
        door = Door(share, lambda host: self.state.no_descriptor(host, share), BUFFER_BYTES)
        server, port = await listen(lambda: self._client(handlers, security), host, port, security.tls, "kafka", door)
        self._servers.append(server)
        if self._housekeeping is None:
            self._housekeep()
        return port

    async def stop(self) -> None:
        """Stop accepting, write what is ready, close every connection, and wait until they are closed: no longer than
        CLOSING_MS."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        for server in self._servers:
            server.close()
        for connection in tuple(self.state.connections):
            connection.close()
        for _ in range(CLOSING_MS // 10):
            if not self.state.connections:
                return
            await asyncio.sleep(0.01)

    def _client(self, handlers: Mapping[type, Handler], security: ListenerSecurity) -> asyncio.Protocol:
        """The first protocol of a new connection."""
        sasl, state = security.sasl, self.state
        if sasl is None:
            return KafkaConnection(state, handlers, security.identity_of)

        def welcome(identity: Identity, lifetime_ms: int | None) -> asyncio.Protocol:
            def known(_transport: asyncio.BaseTransport) -> Identity:
                return identity

            if lifetime_ms is None:
                return KafkaConnection(state, handlers, known)
            session = Session(sasl, identity, lifetime_ms, handlers, state.clock.monotonic_ms(), state.audit)
            return KafkaConnection(state, session.handlers, known, session)

        return Entrance(state, sasl, handlers, welcome)

    def look(self) -> None:
        """Look at what is known now: who is no user any more is out, and quotas are those of now."""
        if not self._known.look():
            return
        self.state.take_quotas()
        for connection in tuple(self.state.connections):
            identity = connection.identity
            if identity is not None and not self._known.knows(identity):
                self.state.connection_errors["user_removed"] += 1
                connection.close()

    def _housekeep(self) -> None:
        state = self.state
        state.audit.look()
        state.forget_users()
        self.look()
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
            else:
                connection.look(state.now_ms)
        self._make_room()
        self._housekeeping = asyncio.get_running_loop().call_later(HOUSEKEEPING_MS / 1000, self._housekeep)

    def _make_room(self) -> None:
        """Files and other pods have begun to use what is kept back for them: as many clients have to go. Those that
        have been silent for longest: they lose least."""
        inner = self._descriptors.inner
        missing = lowest_free_descriptor(self._descriptors.limit) + 1 - inner
        if missing <= 0:
            return
        state = self.state
        going = heapq.nsmallest(
            missing,
            (each for each in state.connections if each.closing_since_ms is None),
            key=lambda each: each.last_active_ms,
        )
        for connection in going:
            state.connection_errors["no_descriptors"] += 1
            connection.close()
        logger.warning("connections_closed", reason="no_descriptors", count=len(going), limit=inner)
