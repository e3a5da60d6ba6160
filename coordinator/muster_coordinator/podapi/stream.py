"""The watch stream of a pod, read with as little work as it takes.

An operator hears each pod five times a second, and that is most of what it does while nothing happens. Through a
general HTTP client each time costs twice as much. So a stream has a connection of its own, whose protocol reads the one
answer that it waits for: a head, and a body that is chunked, has a length, or ends with the connection. A heartbeat
wakes nobody: it only shows that the pod is not silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast, get_args

import msgspec

from muster_coordinator.podapi.models import HeartbeatEvent, PartitionEvent, StatusEvent, WatchEvent

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Longest line of a watch stream, in bytes: the status of 1,000 partitions takes a quarter of a megabyte."""
MAX_HEAD_BYTES = 64 * 1024
"""Also of what a pod says that refuses the stream."""
MOST_EVENTS = 1000
"""That wait for their reader; then the pod waits too."""

_END = b"\r\n"
_decode = msgspec.json.Decoder(WatchEvent).decode
_KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(WatchEvent))


class BrokenStreamError(ConnectionError):
    """The stream ended in the middle, or is none."""


class WatchStream(asyncio.Protocol):
    """`request` is sent at once. The stream fails with TimeoutError when nothing comes for `silence_s`."""

    def __init__(self, request: bytes, silence_s: float) -> None:
        self.status = 0
        """Of HTTP, once it is known."""
        self.refusal = b""
        """The body, if the status is not 200."""
        self._request = request
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._head = b""
        self._body = Body()
        self._lines = Lines()
        self._events: list[StatusEvent | PartitionEvent] = []
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def batch(self) -> list[StatusEvent | PartitionEvent]:
        """The events that have come, but for heartbeats; [] at the end of the body.

        Raises OSError, TimeoutError or msgspec.MsgspecError, after the events that came before.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._ended:
                return []
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events = self._events, []
        if self._transport is not None and len(events) >= MOST_EVENTS:
            self._transport.resume_reading()
        return events

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(self._silence_s, self._look)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._take(data if self.status else self._without_head(data))
        except (BrokenStreamError, msgspec.MsgspecError) as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self.status and self._body.ends_with_the_connection:
            self._end()
        else:
            self._fail(exc or BrokenStreamError("the connection ended in the middle of the stream"))

    def _look(self) -> None:
        """Whether it has been silent for too long. One timer for all: to set one with each heartbeat costs more."""
        quiet_s = self._loop.time() - self._heard
        if quiet_s >= self._silence_s:
            self._fail(TimeoutError(f"silent for {quiet_s:.1f} s"))
        else:
            self._timer = self._loop.call_later(self._silence_s - quiet_s, self._look)

    def _without_head(self, data: bytes) -> bytes:
        self._head += data
        head, found, rest = self._head.partition(_END + _END)
        if not found:
            if len(head) > MAX_HEAD_BYTES:
                raise BrokenStreamError("the answer has no end of its head")
            return b""
        self._head = b""
        first, *fields = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise BrokenStreamError(f"not an answer of HTTP: {first[:100]!r}")
        self.status = int(status[:3])
        self._body = Body.of(
            {name.strip().lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
        )
        return rest

    def _take(self, data: bytes) -> None:
        for piece in self._body.take(data):
            if self.status != 200:
                self.refusal = (self.refusal + piece)[:MAX_HEAD_BYTES]
                continue
            for line in self._lines.take(piece):
                event = _event(line)
                if event is not None and not isinstance(event, HeartbeatEvent):
                    self._events.append(event)
        if self._events:
            self._wake()
            if len(self._events) >= MOST_EVENTS and self._transport is not None:
                self._transport.pause_reading()
        if self.status and self._body.has_ended:
            self._end()

    def _fail(self, error: Exception) -> None:
        if not self._ended:
            self._error = self._error or error
            self._end()

    def _end(self) -> None:
        self._ended = True
        self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Body:
    """Takes the framing of HTTP away. `length` in bytes; None: chunked, or until the connection ends."""

    def __init__(self, length: int | None = None, *, chunked: bool = False) -> None:
        self.ends_with_the_connection = length is None and not chunked
        self.has_ended = length == 0
        self._chunked = chunked
        self._left = length or 0
        """Of the chunk, or of the whole body."""
        self._before = 0
        """Bytes before the size of the next chunk: the end of line of the last one."""
        self._rest = b""

    @classmethod
    def of(cls, fields: dict[str, str]) -> Body:
        """`fields` of the head, their names in small letters. Raises BrokenStreamError."""
        if fields.get("transfer-encoding", "").lower() == "chunked":
            return cls(chunked=True)
        length = fields.get("content-length", "")
        if length and not length.isdecimal():
            raise BrokenStreamError(f"not a length: {length[:100]!r}")
        return cls(int(length) if length else None)

    def take(self, data: bytes) -> Iterator[bytes]:
        """The pieces of the body in it. Raises BrokenStreamError, after the pieces that came before."""
        if self._chunked:
            yield from self._take_chunks(data)
        elif self.ends_with_the_connection:
            yield data
        else:
            piece = data[: self._left]
            self._left -= len(piece)
            self.has_ended = not self._left
            yield piece

    def _take_chunks(self, data: bytes) -> Iterator[bytes]:
        data, at = self._rest + data, 0
        while at < len(data) and not self.has_ended:
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                yield piece
                continue
            end = data.find(_END, at + self._before)
            if end < 0:
                break
            self._left = _size_of(data[at + self._before : end])
            self.has_ended = not self._left
            self._before = len(_END)
            at = end + len(_END)
        self._rest = data[at:]
        if len(self._rest) > MAX_HEAD_BYTES:
            raise BrokenStreamError("a chunk has no size")


def _size_of(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits.isalnum():
        raise BrokenStreamError(f"not the size of a chunk: {line[:100]!r}")
    try:
        return int(digits, 16)
    except ValueError:
        raise BrokenStreamError(f"not the size of a chunk: {line[:100]!r}") from None


class Lines:
    """Lines of up to MAX_LINE_BYTES from pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece. Raises BrokenStreamError if one grows too long."""
        *ended, rest = piece.split(b"\n")
        if ended and self._pieces:
            ended[0] = b"".join((*self._pieces, ended[0]))
        if ended:
            self._pieces, self._held = [], 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
            if self._held > MAX_LINE_BYTES:
                raise BrokenStreamError(f"a line of the watch stream is longer than {MAX_LINE_BYTES} bytes")
        return ended


class _Kind(msgspec.Struct):
    type: str


def _event(line: bytes) -> WatchEvent | None:
    """None: a later version of the pod has events of this kind. Raises msgspec.MsgspecError."""
    try:
        event: WatchEvent = _decode(line)
    except msgspec.ValidationError:
        if msgspec.json.decode(line, type=_Kind).type in _KINDS:
            raise
        return None
    return event
