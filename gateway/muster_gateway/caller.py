"""A connection on which the gateway itself asks: one answer for each request, in their order."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import cast

from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.wire.errors import FrameTooLargeError
from muster_coordinator.wire.framing import FrameReader
from muster_gateway.errors import UpstreamError

Address = tuple[str, int]

CONNECT_S = 1.0
"""Longest wait for a connection to a broker or pod. One that is up takes milliseconds, and there are others."""
SECURED_CONNECT_S = 5.0
"""The same with TLS or a login: a broker that has just started takes a second for its first handshakes."""


def connect_s(connector: Connector) -> float:
    """Longest wait for a connection (s)."""
    return SECURED_CONNECT_S if connector.settings.tls or connector.settings.sasl else CONNECT_S


class ConnectionLostError(Exception):
    """The other side is gone. What was asked and not answered may have been carried out."""


class Caller(asyncio.Protocol):
    """Made by `connect`. Not to be used after it is `lost`."""

    def __init__(self, limit: int) -> None:
        self._good_until_s: float | None = None  # of the event loop's clock; None: as long as it lasts
        self._reader = FrameReader(limit)
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, connector: Connector, address: Address, limit: int, as_user: str = "") -> Caller:
        """`limit`: most bytes of an answer. `as_user`: as of `Connector.connect`. Raises OSError, TimeoutError."""
        async with asyncio.timeout(connect_s(connector)):
            caller, lifetime_s = await connector.connect(cls(limit), address, as_user)
        if lifetime_s is not None:
            caller._good_until_s = asyncio.get_running_loop().time() + lifetime_s
        return caller

    @property
    def lost(self) -> bool:
        """True if another connection has to be made, as when this one is lost or its session is about to end
        (KIP-368)."""
        if self._transport is None:
            return True
        return self._good_until_s is not None and asyncio.get_running_loop().time() >= self._good_until_s

    def call(self, frame: bytes) -> asyncio.Future[bytes]:
        """Send a request (with its length). The result is the answer without its length, or
        ConnectionLostError, or UpstreamError for one that is too large."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(ConnectionLostError("it was lost before"))
            return future
        self._waiting.append((int.from_bytes(frame[8:12], "big", signed=True), future))
        self._transport.write(frame)
        return future

    def close(self, reason: str = "closed") -> None:
        """Requests that wait get ConnectionLostError."""
        self._end(ConnectionLostError(reason))

    def _end(self, error: Exception) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may wait for it any more, and that is no error

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(f"the connection ended: {exc}" if exc else "the connection ended")

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except FrameTooLargeError as error:
            self._end(UpstreamError(str(error)))  # asked again, it would be as large again
            return
        for frame in frames:
            if not self._waiting or int.from_bytes(frame[:4], "big", signed=True) != self._waiting[0][0]:
                self.close("an answer that nobody waits for")
                return
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(frame)


TCP_ESTABLISHED = 1
"""Linux's, the first byte of TCP_INFO."""
KEEP_ALIVE_S = 15
"""After this silence the kernel asks whether the other side is still there; after three times without an answer the
connection ends. Without it a machine that vanished is never noticed where nothing is sent."""


def has_gone(transport: asyncio.BaseTransport) -> bool:
    """True if the other side has closed the connection: the kernel knows, though nothing is read from it."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state != TCP_ESTABLISHED


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel notice a machine that is gone."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
