"""Kafka's primitive types, read from a frame at a position: the functions that hot decoders and `Reader` share.

Every function returns (value, position after it). Reading after the frame's end raises IndexError or struct.error,
which `api.guarded` turns into WireError; what the frame's bytes can get wrong otherwise raises WireError right here.
Lengths are checked before bytes are touched, so that a length that a peer only claims never allocates anything.

Types: https://kafka.apache.org/protocol#protocol_types; compact types and tagged fields: KIP-482.
"""

from __future__ import annotations

import struct

from muster_coordinator.records.varint import read_unsigned
from muster_coordinator.wire.errors import WireError

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")

STRING_MAX_BYTES = 0x7FFF
"""Kafka refuses longer strings in every encoding, also where the compact one could carry them."""


def text(raw: bytes) -> str:
    """UTF-8; puts U+FFFD for what is none, as Kafka does: librdkafka sends an application's metadata unchecked."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        value = raw.decode("utf-8", "replace")
    # The replacement is longer than what it replaces, and the text must still fit a string of a record or an answer.
    if len(value.encode()) > STRING_MAX_BYTES:
        raise WireError(f"a string of {len(raw)} bytes that are not UTF-8 is too long to repair")
    return value


def uvarint(frame: bytes, position: int) -> tuple[int, int]:
    """Unsigned varint of up to five bytes. No length or count of a frame can be above 2^31 - 1, so neither can this."""
    try:
        value, position = read_unsigned(frame, position)
    except ValueError:
        raise WireError(f"a varint of more than five bytes at byte {position}") from None
    if value > 0x7FFFFFFF:
        raise WireError(f"a varint of {value} before byte {position}")
    return value, position


def string(frame: bytes, position: int) -> tuple[str, int]:
    start = position + 2
    end = start + INT16.unpack_from(frame, position)[0]
    if start <= end <= len(frame):
        try:
            return frame[start:end].decode(), end
        except UnicodeDecodeError:
            return text(frame[start:end]), end
    raise _bad_length("a string", position, end - start, frame)


def nullable_string(frame: bytes, position: int) -> tuple[str | None, int]:
    start = position + 2
    end = start + INT16.unpack_from(frame, position)[0]
    if start <= end <= len(frame):
        try:
            return frame[start:end].decode(), end
        except UnicodeDecodeError:
            return text(frame[start:end]), end
    if end == start - 1:
        return None, start
    raise _bad_length("a string", position, end - start, frame)


def compact_string(frame: bytes, position: int) -> tuple[str, int]:
    value, end = compact_nullable_string(frame, position)
    if value is None:
        raise WireError(f"null in place of a string at byte {position}")
    return value, end


def compact_nullable_string(frame: bytes, position: int) -> tuple[str | None, int]:
    length = frame[position]
    start = position + 1
    if length >= 0x80:
        length, start = uvarint(frame, position)
    if length == 0:
        return None, start
    end = start + length - 1
    if end > len(frame) or length - 1 > STRING_MAX_BYTES:
        raise _bad_length("a string", position, length - 1, frame)
    return text(frame[start:end]), end


def array_length(frame: bytes, position: int) -> tuple[int, int]:
    """Count of a non-null array. Every element takes a byte or more, so the rest of the frame bounds it."""
    count = INT32.unpack_from(frame, position)[0]
    position += 4
    if not 0 <= count <= len(frame) - position:
        raise _bad_length("an array", position - 4, count, frame)
    return count, position


def compact_array_length(frame: bytes, position: int) -> tuple[int, int]:
    count, end = uvarint(frame, position)
    if not 0 < count <= len(frame) - end + 1:
        raise _bad_length("an array", position, count - 1, frame)
    return count - 1, end


def skip_tagged_fields(frame: bytes, position: int) -> int:
    """Position after a section of tagged fields. None that a client sends to a coordinator matters to us (KIP-482)."""
    if frame[position] == 0:
        return position + 1
    count, position = uvarint(frame, position)
    for _ in range(count):
        _, position = uvarint(frame, position)
        size, position = uvarint(frame, position)
        position += size
        if position > len(frame):
            raise _bad_length("a tagged field", position - size, size, frame)
    return position


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bad_length(what: str, position: int, length: int, frame: bytes) -> WireError:
    return WireError(f"{what} of length {length} at byte {position} of {len(frame)}")
