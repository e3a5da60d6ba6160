"""Sources of bytes for the decoder: a file, or bytes in memory. Both have a size and read any range."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Protocol

from muster_pipeline.decode.errors import SegmentReadError


class ByteSource(Protocol):
    name: str
    size: int

    def read(self, position: int, size: int) -> bytes | memoryview:
        """Return exactly `size` bytes from `position`. Raises SegmentReadError."""
        ...


class MemoryBytes:
    def __init__(self, data: bytes | memoryview, name: str = "") -> None:
        self.name = name
        self.size = len(data)
        self._data = memoryview(data)

    def read(self, position: int, size: int) -> memoryview:
        return self._data[position : position + size]


class FileBytes:
    """A local file with the size that it had when opened. Bytes appended later belong to the next run.

    Raises SegmentReadError when it is away, or becomes shorter while it is read.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._descriptor).st_size
        except OSError as exc:
            raise SegmentReadError(path, 0, exc.strerror or str(exc)) from exc

    def read(self, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            try:
                part = os.pread(self._descriptor, size, position)
            except OSError as exc:
                raise SegmentReadError(self.name, position, exc.strerror or str(exc)) from exc
            if not part:
                raise SegmentReadError(self.name, position, "the file ends here; it was longer when it was opened")
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> FileBytes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
