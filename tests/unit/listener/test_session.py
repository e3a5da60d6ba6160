"""What a connection that has gone leaves behind of a login under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.listener.clients import Transport

from muster_coordinator.listener.audit import AuditLog
from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.sasl import Sasl
from muster_coordinator.listener.session import Session
from muster_coordinator.listener.state import ServerState
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.requests import cluster as w
from muster_coordinator.security.identity import Identity
from muster_coordinator.settings import ListenerSettings

WHO = Identity("User:a", "h", "PLAIN", "")


class Hashing:
    """A mechanism with one hash, and the only thread for hashes, which is busy until `free`."""

    def __init__(self) -> None:
        self.hashed = 0
        self.free = threading.Event()
        self.thread = ThreadPoolExecutor(1)
        self.thread.submit(self.free.wait)

    def step(self, _token: bytes) -> Callable[[], bytes]:
        return self._hash

    def _hash(self) -> bytes:
        self.hashed += 1
        return b""

    user, by = None, ""


@pytest.mark.parametrize("gone", [True, False])
async def test_password_of_a_login_again_is_not_hashed_for_a_connection_that_has_gone(gone: bool) -> None:
    mechanism = Hashing()
    sasl = SimpleNamespace(mechanisms=("PLAIN",), start=lambda _: mechanism, hashing=mechanism.thread)
    handlers: Any = {w.SaslHandshakeRequest: lambda *_: None}
    clock = SystemClock()
    state = ServerState(ListenerSettings(), clock)
    session = Session(cast(Sasl, sasl), WHO, 1000, handlers, clock.monotonic_ms(), AuditLog(0, clock))
    connection = KafkaConnection(state, session.handlers, lambda _: WHO, session)
    connection.connection_made(cast(asyncio.Transport, Transport()))
    exchange: Any = SimpleNamespace(version=1, connection=connection, answer=lambda _: None)
    session._handshake(w.SaslHandshakeRequest("PLAIN"), exchange)
    session._token(w.SaslAuthenticateRequest(b"x"), exchange)
    try:
        if gone:
            connection.connection_lost(None)
            for _ in range(3):  # the loop tells the thread in a later turn
                await asyncio.sleep(0)
        mechanism.free.set()
        await asyncio.get_running_loop().run_in_executor(mechanism.thread, lambda: None)
        assert mechanism.hashed == (0 if gone else 1)
    finally:
        mechanism.free.set()
        mechanism.thread.shutdown()
