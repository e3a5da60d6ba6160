"""Finds the leader hints at the end of a Fetch or Produce answer while the answer passes (KIP-951), and rewrites them.

The answer is never assembled: a walk over its fields skips records by their lengths, and only the tagged fields at its
very end are held. The frame's length has been sent before they come, so what replaces them has exactly their size. New
addresses that do not fit are left out: the client then asks for Metadata, as clients without KIP-951 do.

Sans-IO. Sources: FetchResponse.json 16+, ProduceResponse.json 10+.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.primitives import encode_uvarint, uvarint
from muster_gateway.apis import FETCH

_NODE_ENDPOINTS = 0  # the tag of the hints
_UNKNOWN_TAG = 127
"""Clients skip tagged fields that they do not know (KIP-482); Kafka numbers them from 0 up."""
_TAIL_MAX = 1 << 20

Address = tuple[str, int]
AddressOf = Callable[[int], Address | None]
"""Node id -> the address by which clients know it; None: it has none yet."""

_Walk = Generator[int, int, int]
"""Asks for the byte after the next n, which are skipped; returns how many are to be skipped in the end."""


class HintRewriter:
    """Rewrites one answer: it is fed with all of its bytes, the length first."""

    __slots__ = ("_address_of", "_key", "_skip", "_tail", "_walk")

    def __init__(self, key: int, address_of: AddressOf) -> None:
        self._key: int | None = key  # None: some of the answer was fed
        self._walk: _Walk | None = None
        self._skip = 0
        self._tail = bytearray()
        self._address_of = address_of

    def feed(self, chunk: bytes | memoryview, last: bool) -> bytes | memoryview:
        """The bytes to pass on in place of `chunk`; the last one has the held tail with it. Raises WireError."""
        if self._key is not None:
            key, self._key = self._key, None
            if last and key != FETCH:
                return _rewritten_produce(bytes(chunk), self._address_of)
            self._walk = _fetch() if key == FETCH else _produce()
            self._skip = next(self._walk)
        position = self._advance(chunk)
        if self._walk is not None or self._skip:
            if last:
                raise WireError("an answer ends before its last field")
            return chunk
        self._tail += chunk[position:]
        if len(self._tail) > _TAIL_MAX:
            raise WireError(f"tagged fields of more than {_TAIL_MAX} bytes")
        if not last:
            return chunk[:position]
        return bytes(chunk[:position]) + rewritten_tail(bytes(self._tail), self._address_of)

    def _advance(self, chunk: bytes | memoryview) -> int:
        """Walk over the chunk; returns where the tail begins, or its end."""
        position, size = self._skip, len(chunk)
        if self._walk is not None:
            ask = self._walk.send
            try:
                while position < size:
                    position += 1 + ask(chunk[position])
            except StopIteration as end:
                self._walk = None
                position += 1 + int(end.value)
        self._skip = max(position - size, 0)
        return min(position, size)


def _varint(skip: int) -> _Walk:
    """The one after `skip` bytes."""
    value, shift = 0, 0
    while True:
        byte = yield skip
        skip = 0
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise WireError(f"a varint of {value}")
            return value
        shift += 7
        if shift > 28:
            raise WireError("a varint of more than five bytes")


def _tags(skip: int) -> _Walk:
    """Over the tagged fields after `skip` bytes; returns how many of the last one are still to be skipped."""
    count, skip = (yield from _varint(skip)), 0
    for _ in range(count):
        yield from _varint(skip)
        skip = yield from _varint(0)
    return skip


def _fetch() -> _Walk:
    skip = yield from _tags(8)  # length, correlation id
    topics, skip = (yield from _varint(skip + 10)) - 1, 0  # throttle_time_ms, error_code, session_id
    for _ in range(topics):
        partitions, skip = (yield from _varint(skip + 16)) - 1, 0  # topic_id
        for _ in range(partitions):
            # index, error_code, high_watermark, last_stable_offset, log_start_offset
            aborted_transactions, skip = (yield from _varint(skip + 30)) - 1, 0
            for _ in range(aborted_transactions):
                skip = yield from _tags(skip + 16)
            records = (yield from _varint(skip + 4)) - 1  # after preferred_read_replica
            skip = yield from _tags(max(records, 0))
        skip = yield from _tags(skip)
    return skip


def _produce() -> _Walk:
    skip = yield from _tags(8)  # length, correlation id
    topics, skip = (yield from _varint(skip)) - 1, 0
    for _ in range(topics):
        name = (yield from _varint(skip)) - 1
        partitions, skip = (yield from _varint(max(name, 0))) - 1, 0
        for _ in range(partitions):
            # index, error_code, base_offset, log_append_time_ms, log_start_offset
            record_errors, skip = (yield from _varint(skip + 30)) - 1, 0
            for _ in range(record_errors):
                message = (yield from _varint(skip + 4)) - 1  # after batch_index
                skip = yield from _tags(max(message, 0))
            error_message = (yield from _varint(skip)) - 1
            skip = yield from _tags(max(error_message, 0))
        skip = yield from _tags(skip)
    return skip + 4  # throttle_time_ms


def _rewritten_produce(answer: bytes, address_of: AddressOf) -> bytes:
    """A whole answer, as nearly all to Produce come: the fields of `_produce`, read in a third of the time. Raises
    WireError."""
    try:
        position = _after_tags(answer, 8)
        topics, position = uvarint(answer, position)
        for _ in range(topics - 1):
            name, position = uvarint(answer, position)
            partitions, position = uvarint(answer, position + max(name - 1, 0))
            for _ in range(partitions - 1):
                record_errors, position = uvarint(answer, position + 30)
                for _ in range(record_errors - 1):
                    message, position = uvarint(answer, position + 4)
                    position = _after_tags(answer, position + max(message - 1, 0))
                error_message, position = uvarint(answer, position)
                position = _after_tags(answer, position + max(error_message - 1, 0))
            position = _after_tags(answer, position)
    except IndexError:
        raise WireError("an answer ends before its last field") from None
    position += 4  # throttle_time_ms
    tail = answer[position:]
    return answer if tail == b"\0" else answer[:position] + rewritten_tail(tail, address_of)


def rewritten_tail(tail: bytes, address_of: AddressOf) -> bytes:
    """The tagged fields with the hints replaced, in the same size. Raises WireError."""
    try:
        count, position = uvarint(tail, 0)
        others, hints = bytearray(), None
        for _ in range(count):
            begin = position
            tag, position = uvarint(tail, position)
            size, position = uvarint(tail, position)
            content = tail[position : position + size]
            position += size
            if position > len(tail) or tag >= _UNKNOWN_TAG:
                raise WireError(f"tagged field {tag} of {size} bytes at the end of an answer")
            if tag == _NODE_ENDPOINTS:
                hints = content
            else:
                others += tail[begin:position]
        if position != len(tail):
            raise WireError(f"{len(tail) - position} bytes after the end of an answer")
        if hints is None:
            return tail
        endpoints = _endpoints(hints, address_of)
    except IndexError:
        raise WireError("tagged fields end too early") from None
    size_text = encode_uvarint(len(hints))
    if endpoints is not None:
        rewritten = encode_uvarint(count) + b"\0" + size_text + endpoints + others
    else:
        rewritten = encode_uvarint(count) + bytes(others) + bytes((_UNKNOWN_TAG,)) + size_text + bytes(len(hints))
    if len(rewritten) != len(tail):
        raise WireError("tagged fields with lengths that are longer than needed")
    return bytes(rewritten)


def _endpoints(content: bytes, address_of: AddressOf) -> bytes | None:
    """The array of endpoints with other addresses, in the same size; None where they do not fit or are not known."""
    count, position = uvarint(content, 0)
    if count == 0:
        return content
    out = bytearray(encode_uvarint(count))
    for _ in range(count - 1):
        node_id = int.from_bytes(content[position : position + 4], "big", signed=True)
        length, position = uvarint(content, position + 4)
        position += max(length - 1, 0) + 4  # host, port
        rack_at = position
        length, position = uvarint(content, position)
        position += max(length - 1, 0)
        rack = content[rack_at:position]
        position = _after_tags(content, position)
        address = address_of(node_id)
        if address is None:
            return None
        host = address[0].encode()
        out += node_id.to_bytes(4, "big", signed=True)
        out += encode_uvarint(len(host) + 1) + host + address[1].to_bytes(4, "big") + rack + b"\0"
    if position != len(content):
        raise WireError("leader hints of another length than they say")
    return _padded(bytes(out), len(content))


def _padded(endpoints: bytes, size: int) -> bytes | None:
    """Made longer by a tagged field of the last endpoint that no client knows."""
    more = size - len(endpoints)
    if more == 0:
        return endpoints
    for length in (more - 2, more - 3):  # a length of one byte, or of two
        text = encode_uvarint(length) if length >= 0 else b""
        if text and 1 + len(text) + length == more:
            return endpoints[:-1] + b"\1" + bytes((_UNKNOWN_TAG,)) + text + bytes(length)
    return None


def _after_tags(content: bytes, position: int) -> int:
    count, position = uvarint(content, position)
    for _ in range(count):
        _, position = uvarint(content, position)
        size, position = uvarint(content, position)
        position += size
    return position
