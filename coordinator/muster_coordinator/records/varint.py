"""Zig-zag variable-length integers of record batch v2. Source: org.apache.kafka.common.utils.ByteUtils."""

from __future__ import annotations

__all__ = ["SMALL", "encode_varint", "read_varint"]


def encode_varint(value: int) -> bytes:
    """Any signed integer of up to 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


SMALL = tuple(encode_varint(n) for n in range(4096))
"""The encodings of 0..4095: lengths and offset deltas of nearly every record, at the price of one index."""


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """(value, position behind it). IndexError at the end of the buffer, ValueError on more than ten bytes."""
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
