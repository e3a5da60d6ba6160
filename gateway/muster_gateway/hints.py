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

_Walk = Generator[int, bytes, None]
"""Asks for the next n bytes, or for n bytes to be skipped (-n)."""


class HintRewriter:
    """For one answer: feed it with all of its bytes after the length."""

    __slots__ = ("_address_of", "_have", "_need", "_tail", "_walk")

    def __init__(self, key: int, address_of: AddressOf) -> None:
        self._walk: _Walk | None = _fetch() if key == FETCH else _produce()
        self._need = next(self._walk)
        self._have = b""
        self._tail = bytearray()
        self._address_of = address_of

    def feed(self, chunk: bytes | memoryview, last: bool) -> bytes | memoryview:
        """What to pass on in place of `chunk`; the last one has the held tail with it. Raises WireError."""
        position = self._advance(chunk) if self._walk is not None else 0
        if self._walk is not None:
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
        walk = self._walk
        assert walk is not None
        position, size, need, have = 0, len(chunk), self._need, self._have
        try:
            while True:
                if need < 0:
                    step = min(-need, size - position)
                    position += step
                    need += step
                    if need < 0:
                        break
                    need = walk.send(b"")
                else:
                    end = position + need - len(have)
                    if end > size:
                        have += bytes(chunk[position:])
                        position = size
                        break
                    got = have + bytes(chunk[position:end]) if have else bytes(chunk[position:end])
                    have = b""
                    position = end
                    need = walk.send(got)
        except StopIteration:
            self._walk = None
        self._need, self._have = need, have
        return position


def _varint() -> Generator[int, bytes, int]:
    value = shift = 0
    while True:
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise WireError(f"a varint of {value}")
            return value
        shift += 7
        if shift > 28:
            raise WireError("a varint of more than five bytes")


def _skip(size: int) -> _Walk:
    if size:
        yield -size


def _tags() -> _Walk:
    for _ in range((yield from _varint())):
        yield from _varint()
        yield from _skip((yield from _varint()))


def _fetch() -> _Walk:
    yield -4  # correlation id
    yield from _tags()
    yield -10  # throttle_time_ms, error_code, session_id
    for _ in range((yield from _varint()) - 1):
        yield -16  # topic_id
        for _ in range((yield from _varint()) - 1):
            yield -30  # index, error_code, high_watermark, last_stable_offset, log_start_offset
            for _ in range((yield from _varint()) - 1):  # aborted_transactions
                yield -16
                yield from _tags()
            yield -4  # preferred_read_replica
            yield from _skip(max((yield from _varint()) - 1, 0))  # records
            yield from _tags()
        yield from _tags()


def _produce() -> _Walk:
    yield -4
    yield from _tags()
    for _ in range((yield from _varint()) - 1):
        yield from _skip(max((yield from _varint()) - 1, 0))  # name
        for _ in range((yield from _varint()) - 1):
            yield -30  # index, error_code, base_offset, log_append_time_ms, log_start_offset
            for _ in range((yield from _varint()) - 1):  # record_errors
                yield -4
                yield from _skip(max((yield from _varint()) - 1, 0))
                yield from _tags()
            yield from _skip(max((yield from _varint()) - 1, 0))  # error_message
            yield from _tags()
        yield from _tags()
    yield -4  # throttle_time_ms


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
