"""Cuts the byte stream of a broker into answers: those that are rewritten come whole, all others pass as they arrive.

Sans-IO. Whatever the sizes of the chunks, the sink is given the same bytes in the same order. Answers come in the order
of the requests; one that may not pass yet, because an earlier answer of another coordinator is missing, is kept, and
nothing is to be fed until `resume`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from muster_coordinator.wire.errors import WireError
from muster_gateway.errors import UpstreamError
from muster_gateway.hints import HintRewriter

_HEAD = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Pass:
    """The answer passes. `hints`: rewrites its tail."""

    hints: HintRewriter | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """The answer is wanted as a whole."""


class AnswerSink(Protocol):
    def answer_begins(self, correlation_id: int) -> Pass | Whole | None:
        """The way to treat the answer to the oldest request; None: it may not pass yet. Raises UpstreamError for an
        answer that nobody waits for."""

    def answer_bytes(self, chunk: bytes | memoryview, last: bool) -> None:
        """Bytes of an answer that passes, its length first."""

    def answer_whole(self, frame: bytes) -> None:
        """An answer without its length."""


class AnswerCutter:
    """Cuts the stream of answers. After an error it must not be fed again."""

    __slots__ = ("_held", "_hints", "_left", "_limit", "_need", "_sink", "blocked")

    def __init__(self, sink: AnswerSink, limit: int) -> None:
        """`limit`: most bytes of an answer that is read whole."""
        self._sink = sink
        self._limit = limit
        self._held = bytearray()
        self._need = _HEAD.size
        self._left = 0  # of an answer that passes
        self._hints: HintRewriter | None = None
        self.blocked = False

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return len(self._held)

    def feed(self, data: bytes) -> None:
        """Raises UpstreamError."""
        if self._left > len(data) and self._hints is None:
            self._left -= len(data)
            self._sink.answer_bytes(data, False)
            return
        if self._held or self.blocked:
            self._held += data
            if self.blocked or len(self._held) < self._need:
                return
            data = bytes(self._held)
            self._held = bytearray()
        position = self._cut(data)
        if position < len(data):
            self._held += data[position:]

    def resume(self) -> None:
        """The answer that may not pass may pass now. Raises UpstreamError."""
        self.blocked = False
        held = bytes(self._held)
        self._held = bytearray()
        if held:
            self.feed(held)

    def _cut(self, data: bytes) -> int:
        position, size = 0, len(data)
        while position < size:
            if self._left:
                position = self._pass(data, position)
                continue
            self._need = _HEAD.size
            if size - position < _HEAD.size:
                return position
            length, correlation_id = _HEAD.unpack_from(data, position)
            if length < 4:
                raise UpstreamError(f"an answer of {length} bytes")
            plan = self._sink.answer_begins(correlation_id)
            if plan is None:
                self.blocked = True
                return position
            end = position + 4 + length
            if isinstance(plan, Pass):
                self._hints = plan.hints
                self._left = 4 + length
            elif length > self._limit:
                raise UpstreamError(f"an answer of {length} bytes that must be read whole: allowed are {self._limit}")
            elif end > size:
                self._need = 4 + length
                return position
            else:
                self._sink.answer_whole(data[position + 4 : end])
                position = end
        return position

    def _pass(self, data: bytes, position: int) -> int:
        end = min(position + self._left, len(data))
        self._left -= end - position
        chunk: bytes | memoryview = memoryview(data)[position:end]
        last = self._left == 0
        if self._hints is not None:
            try:
                chunk = self._hints.feed(chunk, last)
            except WireError as error:
                raise UpstreamError(f"an answer that cannot be read: {error}") from error
            if last:
                self._hints = None
        self._sink.answer_bytes(chunk, last)
        return end
