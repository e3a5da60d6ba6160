"""Cuts the byte stream of a client into requests: those that are read come whole, all others pass as they arrive.

Sans-IO. Whatever the sizes of the chunks, the sink is given the same bytes in the same order. Memory: one request that
is read whole (bounded), or the first bytes of one that is not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.primitives import uvarint
from muster_gateway.apis import API_VERSIONS, RULES, Rule, Treatment
from muster_gateway.errors import ClientError

_HEAD = struct.Struct(">ihhi")  # length, API key, version, correlation id
_INT16 = struct.Struct(">h")
_PEEKED, _PEEKED_MAX = 256, 200_000
"""Bytes at the start of a Produce request in which `acks` stands mostly, and must stand: two strings of at most 32,767
bytes come before, and tagged fields."""
_LENGTH_SIZE = 4
_SMALLEST = 8  # bytes of key, version and correlation id


class RequestHead(NamedTuple):
    """The fixed first part of a request's header. `answered`: False for Produce with acks=0."""

    rule: Rule
    version: int
    correlation_id: int
    answered: bool = True

    @property
    def flexible(self) -> bool:
        return self.rule.flexible(self.version)


class RequestSink(Protocol):
    def begin(self, head: RequestHead) -> None:
        """A request that passes unread; its bytes follow."""

    def forward(self, chunk: bytes | memoryview) -> None:
        """Bytes of the requests that began, each with its length first; more than one may begin before them."""

    def whole(self, head: RequestHead, frame: bytes) -> None:
        """A request that is read. `frame`: without its length."""

    def unknown_api_versions(self, correlation_id: int) -> None:
        """ApiVersions of a version that the gateway does not know (KIP-511)."""


class RequestCutter:
    """Cuts the stream of requests. After an error it must not be fed again."""

    __slots__ = ("_held", "_left", "_limit", "_may_begin", "_need", "_sink", "stopped")

    def __init__(self, sink: RequestSink, limit: int, may_begin: Callable[[], bool] = lambda: True) -> None:
        """`limit`: most bytes of a request that is read whole. `may_begin`: whether another request may be taken now;
        if not, the cutter stops before it."""
        self._sink = sink
        self._may_begin = may_begin
        self._limit = limit
        self._held = bytearray()
        self._need = _LENGTH_SIZE
        self._left = 0  # of a request that passes unread
        self.stopped = False  # before a request, until `resume`

    @property
    def held(self) -> int:
        """Bytes that wait for more."""
        return len(self._held)

    def feed(self, data: bytes) -> None:
        """Raises ClientError."""
        if self.stopped:
            self._held += data
            return
        if self._left >= len(data):
            self._left -= len(data)
            self._sink.forward(data)
            return
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return
            data = bytes(self._held)
            self._held = bytearray()
        position = self._cut(data)
        if position < len(data):
            self._held += data[position:]

    def resume(self) -> None:
        """Another request may be taken. Raises ClientError."""
        self.stopped = False
        data = bytes(self._held)
        self._held = bytearray()
        self.feed(data)

    def _cut(self, data: bytes) -> int:
        """Gives the sink what can be given; returns where the rest begins, for which `_need` bytes are needed."""
        self._need = _LENGTH_SIZE
        passed = position = 0  # between them: bytes of requests that pass
        size = len(data)
        while position < size:
            if self._left:
                step = min(self._left, size - position)
                self._left -= step
                position += step
                continue
            if size - position < _HEAD.size:
                self._need = self._need_of_head(data, position)
                break
            if not self._may_begin():
                self.stopped = True
                break
            begun = self._request(data, passed, position)
            if begun is None:
                break
            if begun > position:
                passed = position = begun
        self._forward(data, passed, position)
        return position

    def _forward(self, data: bytes, begin: int, end: int) -> None:
        if begin < end:
            self._sink.forward(memoryview(data)[begin:end])

    def _request(self, data: bytes, passed: int, position: int) -> int | None:
        """The position after what was consumed of the request there, or None when more bytes are needed. What is to
        pass before a request that is read goes first."""
        length: int
        length, key, version, correlation_id = _HEAD.unpack_from(data, position)
        if length < _SMALLEST:
            raise ClientError("malformed_request", f"a request of {length} bytes")
        rule = RULES.get(key)
        known = rule is not None and 0 <= version <= rule.max_version
        if rule is None or not (known or key == API_VERSIONS):
            raise ClientError("unsupported_request", f"API key {key} version {version} is not served")
        treatment = rule.treatment
        if treatment is Treatment.THROUGH or treatment is Treatment.FETCH:
            self._sink.begin(RequestHead(rule, version, correlation_id))
            self._left = 4 + length
            return position
        if treatment is Treatment.PRODUCE:
            acks = self._peek_acks(data, position, length, rule.flexible(version))
            if acks is None:
                return None
            self._sink.begin(RequestHead(rule, version, correlation_id, acks != 0))
            self._left = 4 + length
            return position
        if length > self._limit:
            raise ClientError("frame_too_large", f"{rule.name} of {length} bytes: allowed are {self._limit}")
        end = position + 4 + length
        if end > len(data):
            self._need = 4 + length
            return None
        self._forward(data, passed, position)
        if known:
            self._sink.whole(RequestHead(rule, version, correlation_id), data[position + 4 : end])
        else:
            self._sink.unknown_api_versions(correlation_id)
        return end

    def _peek_acks(self, data: bytes, position: int, length: int, flexible: bool) -> int | None:
        begin, end = position + 4, position + 4 + length
        for peeked in (_PEEKED, _PEEKED_MAX):
            frame = data[begin : min(end, begin + peeked)]
            try:
                return _acks(frame, flexible)
            except (IndexError, struct.error):
                continue
            except WireError as error:
                raise ClientError("malformed_request", f"Produce: {error}") from error
        if end <= len(data) or len(frame) >= _PEEKED_MAX:
            raise ClientError("malformed_request", "Produce without acks")
        have = len(data) - position
        self._need = min(4 + length, have + max(16, have // 2))  # so that few bytes at a time do not cost much each
        return None

    @staticmethod
    def _need_of_head(data: bytes, position: int) -> int:
        if len(data) - position < _LENGTH_SIZE:
            return _LENGTH_SIZE
        length = int.from_bytes(data[position : position + _LENGTH_SIZE], "big", signed=True)
        if length < _SMALLEST:
            raise ClientError("malformed_request", f"a request of {length} bytes")
        return _HEAD.size


def body_position(frame: bytes, flexible: bool) -> int:
    """The position at which the body of a request begins. Raises WireError, IndexError or struct.error."""
    length = _INT16.unpack_from(frame, 8)[0]
    if length < -1:
        raise WireError(f"a client id of {length} bytes")
    position = 10 + max(length, 0)
    if position > len(frame):
        raise IndexError
    return _skip_tags(frame, position) if flexible else position


def _acks(frame: bytes, flexible: bool) -> int:
    position = body_position(frame, flexible)
    if flexible:
        length, position = uvarint(frame, position)
        position += max(length - 1, 0)
    else:
        length = _INT16.unpack_from(frame, position)[0]
        position += 2 + max(length, 0)
    return int(_INT16.unpack_from(frame, position)[0])


def _skip_tags(frame: bytes, position: int) -> int:
    """The position after tagged fields. Raises IndexError where the frame ends: more of it may come."""
    if frame[position] == 0:
        return position + 1
    count, position = uvarint(frame, position)
    for _ in range(count):
        _, position = uvarint(frame, position)
        size, position = uvarint(frame, position)
        position += size
        if position > len(frame):
            raise IndexError
    return position
