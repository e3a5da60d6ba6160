"""The connection to one pod: its queue, what happens when it is slow, and how it is made again.

state        what is sent              ends by
connecting   waits in the queue        its hello -> up; an error -> waiting
up           written once per turn     closed, bad input, silence -> connecting, at once if it was up for long enough
waiting      dropped                   the pause (longer each time, with jitter), or a sign of life -> connecting

The pod is *lost* from an error, or `silent_ms` without a pong, until its hello or its next pong.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol, cast

import structlog

from muster_coordinator.peers.addresses import Address
from muster_coordinator.peers.endpoint import PeerEndpoint
from muster_coordinator.peers.frames import (
    HELLO_BYTES_MAX,
    PING,
    PONG,
    Hello,
    HelloError,
    decode_hello,
    encode_frame,
    encode_ping,
    partition_of,
)
from muster_coordinator.wire.errors import FrameTooLargeError
from muster_coordinator.wire.framing import FrameReader

logger = structlog.get_logger(__name__)

_PING_FRAME = encode_frame(PING)

LARGE_BYTES = 64 << 10
"""A message of this size or more helps a replica catch up. Such messages may fill only a quarter of the buffer, so that
messages of present commits need not wait for them."""


@dataclass(frozen=True)
class PeerTimes:
    """Milliseconds. Only tests use other values."""

    ping_ms: int = 100
    """Interval of the pings on a connection that is up."""
    silent_ms: int = 300
    """A pod that sent no pong for this long is lost."""
    dead_ms: int = 1_000
    """After this silence the connection is closed and opened again: TCP's own timer would take minutes."""
    connect_ms: int = 1_000
    """Longest wait for a connection, and then for the hello on it."""
    steady_ms: int = 1_000
    """A connection that was up for this long is opened again at once when it is closed."""
    pause_ms: int = 20
    """The first pause between two attempts; each further one is twice as long."""
    pause_max_ms: int = 500
    """The longest pause between two attempts."""


class PeerState(StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    WAITING = "waiting"


class OutboundOwner(Protocol):
    @property
    def own_log_ids(self) -> dict[int, str]:
        """The replicas of this pod, by partition."""
        ...

    def own_hello(self, to: str) -> bytes: ...

    def check_hello(self, hello: Hello, pod: str) -> None:
        """The answer of the pod that should be `pod`. Raises HelloError."""
        ...

    def write_soon(self, peer: Outbound) -> None:
        """Call `flush` at the end of this turn."""
        ...

    def lost_changed(self, peer: Outbound) -> None: ...

    def failed(self, peer: Outbound, reason: str, message: str) -> None:
        """Count and log bad input."""
        ...


class Outbound:
    """`start` and `stop` once each. `lost`: False until the first attempt failed or took too long."""

    def __init__(
        self,
        pod: str,
        address: Address,
        owner: OutboundOwner,
        endpoint: PeerEndpoint,
        buffer_bytes: int,
        times: PeerTimes,
        random: Random,
    ) -> None:
        self.pod = pod
        self.address = address
        self.state = PeerState.CONNECTING
        self.lost = False
        self._owner = owner
        self._endpoint = endpoint
        self._buffer_bytes = buffer_bytes
        self._times = times
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushed_now = False
        self._link: _Link | None = None
        self._heard_s = self._loop.time()
        self._pinged_s = 0.0
        self._told: dict[int, str] = {}  # on this connection: which replicas this pod has
        self._failures = 0
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Outbound {self.pod} at {self.address} {self.state} lost={self.lost} waiting={self.waiting_bytes}>"

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Close after what was written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # -- sending ------------------------------------------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were sent and did not reach the socket yet."""
        return self._out_bytes + (self._link.unsent_bytes if self._link is not None else 0)

    def send(self, frame: bytes) -> str:
        """Queue; returns why it was dropped, or ""."""
        if self.state is PeerState.WAITING:
            return "not_connected"
        size = len(frame)
        waiting = self.waiting_bytes
        # One that is larger than the whole buffer goes when nothing else waits: it must get through some time.
        if waiting and waiting + size > (self._buffer_bytes // 4 if size >= LARGE_BYTES else self._buffer_bytes):
            return "buffer_full"
        if not self._out and self.state is PeerState.UP:
            self._owner.write_soon(self)
        self._out.append(frame)
        self._out_bytes += size
        return ""

    def flush_now(self) -> None:
        """Write now instead of at the end of this turn, but once per turn: later messages of the turn share a write."""
        if not self._flushed_now:
            self._flushed_now = True
            self._loop.call_soon(self._turn_ended)
            self.flush()

    def _turn_ended(self) -> None:
        self._flushed_now = False

    def flush(self) -> None:
        """Write what was queued in this turn, once."""
        if self._out and self._link is not None and self.state is PeerState.UP:
            out, self._out, self._out_bytes = self._out, [], 0
            self._link.write(out[0] if len(out) == 1 else b"".join(out))

    # -- life ---------------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """A sign of life: end the pause between two attempts."""
        self._hurry.set()

    def reset(self, reason: str) -> None:
        """Make the connection anew."""
        if self._link is not None:
            self._link.end(OSError(reason))
        self.hurry()

    async def _run(self) -> None:
        while True:
            self.state = PeerState.CONNECTING
            self._heard_s = started_s = self._loop.time()
            try:
                await self._connect_and_stay()
                reason = "closed"
            except HelloError as error:
                self._owner.failed(self, error.reason, str(error))
                reason = error.reason
            except OSError as error:
                reason = str(error) or type(error).__name__
            lived_ms = (self._loop.time() - started_s) * 1000
            self._failures = 0 if lived_ms >= self._times.steady_ms and self.state is PeerState.UP else self._failures
            self.state = PeerState.WAITING
            self._out.clear()
            self._out_bytes = 0
            self._set_lost(reason)
            await self._pause()

    async def _connect_and_stay(self) -> None:
        """Raises OSError, HelloError; ends when the other side closes."""
        timeout_s = self._times.connect_ms / 1000
        self._link = link = await self._endpoint.connect(lambda: _Link(self), *self.address, self.pod, timeout_s)
        try:
            link.write(self._owner.own_hello(self.pod))
            async with asyncio.timeout(timeout_s):
                hello = await asyncio.shield(link.hello)
            self._owner.check_hello(hello, self.pod)
            self.state = PeerState.UP
            self._told = {}
            self._ping(link)  # in front of every message
            self.heard()
            if self._out:
                self._owner.write_soon(self)
            await asyncio.shield(link.ended)
        finally:
            self._link = None
            link.close()

    async def _pause(self) -> None:
        """Wait before the next attempt: not at all after a connection that was up for long, else longer each time."""
        failures, self._failures = self._failures, self._failures + 1
        if failures == 0:
            return
        pause_ms = min(self._times.pause_ms * 2 ** min(failures - 1, 16), self._times.pause_max_ms)
        self._hurry.clear()
        try:
            async with asyncio.timeout(self._random.uniform(0.5, 1.0) * pause_ms / 1000):
                await self._hurry.wait()
        except TimeoutError:
            pass

    # -- silence ------------------------------------------------------------------------------------------------------

    def tick(self, grace_s: float) -> None:
        """Every `ping_ms` / 2 or so. `grace_s`: for how long this process itself did not listen."""
        now_s = self._loop.time()
        self._heard_s += grace_s
        silent_ms = (now_s - self._heard_s) * 1000
        if self.state is not PeerState.WAITING and silent_ms > self._times.silent_ms:
            self._set_lost(f"silent for {silent_ms:.0f} ms")
        if self.state is not PeerState.UP or self._link is None:
            return
        if silent_ms > self._times.dead_ms:
            self._link.end(OSError(f"silent for {silent_ms:.0f} ms"))
        elif (now_s - self._pinged_s) * 1000 >= self._times.ping_ms * 0.9:
            self._ping(self._link)

    def _ping(self, link: _Link) -> None:
        self._pinged_s = self._loop.time()
        log_ids = self._owner.own_log_ids
        link.write(_PING_FRAME if log_ids == self._told else encode_ping(log_ids))
        self._told = log_ids

    def heard(self) -> None:
        self._heard_s = self._loop.time()
        if self.lost:
            self.lost = False
            logger.info("peer_found", peer=self.pod, address="{}:{}".format(*self.address))
            self._owner.lost_changed(self)

    def _set_lost(self, reason: str) -> None:
        if not self.lost:
            self.lost = True
            logger.warning("peer_lost", peer=self.pod, address="{}:{}".format(*self.address), reason=reason)
            self._owner.lost_changed(self)


class _Link(asyncio.Protocol):
    """One connection. `hello`: the first frame; `ended`: done, or with the error, when it is over."""

    def __init__(self, peer: Outbound) -> None:
        loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._peer = peer
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(exc if isinstance(exc, OSError) else ConnectionResetError("closed by the peer"))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._receive(frame)
        except FrameTooLargeError as error:
            self.end(HelloError("frame_too_large", str(error)))
        except HelloError as error:
            self.end(error)

    def _receive(self, frame: bytes) -> None:
        if not self.hello.done():
            self.hello.set_result(decode_hello(frame))
        elif partition_of(frame) == PONG:
            self._peer.heard()
        else:
            raise HelloError("malformed", "only pongs are expected here")

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def end(self, error: Exception) -> None:
        """Close at once; what was not written is dropped."""
        transport, self._transport = self._transport, None
        self._reader.drop()
        if transport is not None:
            transport.abort()
        for future in (self.hello, self.ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # so that asyncio does not report it if no task waits for the future

    def close(self) -> None:
        """Close after what was written has been sent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
