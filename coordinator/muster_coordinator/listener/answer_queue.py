"""The answers of one connection. They leave in the order of its requests, and those of one turn of the event loop with
one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from muster_coordinator.listener.exchange import Exchange
from muster_coordinator.listener.user_load import UserLoad

COUNTED_BYTES = 4 << 10
"""What one connection may hold without being counted: the hot path does not reach it."""


class Flow(Protocol):
    """The connection, as its answers see it."""

    held_bytes: int
    """Bytes of requests and answers, as last counted."""
    paused_reading: bool

    def count(self) -> None:
        """What the connection holds has changed by more than a little."""
        ...

    def resume_reading(self) -> None:
        """An answer has left: the connection may have room for another request."""
        ...


class AnswerQueue:
    """`pending` has the exchanges in flight, in order. `request_bytes` and `ready_bytes` are the bytes of requests that
    are not answered and of answers that are not written.
    """

    def __init__(self, flow: Flow) -> None:
        self.pending: deque[Exchange] = deque()
        self.request_bytes = 0
        self.ready_bytes = 0
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._load: UserLoad | None = None
        self._out: list[bytes] = []
        self._write_due = False

    def open(self, transport: asyncio.Transport) -> None:
        """Write to `transport` until `drop`."""
        self._transport = transport

    def count_for(self, load: UserLoad) -> None:
        """Tell the user's load of each request that is answered or given up."""
        self._load = load

    def complete(self, exchange: Exchange, frame: bytes) -> None:
        """Implements `exchange.Answers`."""
        pending = self.pending
        if not pending:
            return  # the connection is gone
        self.request_bytes -= exchange.size
        self.ready_bytes += len(frame)
        flow = self._flow
        if pending[0] is exchange:
            pending.popleft()
            out = self._out
            before = len(out)
            out.append(frame)
            while pending and pending[0].frame is not None:
                out.append(pending.popleft().frame)  # type: ignore[arg-type]  # checked in the line above
            if self._load is not None:
                self._load.left(len(out) - before)
            if not self._write_due:
                self._write_due = True
                self._loop.call_soon(self.write)
            if flow.paused_reading:
                flow.resume_reading()
        else:
            exchange.frame = frame
        if self.ready_bytes > COUNTED_BYTES or flow.held_bytes > COUNTED_BYTES:
            flow.count()

    def write(self) -> None:
        """Write what is ready."""
        self._write_due = False
        out = self._out
        transport = self._transport
        if transport is None or not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        self.ready_bytes -= len(data)
        out.clear()
        transport.write(data)
        if len(data) > COUNTED_BYTES or self._flow.held_bytes > COUNTED_BYTES:
            self._flow.count()

    def drop(self) -> None:
        """Forget the requests in flight, and what is not written: the connection closes."""
        self._transport = None
        if self._load is not None:
            self._load.left(len(self.pending))
        self.pending.clear()
        self._out.clear()
        self.request_bytes = self.ready_bytes = 0
