"""numpy and Arrow building blocks: read numbers and strings at many unaligned positions of one buffer at once.

Arrays are put together from buffers, and taken apart: `pa.array`, `pa.scalar` and `to_numpy` import pandas, which
costs every Python process that Spark starts half a second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

PADDING = 64
"""Zero bytes behind the data, so that a read at any checked place, or a varint run there, stays in the buffer."""


class Source:
    """A buffer, padded, seen as overlapping big-endian integers that begin at every byte."""

    __slots__ = ("_i16", "_i32", "_i64", "buffer", "data", "size")

    def __init__(self, *parts: bytes | memoryview) -> None:
        self.data = b"".join([*parts, bytes(PADDING)])
        self.size = len(self.data) - PADDING
        self.buffer = np.frombuffer(self.data, np.uint8)
        self._i16 = self._view(">i2")
        self._i32 = self._view(">i4")
        self._i64 = self._view(">i8")

    def _view(self, dtype: str) -> NDArray[np.signedinteger]:
        width = np.dtype(dtype).itemsize
        return np.ndarray((len(self.data) - width + 1,), dtype, self.data, strides=(1,))

    def int16(self, positions: Ints) -> Ints:
        return self._i16[positions].astype(np.int64)

    def int32(self, positions: Ints) -> Ints:
        return self._i32[positions].astype(np.int64)

    def int64(self, positions: Ints) -> Ints:
        return self._i64[positions].astype(np.int64)

    def varints(self, positions: Ints, max_bytes: int) -> tuple[Ints, Ints, Mask | None]:
        """Decode the zig-zag varints at `positions`: (values, positions after them, mask of those too long or None)."""
        raw, behind, too_long = self.unsigned_varints(positions, max_bytes)
        # logical shift: a 64-bit zig-zag number fills the sign bit as well
        return (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1), behind, too_long

    def unsigned_varints(self, positions: Ints, max_bytes: int) -> tuple[Ints, Ints, Mask | None]:
        """The same of unsigned varints; one of ten bytes fills the sign bit as well."""
        first = self.buffer[positions].astype(np.int64)
        raw = first & 0x7F
        behind = positions + 1
        more = np.flatnonzero(first > 0x7F)
        shift = 7
        while len(more):
            if shift >= 7 * max_bytes:
                too_long = np.zeros(len(positions), np.bool_)
                too_long[more] = True
                return raw, behind, too_long
            byte = self.buffer[behind[more]].astype(np.int64)
            raw[more] |= (byte & 0x7F) << shift
            behind[more] += 1
            more = more[byte > 0x7F]
            shift += 7
        return raw, behind, None


def _slices(kind: pa.DataType, source: Source, starts: Ints, ends: Ints, valid: Mask | None) -> pa.Array:
    """Return the bytes from `starts` to `ends` (rising, not overlapping), copied once.

    An Arrow array of all fields *and* the gaps between them needs no copy: its offsets are the places in the buffer.
    Taking every other element copies only the fields.
    """
    count = len(starts)
    if count == 0:
        return pa.nulls(0, kind)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1]
    both = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(source.data)])
    return both.take(number_array(np.arange(0, 2 * count, 2), pa.int64(), valid))


def mask_array(mask: Mask) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))])


def mask_of(column: pa.Array) -> Mask:
    """Return a column of booleans without null as a mask."""
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    mask: Mask = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")[column.offset :].view(
        np.bool_
    )
    return mask


def number_array(values: NDArray[np.integer], kind: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """`values` as an Arrow array of `kind`, without a copy where they are of it; null where not `valid`."""
    content = np.ascontiguousarray(values, kind.to_pandas_dtype())
    missing = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [missing, pa.py_buffer(content)])


def numbers_of(column: pa.Array) -> Ints:
    """Return a column of integers without null as an array."""
    everything = np.frombuffer(column.buffers()[1], column.type.to_pandas_dtype())
    return everything[column.offset : column.offset + len(column)].astype(np.int64, copy=False)


def texts(values: Sequence[str]) -> pa.Array:
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


def same_text(value: str, count: int) -> pa.Array:
    return pa.repeat(texts([value])[0], count)


def bytes_array(source: Source, starts: Ints, ends: Ints, valid: Mask | None = None) -> pa.Array:
    return _slices(pa.binary(), source, starts, ends, valid)


def text_array(source: Source, starts: Ints, ends: Ints, valid: Mask) -> tuple[pa.Array, list[int]]:
    """Return (UTF-8 strings, indexes of values that are not UTF-8 and therefore null)."""
    raw = bytes_array(source, starts, ends, None if valid.all() else valid)
    try:
        return raw.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    found: list[str | None] = []
    invalid: list[int] = []
    for index, value in enumerate(raw.to_pylist()):
        try:
            found.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            invalid.append(index)
            found.append(None)
    return pa.array(found, pa.string()), invalid
