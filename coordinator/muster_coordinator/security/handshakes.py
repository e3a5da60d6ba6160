"""Accepts connections of ports that anybody may reach: by TLS, or where descriptors have to be kept back from them.

A protocol gets its connection after the handshake. Handshakes are bounded: number and time. Each of them uses
`Tls.context` as it is then, so that certificates and CAs change without a new listener. asyncio's own TLS server has
one context for its life, and no bound on connections that do not finish their handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from muster_coordinator.security.tls import Tls

logger = structlog.get_logger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE = 2
SHAKEN_AT_ONCE = 1
"""Connections that are accepted in one turn of the event loop, without and with TLS: each costs a millisecond or so,
its handshake and its end included. The others wait in the backlog, so that those who are in already do not."""


@dataclass(frozen=True)
class HandshakeLimits:
    """Only tests use other values."""

    seconds: float = 3.0
    """Longest handshake; also how long nothing is accepted when the process has no descriptor left."""
    number: int = 512
    """Connections in their handshake at a time; one more ends the oldest: an honest handshake takes milliseconds."""


Factory = Callable[[], asyncio.Protocol]


@dataclass(frozen=True)
class Door:
    """The door of a port that keeps descriptors back: a connection whose own is not below `descriptors` is closed at
    once (`tuning.descriptors`), and `full` is told the other host; None: the port logs it, ever more rarely.
    `buffer_bytes`: of the system's buffers of each connection, for either direction; None: as many as it likes."""

    descriptors: int
    full: Callable[[str], None] | None = None
    buffer_bytes: int | None = None


class Listening(Protocol):
    """A port that is listened on."""

    def close(self) -> None:
        """Accept nothing more. Connections that are open stay open."""


async def listen(
    factory: Factory, host: str, port: int, tls: Tls | None, name: str, door: Door | None = None
) -> tuple[Listening, int]:
    """The port's listener, and the port that it has; without `tls` a plain one. `name`: of the port, for logs. Without
    `door` and `tls` every client is let in. Raises OSError when the address cannot be had."""
    loop = asyncio.get_running_loop()
    if tls is None and door is None:
        server = await loop.create_server(factory, host, port, backlog=BACKLOG)
        return server, int(server.sockets[0].getsockname()[1])
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = dict.fromkeys((family, address[:2]) for family, _, _, _, address in found)
    listening: list[socket.socket] = []
    try:
        for family, address in addresses:
            listening.append(socket.create_server(address, family=family, backlog=BACKLOG))
    except OSError:
        for each in listening:
            each.close()
        raise
    if door is not None and door.buffer_bytes is not None:
        for each in listening:  # connections have what their port has
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, door.buffer_bytes)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, door.buffer_bytes)
    listener = PortListener(factory, listening, tls, name, door=door)
    return listener, listener.port


class PortListener:
    """`refused`: connections that got no further, by reason: failed handshakes, and those for which a `Door` without
    `full` had no descriptor. Made on the event loop's thread; `close` once."""

    def __init__(
        self,
        factory: Factory,
        listening: Sequence[socket.socket],
        tls: Tls | None,
        name: str,
        limits: HandshakeLimits = HandshakeLimits(),
        door: Door | None = None,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self.port = int(listening[0].getsockname()[1])
        self._factory = factory
        self._sockets = listening
        self._tls = tls
        self._name = name
        self._limits = limits
        self._door = door
        self._handshakes: dict[asyncio.Task[None], str] = {}  # with the other host, in the order in which they began
        self._loop = asyncio.get_running_loop()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        for each in listening:
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    def __repr__(self) -> str:
        return f"<PortListener {self._name} port={self.port} handshakes={len(self._handshakes)}>"

    @property
    def handshakes(self) -> int:
        """Connections that are in their handshake now."""
        return len(self._handshakes)

    def close(self) -> None:
        """Accept nothing more, and end what is in its handshake."""
        for retry in self._retries.values():
            retry.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        for task in self._handshakes:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        door = self._door
        for _ in range(ACCEPTED_AT_ONCE if self._tls is None else SHAKEN_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is left
                logger.error("cannot_accept", port=self._name, error=str(error))
                self._loop.remove_reader(listening)
                seconds = self._limits.seconds
                self._retries[listening] = self._loop.call_later(
                    seconds, self._loop.add_reader, listening, self._accept, listening
                )
                return
            if door is not None and accepted.fileno() >= door.descriptors:
                accepted.close()
                self._is_full(door, str(address[0]))
                continue
            accepted.setblocking(False)
            self._begin(accepted, str(address[0]))

    def _is_full(self, door: Door, host: str) -> None:
        if door.full is not None:
            door.full(host)
        else:
            self._failed(host, "no_descriptors", f"{door.descriptors} are in use", "connection_refused")

    def _begin(self, accepted: socket.socket, host: str) -> None:
        task = self._loop.create_task(self._shake(accepted, host))
        self._handshakes[task] = host
        task.add_done_callback(self._ended)
        if len(self._handshakes) > self._limits.number:
            oldest = next(iter(self._handshakes))
            self._failed(self._handshakes.pop(oldest), "too_many", "another connection came")
            oldest.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)

    async def _shake(self, accepted: socket.socket, host: str) -> None:
        tls = self._tls
        try:
            if tls is None:
                await self._loop.connect_accepted_socket(self._factory, accepted)
            else:
                await self._loop.connect_accepted_socket(
                    self._factory, accepted, ssl=tls.context, ssl_handshake_timeout=self._limits.seconds
                )
        except OSError as error:  # SSLError is one
            self._failed(host, _reason(error), str(error))

    def _failed(self, host: str, reason: str, message: str, event: str = "tls_refused") -> None:
        """Logged ever more rarely, with the number so far: a flood of connections is no flood of logs."""
        self.refused[reason] += 1
        count = self.refused[reason]
        if count & (count - 1) == 0:
            logger.warning(event, port=self._name, host=host, reason=reason, error=message, count=count)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        return "handshake"
    return "closed"  # by the other side, or by us after `HandshakeLimits.seconds`
