"""The state that the listener and its connections share: settings, handlers, counters, and which connections are
open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from muster_coordinator.listener.audit import LONGEST_NAME, AuditLog
from muster_coordinator.listener.exchange import AnsweringConnection, ClientAnswer
from muster_coordinator.listener.request_counts import RequestCounts
from muster_coordinator.listener.rotation import LIGHT_RESERVE, Rotation
from muster_coordinator.listener.user_load import UserLoad
from muster_coordinator.security.identity import ANONYMOUS, Identity
from muster_coordinator.security.quotas import NO_QUOTAS, Quotas
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.shard.ports import Clock
from muster_coordinator.wire.served import KAFKA_4_3, ServedApis

logger = structlog.get_logger(__name__)

Handler = Callable[[Any, ClientAnswer], None]
"""(decoded request, where its answer goes)."""


class EndingSession(Protocol):
    """The session of a client that has to say again who it is after some time."""

    def look(self, connection: AnsweringConnection, now_ms: int) -> None:
        """The time is `now_ms`: the session may have ended."""
        ...

    def leave(self) -> None:
        """The connection has gone."""
        ...


class Connection(Protocol):
    """A connection as the listener sees it."""

    @property
    def identity(self) -> Identity | None:
        """The client, or None while it has not said who it is."""
        ...

    def look(self, now_ms: int) -> None:
        """The time is `now_ms`: something may have run out."""
        ...

    held_bytes: int
    """Bytes of requests and answers, as last reported by `ServerState.held`."""
    last_active_ms: int
    closing_since_ms: int | None

    @property
    def is_idle(self) -> bool:
        """No request waits for the pod."""
        ...

    def close(self) -> None:
        """Close after what is ready has been written; requests in flight are not answered any more."""
        ...

    def abort(self) -> None:
        """Close at once; what was not written is dropped."""
        ...


class ServerState:
    """One per pod: limits and counters are about the connections of all listeners."""

    def __init__(
        self,
        settings: ListenerSettings,
        clock: Clock,
        quotas_of: Callable[[str], Quotas] = lambda principal: NO_QUOTAS,
        may_answer: Callable[[], bool] | None = None,
        served: ServedApis = KAFKA_4_3,
    ) -> None:
        """`quotas_of`: those of a principal now. `may_answer`: whether anything may be told to clients now; None: it
        may always. `served`: the APIs that are read."""
        self.settings = settings
        self.served_versions = served.versions
        self.may_answer = may_answer
        self._quotas_of = quotas_of
        self.clock = clock
        self.now_ms = clock.monotonic_ms()  # as of the last housekeeping: idle times need no more
        self.requests: Counter[int] = Counter()  # by API key
        self.counts = RequestCounts(clock)
        self.connection_errors: Counter[str] = Counter()  # by reason
        self.accepted = 0
        self.throttled = 0
        self.held_bytes = 0  # sum over the connections
        self.connections: set[Connection] = set()
        self.rotation = Rotation(LIGHT_RESERVE)
        self.audit = AuditLog(settings.audit_lines_per_second, clock)
        self._hosts: dict[Connection, str] = {}
        self._by_host: Counter[str] = Counter()
        self._users: dict[Connection, UserLoad] = {}
        self._loads: dict[str, UserLoad] = {}  # by principal

    def opened(self, connection: Connection, host: str) -> None:
        """Count a new connection, and close it at once if it is one too many."""
        settings = self.settings
        self.accepted += 1
        self.connections.add(connection)
        self._hosts[connection] = host
        self._by_host[host] += 1
        if len(self.connections) > settings.max_connections:
            self._one_too_many(connection, host, "too_many_connections", settings.max_connections)
        elif self._by_host[host] > settings.max_connections_per_ip:
            self._one_too_many(connection, host, "too_many_of_address", settings.max_connections_per_ip)
        elif self.may_answer is not None and not self.may_answer():
            self.connection_errors["other_site"] += 1
            connection.close()

    def abort_all(self) -> None:
        """Close every connection at once: nothing may be told to clients any more."""
        for connection in tuple(self.connections):
            self.connection_errors["other_site"] += 1
            connection.abort()

    def known(self, connection: Connection, who: Identity) -> UserLoad | None:
        """The client has said who it is: count what is the user's, and close what is one too many. Returns what counts
        its requests; None: the client is nobody's."""
        principal = who.principal
        if principal == ANONYMOUS:
            return None
        load = self._loads.get(principal)
        if load is None:
            in_flight, now_ms = self.settings.max_in_flight_per_user, self.clock.monotonic_ms()
            load = self._loads[principal] = UserLoad(self._quotas_of(principal), in_flight, now_ms)
        self._users[connection] = load
        load.connections += 1
        limit = load.quotas.connections or self.settings.max_connections_per_user
        if load.connections > limit:
            self._one_too_many(connection, who.host, "too_many_of_user", limit, principal)
        return load

    def take_quotas(self) -> None:
        """There may be others. Connections that are open stay, also if they are too many now, as in Kafka."""
        now_ms = self.clock.monotonic_ms()
        for principal, load in self._loads.items():
            load.use(self._quotas_of(principal), now_ms)

    def forget_users(self) -> None:
        """Those that have no connection. Not at the end of the last one: who connects anew for each request would have
        no rate."""
        now_ms = self.clock.monotonic_ms()
        for principal in [each for each, load in self._loads.items() if load.is_at_rest(now_ms)]:
            del self._loads[principal]

    def no_descriptor(self, host: str, limit: int) -> None:
        """A connection was closed as it came: `limit` descriptors are in use, those left are kept back."""
        self._refused(host, "no_descriptors", limit)

    def _one_too_many(self, connection: Connection, host: str, reason: str, limit: int, principal: str = "") -> None:
        self._refused(host, reason, limit, principal)
        connection.close()

    def _refused(self, host: str, reason: str, limit: int, principal: str = "") -> None:
        self.connection_errors[reason] += 1
        named = {"principal": principal[:LONGEST_NAME]} if principal else {}
        self.audit.tell("connection_refused", host, reason=reason, limit=limit, **named)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]
        load = self._users.pop(connection, None)
        if load is not None:
            load.connections -= 1

    def handed_over(self, connection: Connection) -> None:
        """Another takes its place, and will be opened."""
        self.closed(connection)
        self.accepted -= 1

    def held(self, change: int) -> None:
        """A connection holds `change` bytes more, or fewer. Above the limit the largest connection is closed."""
        self.held_bytes += change
        while change > 0 and self.held_bytes > self.settings.max_buffered_bytes:
            largest = max(self.connections, key=lambda connection: connection.held_bytes)
            self.connection_errors["too_many_bytes"] += 1
            logger.warning(
                "connection_closed",
                client=repr(largest),
                reason="too_many_bytes",
                held=largest.held_bytes,
                limit=self.settings.max_buffered_bytes,
            )
            largest.abort()
