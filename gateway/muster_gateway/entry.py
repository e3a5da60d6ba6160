"""Clients of the gateway say who they are, where the gateway itself asks: by a login, as at a pod's listener, or by
their certificate. `listener.entrance` does what a pod does: one request after the other, bounded logins, failed ones
delayed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from muster_coordinator.listener.entrance import Entrance
from muster_coordinator.listener.sasl import Sasl
from muster_coordinator.listener.state import ServerState
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.requests.cluster import ApiVersionsRequest, ApiVersionsResponse
from muster_coordinator.security.identity import Identity
from muster_coordinator.security.principal_mapping import NoPrincipalError, distinguished_name, parse_mapping
from muster_coordinator.security.tls import Tls, TlsFiles, server_context
from muster_coordinator.security.users import parse_users
from muster_coordinator.security.watched_file import WatchedFile
from muster_coordinator.settings import ListenerSettings, SaslSettings
from muster_gateway.rewriting import Announced
from muster_gateway.settings import GatewaySettings


class Entry:
    """Logins of clients. `versions`: what ApiVersions tells them."""

    def __init__(self, settings: GatewaySettings, versions: Callable[[], Announced]) -> None:
        """Reads the file of users. Raises SecurityFileError."""
        self._clock = SystemClock()
        limits = ListenerSettings(max_connections=settings.max_connections, max_buffered_bytes=settings.max_held_bytes)
        self._state = ServerState(limits, self._clock)
        self._users = WatchedFile(Path(settings.users_file), parse_users)
        sasl = SaslSettings(sasl_enabled_mechanisms=settings.sasl_enabled_mechanisms, users_file=settings.users_file)
        self._sasl = Sasl(sasl, lambda: self._users.value, self._clock)
        self._versions = versions
        self._handlers: dict[type, Callable[[Any, Any], None]] = {ApiVersionsRequest: self._tell_versions}

    def client(self, welcome: Callable[[str], asyncio.Protocol]) -> asyncio.Protocol:
        """The protocol that a new connection begins with; `welcome` makes the next one, for the user of that name."""

        def known(identity: Identity, lifetime_ms: int | None) -> asyncio.Protocol:
            return welcome(identity.principal.removeprefix("User:"))

        return Entrance(self._state, self._sasl, self._handlers, known)

    def knows(self, user: str) -> bool:
        return user in self._users.value

    def look(self) -> bool:
        """Is called each second. Returns whether there may be other users."""
        self._state.audit.look()
        self._state.now_ms = self._clock.monotonic_ms()
        for connection in tuple(self._state.connections):
            if connection.closing_since_ms is None:
                connection.look(self._state.now_ms)
        return self._users.look()

    def stop(self) -> None:
        """Logins under way end."""
        for connection in tuple(self._state.connections):
            connection.abort()
        self._sasl.hashing.shutdown(wait=False, cancel_futures=True)

    def _tell_versions(self, request: ApiVersionsRequest, exchange: Any) -> None:
        announced = self._versions()
        versions = tuple((key, low, high) for key, (low, high) in sorted(announced.versions.items()))
        exchange.answer(ApiVersionsResponse(0, versions, ()))


def listener_tls(settings: GatewaySettings) -> Tls | None:
    """The TLS of all ports for clients; None: they are plain. Raises TlsError."""
    if not settings.listener_tls_dir:
        return None
    files = TlsFiles.of(Path(settings.listener_tls_dir))
    if settings.ssl_client_auth == "required":
        return Tls(files, partial(server_context, clients=ssl.CERT_REQUIRED))
    return Tls(replace(files, authorities=None), partial(server_context, clients=ssl.CERT_NONE))


def identify_by_certificate(settings: GatewaySettings) -> Callable[[asyncio.BaseTransport], str] | None:
    """None: clients are asked for no certificate."""
    if settings.ssl_client_auth != "required":
        return None
    mapping = parse_mapping(settings.ssl_principal_mapping_rules)

    def identify(transport: asyncio.BaseTransport) -> str:
        user = mapping(distinguished_name(transport.get_extra_info("peercert") or {}))
        if not user:
            raise NoPrincipalError("the certificate has no subject")
        return user

    return identify
