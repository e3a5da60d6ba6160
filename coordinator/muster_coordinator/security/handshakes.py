"""Accepts TLS connections: a protocol gets its connection after the handshake. Handshakes are bounded: number and time.

Each handshake uses `Tls.context` as it is then, so that certificates and CAs change without a new listener. asyncio's
own TLS server has one context for its life, and no bound on connections that do not finish their handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from muster_coordinator.security.tls import Tls

logger = structlog.get_logger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE = 64
"""Connections that are accepted in one turn of the event loop; the others wait in the backlog."""


@dataclass(frozen=True)
class HandshakeLimits:
    """Only tests use other values."""

    seconds: float = 3.0
    """Longest handshake; also how long nothing is accepted when the process has no descriptor left."""
    number: int = 512
    """Connections in their handshake at a time; one more ends the oldest: an honest handshake takes milliseconds."""


Factory = Callable[[], asyncio.Protocol]


class Listening(Protocol):
    """A port that is listened on."""

    def close(self) -> None:
        """Accept nothing more. Connections that are open stay open."""


async def listen(factory: Factory, host: str, port: int, tls: Tls | None, name: str) -> tuple[Listening, int]:
    """The port's listener, and the port that it has; without `tls` a plain one. `name`: of the port, for logs. Raises
    OSError when the address cannot be had."""
    loop = asyncio.get_running_loop()
    if tls is not None:
        [(family, _, _, _, address), *_] = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = TlsListener(factory, socket.create_server(address[:2], family=family, backlog=BACKLOG), tls, name)
        return listener, listener.port
    server = await loop.create_server(factory, host, port, backlog=BACKLOG)
    return server, int(server.sockets[0].getsockname()[1])


class TlsListener:
    """`refused`: handshakes that failed, by reason. Made on the event loop's thread; `close` once."""

    def __init__(
        self,
        factory: Factory,
        listening: socket.socket,
        tls: Tls,
        name: str,
        limits: HandshakeLimits = HandshakeLimits(),
    ) -> None:
        self.refused: Counter[str] = Counter()
        self.port = int(listening.getsockname()[1])
        self._factory = factory
        self._socket = listening
        self._tls = tls
        self._name = name
        self._limits = limits
        self._handshakes: dict[asyncio.Task[None], str] = {}  # with the other host, in the order in which they began
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def __repr__(self) -> str:
        return f"<TlsListener {self._name} port={self.port} handshakes={len(self._handshakes)}>"

    @property
    def handshakes(self) -> int:
        """Connections that are in their handshake now."""
        return len(self._handshakes)

    def close(self) -> None:
        """Accept nothing more, and end what is in its handshake."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is left
                logger.error("cannot_accept", port=self._name, error=str(error))
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(
                    self._limits.seconds, self._loop.add_reader, self._socket, self._accept
                )
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._shake(accepted, str(address[0])))
            self._handshakes[task] = str(address[0])
            task.add_done_callback(self._ended)
            if len(self._handshakes) > self._limits.number:
                oldest = next(iter(self._handshakes))
                self._failed(self._handshakes.pop(oldest), "too_many", "another connection came")
                oldest.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)

    async def _shake(self, accepted: socket.socket, host: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory, accepted, ssl=self._tls.context, ssl_handshake_timeout=self._limits.seconds
            )
        except OSError as error:  # SSLError is one
            self._failed(host, _reason(error), str(error))

    def _failed(self, host: str, reason: str, message: str) -> None:
        """Logged ever more rarely, with the number so far: a flood of connections is no flood of logs."""
        self.refused[reason] += 1
        count = self.refused[reason]
        if count & (count - 1) == 0:
            logger.warning("tls_refused", port=self._name, host=host, reason=reason, error=message, count=count)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        return "handshake"
    return "closed"  # by the other side, or by us after `HandshakeLimits.seconds`
