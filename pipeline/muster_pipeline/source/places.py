"""Segments that are not files of this machine: those that a pod serves, and those of an object store.

http://POD:PORT            the committed part of a pod's logs, by ranges (GET /v1/segments); https as well
s3://, gs://, hdfs://, ... a directory in whatever ``pyarrow.fs`` knows, with the layout of a data directory
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs

from muster_pipeline.decode.bytes_source import ByteSource, FileBytes
from muster_pipeline.decode.errors import SegmentReadError

__all__ = [
    "UNREACHABLE_FOR_S",
    "OpenSegment",
    "PodLog",
    "PodLogs",
    "is_pod",
    "is_uri",
    "list_logs",
    "list_uri",
    "open_segment",
    "root_of",
    "served_logs",
]

REQUEST_TIMEOUT_S = 30.0
UNREACHABLE_FOR_S = 30.0
"""As long as a pod is asked again: one that restarts is back in seconds."""
MAX_LIST_BYTES = 64 << 20
_RETRY_EVERY_S = 0.2
_NOT_YET = (404, 503)  # a pod that has restarted opens its logs one after the other
_SEGMENTS = "/v1/segments"
_TOTAL = re.compile(r"bytes (?:\*|\d+-\d+)/(\d+)")


class OpenSegment(ByteSource, Protocol):
    def __enter__(self) -> OpenSegment: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True)
class PodLog:
    """``home``: its segments are ``home/<base offset>``. ``log_id``: of this replica. ``epochs``: (leader epoch, its
    first offset) of what is committed."""

    home: str
    partition: int
    base_offsets: tuple[int, ...]
    log_id: str
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PodLogs:
    """``unserved``: partitions with a log here of which the pod cannot say yet what is committed: it has just started,
    or no leader has told it."""

    logs: tuple[PodLog, ...]
    unserved: frozenset[int]


def is_uri(path: str) -> bool:
    return "://" in path


def is_pod(path: str) -> bool:
    return path.startswith(("http://", "https://"))


def open_segment(path: str, at_least: int = 0) -> OpenSegment:
    """As long as it is now, and ``at_least`` so many bytes long, which a pod that has restarted has time for: it serves
    only what it knows to be committed. Raises SegmentReadError.
    """
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        source = _open(path)
        if source.size >= at_least:
            return source
        source.__exit__(None, None, None)
        if not is_pod(path) or time.monotonic() > deadline:
            raise SegmentReadError(path, source.size, f"the segment ends here; {at_least} bytes were there before")
        time.sleep(_RETRY_EVERY_S)


def _open(path: str) -> OpenSegment:
    if is_pod(path):
        return _HttpBytes(path)
    return _StoredBytes(path) if is_uri(path) else FileBytes(path)


def root_of(home: str) -> str:
    """Where the pod lists its logs, of one of which ``home`` is."""
    return home.rpartition("/")[0]


def served_logs(addresses: Sequence[str], *, wait: bool) -> list[PodLog]:
    """The log of each partition that one of the pods serves, of the first named that does. ``wait``: until none of the
    pods has another one, so that none is left out. Raises SegmentReadError: no answer from a pod, or a log that
    none of them serves in the end.
    """
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        found: dict[int, PodLog] = {}
        unserved: dict[int, str] = {}
        for address in addresses:
            listed = list_logs(address)
            unserved |= dict.fromkeys(listed.unserved, address)
            for log in listed.logs:
                found.setdefault(log.partition, log)
        missing = sorted(unserved.keys() - found.keys())
        if not missing or not wait:
            return list(found.values())
        if time.monotonic() > deadline:
            numbers = ", ".join(map(str, missing))
            raise SegmentReadError(
                unserved[missing[0]],
                0,
                f"offsets partitions {numbers} are here, but not served: their logs are damaged, still being opened, or"
                " have no leader. See the pod's log, or name further pods",
            )
        time.sleep(_RETRY_EVERY_S)


def list_logs(address: str) -> PodLogs:
    """The logs of the pod, of which it serves what is committed. Raises SegmentReadError."""
    root = address.rstrip("/").removesuffix(_SEGMENTS) + _SEGMENTS
    _, body = _get(root, "", MAX_LIST_BYTES)
    try:
        listed = json.loads(body)
        return PodLogs(
            tuple(_pod_log(root, each) for each in listed["partitions"]), frozenset(listed.get("unserved", ()))
        )
    except (ValueError, TypeError, KeyError) as exc:
        raise SegmentReadError(root, 0, f"no list of segments: {exc}") from exc


def _pod_log(root: str, listed: dict[str, Any]) -> PodLog:
    """Raises ValueError, TypeError, KeyError."""
    return PodLog(
        f"{root}/{listed['partition']}",
        listed["partition"],
        tuple(segment["baseOffset"] for segment in listed["segments"]),
        listed.get("logId", ""),
        tuple((epoch, offset) for epoch, offset in listed.get("epochs", ())),
    )


def list_uri(uri: str) -> list[str]:
    """The URIs of all files under ``uri``, or that file alone. Raises OSError, ValueError: not known to pyarrow."""
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


def _get(url: str, wanted: str, limit: int) -> tuple[str, bytes]:
    """(Content-Range, body of at most ``limit`` bytes). 416 is an empty body. Raises SegmentReadError."""
    request = urllib.request.Request(url, headers={"Range": wanted} if wanted else {})
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return answer.headers.get("Content-Range", ""), answer.read(limit)
        except urllib.error.HTTPError as exc:
            if exc.code == 416:
                return exc.headers.get("Content-Range", ""), b""
            if exc.code not in _NOT_YET or time.monotonic() > deadline:
                raise SegmentReadError(url, 0, f"HTTP {exc.code}: {exc.read(300).decode(errors='replace')}") from exc
        except (OSError, EOFError) as exc:  # URLError is an OSError; EOFError: http.client's IncompleteRead
            if time.monotonic() > deadline:
                raise SegmentReadError(url, 0, str(getattr(exc, "reason", exc))) from exc
        time.sleep(_RETRY_EVERY_S)


class _HttpBytes:
    def __init__(self, url: str) -> None:
        self.name = url
        content_range, _ = _get(url, "bytes=0-0", 1)
        total = _TOTAL.fullmatch(content_range)
        if total is None:
            raise SegmentReadError(url, 0, "the answer does not say how long the segment is")
        self.size = int(total[1])

    def read(self, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            _, part = _get(self.name, f"bytes={position}-{position + size - 1}", size)
            if not part:
                raise SegmentReadError(self.name, position, "the segment ends here; it was longer when it was opened")
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __enter__(self) -> _HttpBytes:
        return self

    def __exit__(self, *_: object) -> None:
        pass  # each request has a connection of its own


class _StoredBytes:
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
