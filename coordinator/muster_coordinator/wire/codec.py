"""`Reader` and `Writer`: field after field of a request or response, for all that is not on the hot path.

Both know whether their version is flexible (KIP-482) and choose the compact encodings themselves, so that the codec of
an API reads like its schema and branches only where versions differ.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire import primitives
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.slicing import pause

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

_T = TypeVar("_T")

ARRAY_MAX = 100_000
"""Most elements of an array in a request. Kafka has no such limit; more would be objects of a hundred megabytes."""

SLICE_BYTES = 64 << 10
"""A slice of a large answer is full with so many bytes, if its entries are long."""


class Reader:
    """Reads the body of a request. Raises WireError, IndexError or struct.error: use it in a `guarded` decoder."""

    __slots__ = ("_entries", "_flexible", "_frame", "_position")

    def __init__(self, frame: bytes, position: int, flexible: bool) -> None:
        self._entries = 0  # read since the last pause
        self._frame = frame
        self._position = position
        self._flexible = flexible

    @property
    def position(self) -> int:
        """The position in the frame at which the next field begins."""
        return self._position

    def _fixed(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self._frame, self._position)[0]
        self._position += form.size
        return value

    def int8(self) -> int:
        return self._fixed(_INT8)

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def boolean(self) -> bool:
        return self._fixed(_INT8) != 0

    def uuid(self) -> bytes:
        return self._take(16, "a uuid")

    def string(self) -> str:
        read = primitives.compact_string if self._flexible else primitives.string
        value, self._position = read(self._frame, self._position)
        return value

    def nullable_string(self) -> str | None:
        read = primitives.compact_nullable_string if self._flexible else primitives.nullable_string
        value, self._position = read(self._frame, self._position)
        return value

    def byte_string(self) -> bytes:
        """Non-null bytes. Kafka's decoder refuses null where the schema does not allow it, and so does this."""
        length = self._length()
        if length < 0:
            raise WireError(f"null or a negative length in place of bytes before byte {self._position}")
        return self._take(length, "bytes")

    def nullable_bytes(self) -> bytes | None:
        length = self._length()
        return None if length == -1 else self._take(length, "bytes")

    def skip_nullable_bytes(self) -> None:
        length = self._length()
        if length < -1 or self._position + length > len(self._frame):
            raise WireError(f"bytes of length {length} before byte {self._position} of {len(self._frame)}")
        self._position += max(length, 0)

    def array(self, element: Callable[[], _T]) -> tuple[_T, ...]:
        values = self.nullable_array(element)
        if values is None:
            raise WireError(f"null in place of an array before byte {self._position}")
        return values

    def nullable_array(self, element: Callable[[], _T]) -> tuple[_T, ...] | None:
        count = self.array_length()
        if count == -1:
            return None
        values: list[_T] = []
        while True:
            more = min(count - len(values), SLICE_ENTRIES)
            values += [element() for _ in range(more)]
            self._entries += more
            if self._entries >= SLICE_ENTRIES:
                self._entries = 0
                pause()
            if len(values) == count:
                return tuple(values)

    def array_length(self) -> int:
        """Number of elements of the array that begins here; -1: null."""
        count = self._length()
        # Every element takes a byte or more.
        if not -1 <= count <= len(self._frame) - self._position:
            raise WireError(f"an array of {count} before byte {self._position} of {len(self._frame)}")
        if count > ARRAY_MAX:
            raise WireError(f"an array of {count} before byte {self._position}: {ARRAY_MAX} is the most")
        return count

    def int32_array(self) -> tuple[int, ...]:
        count = self.array_length()
        if count < 0:
            raise WireError(f"null in place of an array before byte {self._position}")
        start = self._position
        self._position += 4 * count
        return struct.unpack_from(f">{count}i", self._frame, start)

    def topic(self) -> tuple[str, tuple[int, ...]]:
        """A structure of a topic's name and numbers of partitions, as several requests have it."""
        value = (self.string(), self.int32_array())
        self.tagged_fields()
        return value

    def named_bytes(self) -> tuple[str, bytes]:
        """A structure of a name and bytes: a protocol of a member, or its assignment."""
        value = (self.string(), self.byte_string())
        self.tagged_fields()
        return value

    def tagged_fields(self) -> None:
        """Ends a structure of a flexible version; nothing in the others."""
        if self._flexible:
            self._position = primitives.skip_tagged_fields(self._frame, self._position)

    def tagged_values(self) -> dict[int, bytes]:
        """Reads tagged fields as `tagged_fields` does, and gives what stands in them, by tag."""
        values: dict[int, bytes] = {}
        if self._flexible:
            count, self._position = primitives.uvarint(self._frame, self._position)
            for _ in range(count):
                tag, self._position = primitives.uvarint(self._frame, self._position)
                size, self._position = primitives.uvarint(self._frame, self._position)
                values[tag] = self._take(size, "a tagged field")
        return values

    def _length(self) -> int:
        if not self._flexible:
            return self.int32()
        length, self._position = primitives.uvarint(self._frame, self._position)
        return length - 1

    def _take(self, length: int, what: str) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._frame):
            raise WireError(f"{what} of length {length} at byte {self._position} of {len(self._frame)}")
        value = self._frame[self._position : end]
        self._position = end
        return value


class Writer:
    """Builds the body of a response."""

    __slots__ = ("_entries", "_flexible", "_out")

    def __init__(self, flexible: bool) -> None:
        self._entries = 0  # written since the last pause
        self._out = bytearray()
        self._flexible = flexible

    def int8(self, value: int) -> None:
        self._out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._out += _INT64.pack(value)

    def boolean(self, value: bool) -> None:
        self._out.append(1 if value else 0)

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ValueError(f"a topic id of {len(value)} bytes")
        self._out += value

    def string(self, value: str) -> None:
        raw = value.encode()
        self._out += primitives.encode_uvarint(len(raw) + 1) if self._flexible else _INT16.pack(len(raw))
        self._out += raw

    def nullable_string(self, value: str | None) -> None:
        if value is not None:
            self.string(value)
        else:
            self._out += b"\0" if self._flexible else b"\xff\xff"

    def byte_string(self, value: bytes) -> None:
        self._length(len(value))
        self._out += value

    def array_length(self, count: int) -> None:
        """Begins an array of so many elements, which follow."""
        self._length(count)

    def packed_array(self, count: int, elements: bytes) -> None:
        """Writes an array of elements that are bytes already."""
        self._length(count)
        self._out += elements

    def array(self, values: Sequence[_T], element: Callable[[_T], None]) -> None:
        self._length(len(values))
        for value in values:
            element(value)
            self._entries += 1
            if self._entries >= SLICE_ENTRIES:
                self._entries = 0
                pause()

    def null_array(self) -> None:
        self._length(-1)

    def int32_array(self, values: Sequence[int]) -> None:
        self._length(len(values))
        self._out += struct.pack(f">{len(values)}i", *values)

    def tagged_fields(self) -> None:
        """Ends a structure of a flexible version with no tagged field: we have none to say."""
        if self._flexible:
            self._out.append(0)

    def so_far(self) -> bytes:
        """The bytes that have been written, without an end of the outermost structure."""
        return bytes(self._out)

    def done(self, tagged: Sequence[tuple[int, bytes]] = ()) -> bytes:
        """The body; also ends the outermost structure. `tagged`: its tagged fields, by rising tag; a version that is
        not flexible has none."""
        if tagged and self._flexible:
            self._out += primitives.encode_uvarint(len(tagged))
            for tag, value in tagged:
                self._out += primitives.encode_uvarint(tag) + primitives.encode_uvarint(len(value)) + value
        else:
            self.tagged_fields()
        return bytes(self._out)

    def _length(self, length: int) -> None:
        self._out += primitives.encode_uvarint(length + 1) if self._flexible else _INT32.pack(length)


class SlicedWriter(Writer):
    """Builds the body of a large response slice by slice."""

    __slots__ = ("_room",)

    def __init__(self, flexible: bool) -> None:
        super().__init__(flexible)
        self._room = SLICE_ENTRIES

    def is_full(self) -> bool:
        """True if enough was written for a slice; asked after each entry."""
        self._room -= 1
        return self._room <= 0 or len(self._out) >= SLICE_BYTES

    def taken(self) -> bytes:
        """The slice. What is written from now on belongs to the next one."""
        made, self._out = bytes(self._out), bytearray()
        self._room = SLICE_ENTRIES
        return made
