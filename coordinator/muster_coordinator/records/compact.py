"""Compact arrays of compact strings, and tagged fields (KIP-482), in the values of control records.

Bytes that are cut off raise IndexError; a length that cannot be, or text that is not UTF-8, raises ValueError.
"""

from __future__ import annotations

from muster_coordinator.records.varint import encode_unsigned, read_unsigned


def encode_strings(texts: tuple[str, ...]) -> bytes:
    """A compact array of compact strings."""
    raw = [text.encode() for text in texts]
    return encode_unsigned(len(raw) + 1) + b"".join(encode_unsigned(len(one) + 1) + one for one in raw)


def read_strings(data: bytes, position: int) -> tuple[tuple[str, ...], int]:
    """(strings, position after them)."""
    count, position = read_unsigned(data, position)
    out = []
    for _ in range(count - 1):
        size, position = read_unsigned(data, position)
        end = position + size - 1
        if end > len(data):
            raise IndexError(f"string of {size - 1} bytes")
        out.append(data[position:end].decode())
        position = end
    return tuple(out), position


def read_tagged(value: bytes, position: int, wanted: int) -> tuple[bytes | None, int]:
    """(content of the tagged field `wanted`, None if it is not there; position after all of them)."""
    content = None
    count, position = read_unsigned(value, position)
    for _ in range(count):
        tag, position = read_unsigned(value, position)
        size, position = read_unsigned(value, position)
        if position + size > len(value):
            raise IndexError(f"tagged field of {size} bytes")
        if tag == wanted:
            content = value[position : position + size]
        position += size
    return content, position
