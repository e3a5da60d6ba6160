"""Kafka's primitive types in record keys and values: int16-length strings and bytes, and the compact ones of flexible
versions.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for the compact types and tagged fields.
"""

from __future__ import annotations

from struct import Struct

from muster_coordinator.records.errors import RecordDecodeError

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
MAX_STRING_BYTES = 0x7FFF


def encode_string(text: str) -> bytes:
    """int16 length, UTF-8. ValueError beyond 32767 bytes: Kafka's schema has no room for more."""
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(raw)} bytes, at most {MAX_STRING_BYTES} fit")
    return INT16.pack(len(raw)) + raw


def encode_nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else encode_string(text)


def encode_bytes(data: bytes) -> bytes:
    """int32 length, bytes."""
    return INT32.pack(len(data)) + data


class Cursor:
    """Reads one key or value from front to back. `flexible` chooses the compact types. Raises RecordDecodeError."""

    __slots__ = ("_data", "_flexible", "_position", "_what")

    def __init__(self, data: bytes, position: int, what: str, *, flexible: bool = False) -> None:
        self._data = data
        self._position = position
        self._what = what
        self._flexible = flexible

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def fixed(self, size: int) -> bytes:
        """A fixed number of bytes without a length before them, such as a uuid."""
        return self._take(size)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise RecordDecodeError(f"{self._what}: null where a string must be, before byte {self._position}")
        return text

    def nullable_string(self) -> str | None:
        length = self._unsigned_varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as exc:
            raise RecordDecodeError(f"{self._what}: {exc} before byte {self._position}") from exc

    def byte_string(self) -> bytes:
        length = self._unsigned_varint() - 1 if self._flexible else self.int32()
        if length < 0:
            raise RecordDecodeError(f"{self._what}: null where bytes must be, before byte {self._position}")
        return self._take(length)

    def array_length(self) -> int:
        """The length of an array, at most the bytes that are left, so that a damaged length allocates nothing."""
        length = self.nullable_array_length()
        if length is None:
            raise RecordDecodeError(f"{self._what}: null where an array must be, before byte {self._position}")
        return length

    def nullable_array_length(self) -> int | None:
        """Like `array_length`; None for a null array."""
        length = self._unsigned_varint() - 1 if self._flexible else self.int32()
        if length == -1:
            return None
        if length < 0 or length > len(self._data) - self._position:
            raise RecordDecodeError(f"{self._what}: array of {length} elements before byte {self._position}")
        return length

    def skip_tagged_fields(self) -> None:
        """Skips nothing in a version that is not flexible."""
        if not self._flexible:
            return
        for _ in range(self._unsigned_varint()):
            self._unsigned_varint()
            self._take(self._unsigned_varint())

    def tagged_fields(self) -> dict[int, bytes]:
        """Tag -> content. Empty in a version that is not flexible."""
        if not self._flexible:
            return {}
        fields: dict[int, bytes] = {}
        for _ in range(self._unsigned_varint()):
            tag = self._unsigned_varint()
            fields[tag] = self._take(self._unsigned_varint())
        return fields

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise RecordDecodeError(f"{self._what}: {size} bytes wanted at byte {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _unsigned_varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
            if shift > 28:
                raise RecordDecodeError(f"{self._what}: varint of more than five bytes before byte {self._position}")
