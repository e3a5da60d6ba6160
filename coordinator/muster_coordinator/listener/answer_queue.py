"""The answers of one connection. They leave in the order of its requests, and those of one turn of the event loop with
one write.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

from muster_coordinator.listener.exchange import Exchange
from muster_coordinator.listener.request_counts import RequestCounts
from muster_coordinator.listener.rotation import ANSWER_UNIT_BYTES, Rotation
from muster_coordinator.listener.user_load import UserLoad
from muster_coordinator.shard.metrics import BOUNDS_MS
from muster_coordinator.wire.framing import encode_response_head
from muster_coordinator.wire.slicing import Slices

COUNTED_BYTES = 4 << 10
"""Bytes that one connection may hold without being counted: the hot path does not reach it."""

UNMADE_BYTES = 8 << 10
"""Bytes that a slice of a large answer takes before it is made: references to what the state has."""


class Flow(Protocol):
    """The connection, as its answers see it."""

    held_bytes: int
    """Bytes of requests and answers, as last counted."""
    paused_reading: bool

    def count(self) -> None:
        """Reports that the connection holds notably more or less than before."""
        ...

    def resume_reading(self) -> None:
        """An answer has left: the connection may have room for another request."""
        ...

    def wait_for_turn(self) -> None:
        """A slice of a large answer can be made: do it in the connection's turn."""
        ...

    def abort(self) -> None:
        """Close at once; what was not written is dropped."""
        ...


class LargeAnswer:
    """One that is made in slices, twice: its frame begins with its size, and nobody keeps the whole. `left`: bytes of
    its body that are not made; None while it is measured. `count`: slices that are not made, as far as is known."""

    __slots__ = ("_body", "count", "exchange", "left", "size", "slices")

    def __init__(self, exchange: Exchange, body: Callable[[], Iterator[bytes]]) -> None:
        self.exchange = exchange
        self.size = 0  # bytes of the body, as far as it is measured
        self.left: int | None = None
        self.count = 0
        self._body = body
        self.slices = body()

    def measure(self) -> None:
        """The next slice."""
        made = next(self.slices, None)
        if made is not None:
            self.size += len(made)
            self.count += 1
        else:
            self.left = self.size
            self.slices = self._body()

    def head(self) -> bytes:
        exchange = self.exchange
        return encode_response_head(exchange.api, exchange.version, exchange.correlation_id, self.size)


class MadeInSteps:
    """The answer to a large request, which is made a step in each turn of its connection, and kept then as a whole."""

    __slots__ = ("exchange", "making")

    def __init__(self, exchange: Exchange, making: Slices) -> None:
        self.exchange = exchange
        self.making = making


class AnswerQueue:
    """`pending` has the exchanges in flight, in order. `request_bytes` and `ready_bytes` are the bytes of requests that
    are not answered and of answers that are not written.

    `slow`: the exchange in flight whose answer may be large. No request behind it is carried out before it is answered,
    so that a connection has one such answer in the making: `large`.
    """

    def __init__(
        self, flow: Flow, rotation: Rotation, counts: RequestCounts, may_answer: Callable[[], bool] | None = None
    ) -> None:
        """`may_answer`: whether anything may be told to a client now; None: it may always."""
        self._counts = counts
        self._may_answer = may_answer
        self.pending: deque[Exchange] = deque()
        self.request_bytes = 0
        self.ready_bytes = 0
        self.slow: Exchange | None = None
        self.large: LargeAnswer | MadeInSteps | None = None
        self._flow = flow
        self._rotation = rotation
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

    def complete(self, exchange: Exchange, frame: bytes, errors: Sequence[int] = ()) -> None:
        """Implements `exchange.Answers`."""
        pending = self.pending
        if not pending:
            return  # the connection is gone
        self.request_bytes -= exchange.size
        for code in errors:
            self._counts.errors[exchange.api.key, code] += 1
        size = len(frame)
        self.ready_bytes += size
        self._rotation.units -= size // ANSWER_UNIT_BYTES
        if exchange is self.slow:
            self.slow = None
        if pending[0] is exchange:
            self._first_leaves(frame)
        else:
            exchange.frame = frame
        if self.ready_bytes > COUNTED_BYTES or self._flow.held_bytes > COUNTED_BYTES:
            self._flow.count()

    def _first_leaves(self, frame: bytes) -> None:
        """The first exchange in flight ends with these bytes, and so do those behind it that are answered already."""
        pending, out, flow = self.pending, self._out, self._flow
        now_s = self._counts.now_s()
        self._took(pending.popleft(), now_s)
        before = len(out)
        out.append(frame)
        while pending and pending[0].frame is not None:
            exchange = pending.popleft()
            self._took(exchange, now_s)
            out.append(exchange.frame)  # type: ignore[arg-type]  # checked two lines above
        if self._load is not None:
            self._load.left(len(out) - before)
        if not self._write_due:
            self._write_due = True
            self._loop.call_soon(self.write)
        if self.large is not None:
            flow.wait_for_turn()  # it may be the first now
        if flow.paused_reading:
            flow.resume_reading()

    def _took(self, exchange: Exchange, now_s: float) -> None:
        times = self._counts.times[exchange.api.key]
        took_ms = (now_s - exchange.came_s) * 1000
        times.counts[bisect_left(BOUNDS_MS, took_ms)] += 1  # `times.observe`, without the calls: once for each request
        times.sum_ms += took_ms

    def complete_in_slices(self, exchange: Exchange, body: Callable[[], Iterator[bytes]]) -> None:
        """Implements `exchange.Answers`."""
        if self.pending:
            self.large = LargeAnswer(exchange, body)
            self._flow.wait_for_turn()

    def complete_in_steps(self, exchange: Exchange, making: Slices) -> None:
        """Implements `exchange.Answers`. One step may be all."""
        if self.pending:
            large = MadeInSteps(exchange, making)
            self.large = large
            if not self._make_step(large):
                self._flow.wait_for_turn()

    def _make_step(self, large: MadeInSteps) -> bool:
        """True after the last one."""
        made = large.making.step()
        if made is None:
            return False
        self.large = None
        frame, errors = cast(tuple[bytes, Sequence[int]], made)
        self.complete(large.exchange, frame, errors)
        return True

    @property
    def unmade_bytes(self) -> int:
        """The memory of what the large answer is made from."""
        large = self.large
        return large.count * UNMADE_BYTES if isinstance(large, LargeAnswer) else 0

    def has_slice(self, write_paused: bool) -> bool:
        """True if a slice of the large answer can be made now. Slices are measured at any time, but written in their
        turn, as fast as the client reads."""
        large = self.large
        if not isinstance(large, LargeAnswer):
            return large is not None
        return large.left is None or (self.pending[0] is large.exchange and not write_paused)

    def make_slice(self) -> None:
        """The next one of the large answer. Only if `has_slice`."""
        large = self.large
        assert large is not None
        if isinstance(large, MadeInSteps):
            self._make_step(large)
        elif large.left is None:
            large.measure()
        else:
            self._write_slice(large, large.left)
        self._flow.count()

    def _write_slice(self, large: LargeAnswer, left: int) -> None:
        made = next(large.slices)
        large.left = left - len(made)
        large.count -= 1
        if large.left < 0:
            raise AssertionError(f"an answer of {large.size} bytes has become larger by {-large.left}")
        if left == large.size:
            made = large.head() + made
        self.ready_bytes += len(made)
        if large.left:
            self._out.append(made)
            self.write()
            return
        self.large = self.slow = None
        self.request_bytes -= large.exchange.size
        self._first_leaves(made)

    def write(self) -> None:
        """Write what is ready."""
        self._write_due = False
        out = self._out
        transport = self._transport
        if transport is None or not out:
            return
        if self._may_answer is not None and not self._may_answer():
            self._flow.abort()
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
        self.slow = self.large = None
        self._out.clear()
        self.request_bytes = self.ready_bytes = 0
