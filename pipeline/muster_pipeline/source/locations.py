"""Opens a segment wherever it is: a file of this machine, a pod, or an object store.

http://POD:PORT            the committed part of a pod's logs, by ranges (GET /v1/segments); https as well
s3://, gs://, hdfs://, ... a directory in any store that `pyarrow.fs` knows, with the layout of a data directory
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from muster_pipeline.decode.bytes_source import ByteSource, FileBytes
from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.source.http_ranges import RETRY_EVERY_S, UNREACHABLE_FOR_S, HttpBytes


class OpenSegment(ByteSource, Protocol):
    def __enter__(self) -> OpenSegment: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def is_uri(path: str) -> bool:
    return "://" in path


def is_pod(path: str) -> bool:
    return path.startswith(("http://", "https://"))


def open_segment(path: str, at_least: int = 0) -> OpenSegment:
    """Open the segment with its present size, which is `at_least` this many bytes.

    A pod that has restarted serves only what it knows to be committed, so a shorter segment is opened again for up to
    `UNREACHABLE_FOR_S`. Raises SegmentReadError.
    """
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        source = _open(path)
        if source.size >= at_least:
            return source
        source.__exit__(None, None, None)
        if not is_pod(path) or time.monotonic() > deadline:
            raise SegmentReadError(path, source.size, f"the segment ends here; {at_least} bytes were there before")
        time.sleep(RETRY_EVERY_S)


def _open(path: str) -> OpenSegment:
    if is_pod(path):
        return HttpBytes(path)
    return _StoredBytes(path) if is_uri(path) else FileBytes(path)


def list_uri(uri: str) -> list[str]:
    """Return the URIs of all files under `uri`, or `uri` itself if it is a file.

    Raises OSError; ValueError if pyarrow does not know the store.
    """
    system, path = fs.FileSystem.from_uri(uri)
    if system.get_file_info(path).type == fs.FileType.File:
        return [uri]
    bare, mark, options = uri.partition("?")
    found = system.get_file_info(fs.FileSelector(path, recursive=True))
    return [
        bare.rstrip("/") + each.path[len(path.rstrip("/")) :] + mark + options
        for each in found
        if each.type == fs.FileType.File
    ]


class _StoredBytes:
    """A segment in an object store. Raises SegmentReadError."""

    def __init__(self, uri: str) -> None:
        self.name = uri
        try:
            system, path = fs.FileSystem.from_uri(uri)
            self._file = system.open_input_file(path)
            self.size: int = self._file.size()
        except (OSError, pa.ArrowException) as exc:
            raise SegmentReadError(uri, 0, str(exc)) from exc

    def read(self, position: int, size: int) -> bytes:
        try:
            data: bytes = self._file.read_at(size, position)
        except (OSError, pa.ArrowException) as exc:
            raise SegmentReadError(self.name, position, str(exc)) from exc
        if len(data) < size:
            raise SegmentReadError(
                self.name, position + len(data), "the file ends here; it was longer when it was opened"
            )
        return data

    def __enter__(self) -> _StoredBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
