"""Variable-length integers: unsigned, and zig-zag as in record batch v2.

Source: org.apache.kafka.common.utils.ByteUtils.
"""

from __future__ import annotations


def encode_unsigned(value: int) -> bytes:
    """Any integer of up to 64 bits that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Any signed integer of up to 64 bits."""
    return encode_unsigned((value << 1) ^ (value >> 63))


SMALL = tuple(encode_varint(n) for n in range(4096))
"""The encodings of 0..4095: lengths and offset deltas of nearly every record, at the price of one index."""

_SMALL_COUNT = len(SMALL)


def encode_count(value: int) -> bytes:
    """`encode_varint` of an integer that is not negative, and small as a rule."""
    return SMALL[value] if value < _SMALL_COUNT else encode_varint(value)


def encode_counts(start: int, end: int) -> bytes:
    """The encodings of `start` up to `end`, which is not among them, one after the other."""
    if end <= _SMALL_COUNT:
        return b"".join(SMALL[start:end])
    return b"".join([encode_count(value) for value in range(start, end)])


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """(value, position after it). IndexError at the end of the buffer, ValueError on more than ten bytes.

    A loop of its own and not `read_unsigned`: three of these are read for every record of a log.
    """
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("varint of more than ten bytes")


def read_unsigned(buffer: bytes, position: int) -> tuple[int, int]:
    """(value, position after it). IndexError at the end of the buffer, ValueError on more than five bytes."""
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 28:
            raise ValueError("varint of more than five bytes")
