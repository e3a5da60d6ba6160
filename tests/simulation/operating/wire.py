"""Connections between processes, in place of TCP: what is written arrives whole and in order, or all breaks.

A cut of the network delays what is under way until it is over, as TCP sends again. The end of a process resets its
connections and refuses new ones; when a machine loses its power, the others hear nothing until something is there again
that can refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from tests.simulation.injected import Injected
from tests.simulation.operating.process import Process
from tests.simulation.world import World

__all__ = ["Wire", "WireConnector"]

P = TypeVar("P", bound=asyncio.Protocol)
RESEND_MS = 200


class Wire:
    """`hosts`: address -> name of the machine that has it; `ips`: those that a machine's connections come from, where
    that matters.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: dict[str, str] = {}
        self.ips: dict[str, str] = {}
        self._listeners: dict[str, tuple[Process, Callable[[], asyncio.Protocol]]] = {}
        self._open: dict[_End, None] = {}

    def listen(self, process: Process, address: str, factory: Callable[[], asyncio.Protocol]) -> None:
        self._listeners[address] = process, factory

    def unlisten(self, process: Process, address: str) -> None:
        if address in self._listeners and self._listeners[address][0] is process:
            del self._listeners[address]

    def listens(self, address: str) -> bool:
        found = self._listeners.get(address)
        return found is not None and found[0].is_alive

    async def connect(self, process: Process, address: str, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """Raises ConnectionRefusedError; hangs while the machine cannot be reached."""
        future: asyncio.Future[tuple[asyncio.Transport, P]] = asyncio.get_running_loop().create_future()
        host = self.hosts.get(address, address)

        def refused() -> None:
            if not future.done():
                future.set_exception(ConnectionRefusedError(f"nothing listens at {address}"))

        def accepted(end: _End) -> None:
            if future.done():  # the caller has given up
                end.reset()
                return
            protocol = factory()
            future.set_result((end.begin(protocol), protocol))

        def arrives() -> None:
            if not self.listens(address):
                self._after(host, process.name, lambda: process.deliver(refused))
                return
            other, new_protocol = self._listeners[address]
            near, far = _End(self, process, address), _End(self, other, address)
            near.other, far.other, near.refused = far, near, refused
            self._open |= {near: None, far: None}
            other.deliver(lambda: far.begin(new_protocol()))
            far.send(lambda: accepted(near))

        self._after(process.name, host, arrives)
        return await future

    def ended(self, process: Process, *, silent: bool = False) -> None:
        """The process is dead. `silent`: with its machine, which resets nothing."""
        for end in [end for end in self._open if end.process is process]:
            del self._open[end]
            end.is_closed = True
            if not silent:
                end.send(lambda other=end.other: other.lost(ConnectionResetError("the process has ended")))  # type: ignore[misc]

    def forget(self, end: _End) -> None:
        self._open.pop(end, None)

    def _after(self, source: str, target: str, do: Callable[[], None]) -> None:
        """A packet and its answer: both ways must be open."""
        now = self.world.now_ms
        until = max(self.world.blocked.get((source, target), -1), self.world.blocked.get((target, source), -1))
        self.world.at(self.delay_ms() + max(until - now, 0), do)

    def delay_ms(self) -> int:
        options, random = self.world.options, self.world.random
        delay = random.randint(0, options.delay_ms_max)
        if self.world.faults and random.random() < options.long_delay:
            self.world.injected[Injected.DELAY] += 1
            delay += random.randint(0, options.long_delay_ms)
        return delay


class _End:
    """One end of a connection. What is sent from here arrives at the other one in order."""

    other: _End

    def __init__(self, wire: Wire, process: Process, address: str) -> None:
        self.wire = wire
        self.process = process
        self.address = address
        self.is_closed = False
        self.protocol: asyncio.Protocol | None = None
        self.waiting: list[bytes] | None = None  # while the protocol reads nothing
        self.refused: Callable[[], None] | None = None  # told when it ends before it has begun
        self._last_ms = 0

    def begin(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        self.protocol = protocol
        transport = _Transport(self)
        protocol.connection_made(transport)
        return transport

    def send(self, arrives: Callable[[], None]) -> None:
        world = self.wire.world
        arrival_ms = max(world.now_ms + self.wire.delay_ms(), self._last_ms)
        blocked_ms = world.blocked.get((self.process.name, self.other.process.name), -1)
        if blocked_ms > world.now_ms:
            world.injected[Injected.CUT] += 1
            arrival_ms = max(arrival_ms, blocked_ms + world.random.randint(0, RESEND_MS))
        self._last_ms = arrival_ms
        world.at(arrival_ms - world.now_ms, lambda: self.other.process.deliver(arrives))

    def write(self, data: bytes) -> None:
        other, world = self.other, self.wire.world
        if self.is_closed:
            return
        if not other.process.is_alive:
            world.at(RESEND_MS, lambda: self._send_again(RESEND_MS))
            return
        if world.faults and world.random.random() < world.options.loss / 50:
            world.injected[Injected.LOSS] += 1
            self.send(lambda: other.lost(ConnectionResetError("broken on the way")))
            world.at(0, lambda: self.process.deliver(lambda: self.lost(ConnectionResetError("broken on the way"))))
            return
        self.send(lambda: other.take(data))

    def _send_again(self, pause_ms: int) -> None:
        """After a silent end: whoever is there by now resets."""
        if self.is_closed or not self.process.is_alive:
            return
        if self.wire.listens(self.address):
            self.process.deliver(lambda: self.lost(ConnectionResetError("nobody knows this connection there")))
        else:
            self.wire.world.at(2 * pause_ms, lambda: self._send_again(2 * pause_ms))

    def take(self, data: bytes) -> None:
        if self.is_closed or self.protocol is None:
            return
        if self.waiting is not None:
            self.waiting.append(data)
        else:
            self.protocol.data_received(data)

    def resume(self) -> None:
        held, self.waiting = self.waiting, None
        for data in held or ():
            self.take(data)

    def close(self) -> None:
        """In order: what was written still arrives."""
        if not self.is_closed:
            self.send(self.other.finished)
            self._close(None)

    def reset(self) -> None:
        if not self.is_closed:
            self.send(lambda: self.other.lost(ConnectionResetError("reset")))
            self._close(None)

    def finished(self) -> None:
        """The other end has closed."""
        if not self.is_closed and self.protocol is not None:
            self.resume()
            self.protocol.eof_received()
            self._close(None)

    def lost(self, error: Exception) -> None:
        if not self.is_closed:
            self._close(error)

    def _close(self, error: Exception | None) -> None:
        self.is_closed = True
        self.wire.forget(self)
        if self.protocol is not None:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)
        elif self.refused is not None:
            self.refused()


class _Transport(asyncio.Transport):
    """What protocols use of one."""

    def __init__(self, end: _End) -> None:
        names = (end.other.process.name, end.process.name)
        peer, own = (end.wire.ips.get(name, name) for name in names)
        super().__init__({"peername": (peer, 0), "sockname": (own, 0)})
        self._end = end

    def write(self, data: Any) -> None:
        self._end.write(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._end.write(b"".join(bytes(each) for each in list_of_data))

    def set_protocol(self, protocol: Any) -> None:
        self._end.protocol = protocol

    def is_closing(self) -> bool:
        return self._end.is_closed

    def close(self) -> None:
        self._end.close()

    def abort(self) -> None:
        self._end.reset()

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._end.waiting = self._end.waiting or []

    def resume_reading(self) -> None:
        self._end.resume()


class _InOrder(dict[ResponseHandler, None]):
    """A set, as far as the connector uses one, that keeps its order."""

    def add(self, each: ResponseHandler) -> None:
        self[each] = None

    def discard(self, each: ResponseHandler) -> None:
        self.pop(each, None)

    def remove(self, each: ResponseHandler) -> None:
        del self[each]


class WireConnector(aiohttp.BaseConnector):
    """Connects aiohttp's client over the wire."""

    def __init__(self, wire: Wire, process: Process) -> None:
        super().__init__(limit=0, keepalive_timeout=3_600)  # idle times are real ones in there
        self._acquired: Any = _InOrder()  # they are closed in this order
        self._wire = wire
        self._process = process

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        try:
            async with asyncio.timeout(timeout.sock_connect):
                address = f"{req.url.host}:{req.url.port}"
                _, protocol = await self._wire.connect(self._process, address, self._factory)
                return protocol
        except TimeoutError:
            raise
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
