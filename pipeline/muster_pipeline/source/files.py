"""Find the segments of an offsets or transaction topic, and cut them into splits that can be decoded on their own.

A directory on a disk may be in use, a snapshot that is mounted read-only, or an archive. Batches that a
pod has only in its journal are not in its directory: only the pod itself serves them (`pod_logs`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import InvalidURL
from pathlib import Path

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD
from muster_pipeline.decode.bytes_source import ByteSource
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.decode.fast_rows import Origin
from muster_pipeline.source.locations import is_pod, is_uri, list_uri, open_segment
from muster_pipeline.source.pod_logs import PodLog, served_logs
from muster_pipeline.source.topics import (
    BOTH_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_FIRST,
    TRANSACTIONS_TOPIC,
    partition_name,
)

DEFAULT_SPLIT_BYTES = 32 << 20
_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_DIRECTORY_NAME = re.compile(rf"({'|'.join(BOTH_TOPICS)})-(\d{{1,9}})")
_LOG_ID = re.compile(r"[0-9a-f]{32}")  # directories in the one of a partition, in an archive
_STORED_SEGMENT = re.compile(rf".*/{_DIRECTORY_NAME.pattern}/(?:[0-9a-f]{{32}}/)?(\d{{20}})\.log(?:\?.*)?")
_WALK_BYTES = 4 << 20


class InputError(PipelineError):
    """The given paths have nothing to read, or one partition twice."""


@dataclass(frozen=True, order=True)
class SegmentFile:
    """A segment. Both partitions are None if the file is in no directory of the two topics; it is read as one of
    offsets then."""

    path: str
    offsets_partition: int | None
    base_offset: int
    transaction_partition: int | None = None

    @property
    def log(self) -> str:
        """The directory or URL that holds the segments of this log."""
        return self.path.rpartition("/")[0]

    @property
    def topic(self) -> str:
        return OFFSETS_TOPIC if self.transaction_partition is None else TRANSACTIONS_TOPIC

    @property
    def partition(self) -> int | None:
        """The partition in its topic."""
        return self.offsets_partition if self.transaction_partition is None else self.transaction_partition

    @property
    def number(self) -> int | None:
        """The number that a pod knows the partition by."""
        first = 0 if self.transaction_partition is None else TRANSACTIONS_FIRST
        return None if self.partition is None else first + self.partition

    def origin(self, position: int = 0) -> Origin:
        return Origin(self.path, self.offsets_partition, self.transaction_partition, position)


@dataclass(frozen=True)
class Split:
    """The batches of `segment` that begin from byte `start` on and before byte `end`; None: to its end."""

    segment: SegmentFile
    start: int
    end: int | None
    size: int


def find_segments(
    paths: Iterable[str], topics: Collection[str] = (OFFSETS_TOPIC,), *, may_be_none: bool = False
) -> list[SegmentFile]:
    """Segments of these topics in the paths, each a segment file, a directory `__consumer_offsets-<n>` or
    `__transaction_state-<n>`, a directory of those, an archive, or a URL that `locations` knows; sorted by path. Of
    several pods with a replica of one partition, the first one that serves it is read. Raises InputError: none
    found, unless there may be none; one partition in two directories. SegmentReadError: a pod does not answer; they
    do not serve all they have, unless there may be none.
    """
    given = list(paths)
    pods = [path for path in given if is_pod(path)]
    found: list[SegmentFile] = []
    with _named(", ".join(pods)):
        for log in served_logs(pods, wait=not may_be_none):
            found += _segments_of(log)
    for path in given:
        if not is_pod(path):
            with _named(path):
                found += _stored(path) if is_uri(path) else _under(Path(path))
    found = [each for each in found if each.topic in topics]
    if not found and not may_be_none:
        raise InputError(f"no segments of {' or '.join(topics)} under {', '.join(given) or 'no path'}")
    _refuse_two_logs(found)
    return sorted(set(found))


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Yield the segments at a path of this machine. Raises InputError, which names the path."""
    try:
        yield
    except (OSError, ValueError, InvalidURL) as exc:  # ValueError: no URI that pyarrow knows, no URL
        reason = getattr(exc, "strerror", None) or exc
        raise InputError(f"{getattr(exc, 'filename', None) or path}: {reason}") from exc


def _segments_of(log: PodLog) -> list[SegmentFile]:
    place = _place_of_number(log.partition)
    return [_segment(f"{log.home}/{base}", place, base) for base in log.base_offsets]


def _segment(path: str, place: tuple[str, int] | None, base_offset: int) -> SegmentFile:
    topic, partition = place or (OFFSETS_TOPIC, None)
    if topic == OFFSETS_TOPIC:
        return SegmentFile(path, partition, base_offset)
    return SegmentFile(path, None, base_offset, partition)


def _stored(address: str) -> Iterator[SegmentFile]:
    for uri in list_uri(address):
        match = _STORED_SEGMENT.fullmatch(uri)
        if match is not None:
            yield _segment(uri, (match[1], int(match[2])), int(match[3]))


def _under(path: Path) -> Iterator[SegmentFile]:
    if path.is_file():
        match = _SEGMENT_NAME.fullmatch(path.name)
        if match is None:
            raise InputError(f"{path}: not named like a segment (20 digits and .log)")
        yield _segment(str(path), _place_of(path.parent), int(match[1]))
    elif path.is_dir():
        yield from _in_directory(path)
    else:
        raise InputError(f"{path}: no such file or directory")


def _in_directory(path: Path) -> Iterator[SegmentFile]:
    directories = [path] if _holds_segments(path) else sorted(each for each in path.iterdir() if each.is_dir())
    for directory in directories:
        place = _place_of(directory)
        if place is None and directory is not path:
            continue  # of another topic, or none
        archived = [each for each in directory.iterdir() if _LOG_ID.fullmatch(each.name)]
        for file in sorted(file for each in (directory, *archived) for file in each.iterdir()):
            match = _SEGMENT_NAME.fullmatch(file.name)
            if match is not None:
                yield _segment(str(file), place, int(match[1]))


def _holds_segments(path: Path) -> bool:
    return any(_SEGMENT_NAME.fullmatch(each.name) for each in path.iterdir())


def log_origin(home: str) -> Origin:
    """The origin of a log as a whole, by its directory's name or its pod's address."""
    if is_pod(home):
        number = home.rpartition("/")[2]
        return _segment(home, _place_of_number(int(number)) if number.isdigit() else None, 0).origin()
    return _segment(home, _place_of(Path(home)), 0).origin()


def _place_of_number(number: int) -> tuple[str, int]:
    topic, _, partition = partition_name(number).rpartition("-")
    return topic, int(partition)


def _place_of(directory: Path) -> tuple[str, int] | None:
    """(topic, partition)."""
    home = directory.resolve()
    match = _DIRECTORY_NAME.fullmatch(home.parent.name if _LOG_ID.fullmatch(home.name) else home.name)
    return (match[1], int(match[2])) if match else None


def _refuse_two_logs(found: list[SegmentFile]) -> None:
    homes: dict[int, str] = {}
    for segment in found:
        if segment.number is None:
            continue
        home = segment.log if is_uri(segment.path) else str(Path(segment.log).resolve())
        other = homes.setdefault(segment.number, home)
        if other != home:
            raise InputError(f"{partition_name(segment.number)} is in {other} and in {home}: name one of them")


def whole_batches(source: ByteSource, position: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (byte, size) of the batches from `position` on, by the lengths in their headers.

    Neither CRC nor content is checked. Ends at a length that cannot be, and at a batch that the file cuts off.
    """
    chunk: bytes | memoryview = b""
    chunk_start = position
    while source.size - position >= HEADER_BYTES:
        at = position - chunk_start
        if at + LENGTH_OVERHEAD > len(chunk):
            chunk_start, at = position, 0
            chunk = source.read(position, min(_WALK_BYTES, source.size - position))
        size = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD
        if size < HEADER_BYTES or size > source.size - position:
            return
        yield position, size
        position += size


def split_points(source: ByteSource, split_bytes: int, start: int = 0, end: int | None = None) -> list[int]:
    """Return starts of batches that are at least `split_bytes` apart, the first at `start`, all before `end`.

    At a length that cannot be, the last split goes on, and the decoder says what is wrong there.
    """
    points = [start]
    for position, _ in whole_batches(source, start):
        if end is not None and position >= end:
            break
        if position - points[-1] >= split_bytes:
            points.append(position)
    return points


def splits_of(segment: SegmentFile, split_bytes: int, start: int = 0, end: int | None = None) -> Iterator[Split]:
    """Yield splits from byte `start`, where a batch begins, to `end` or the file's end. Raises SegmentReadError."""
    with open_segment(segment.path) as source:
        stop = source.size if end is None else end
        points = [start] if stop - start <= split_bytes else split_points(source, split_bytes, start, end)
        for first, last in zip(points, [*points[1:], end], strict=True):
            yield Split(segment, first, last, (stop if last is None else last) - first)


def splits(segments: Iterable[SegmentFile], split_bytes: int = DEFAULT_SPLIT_BYTES) -> Iterator[Split]:
    """Yield the splits of all segments, in order. Raises SegmentReadError."""
    for segment in segments:
        yield from splits_of(segment, split_bytes)


def pack(all_splits: Iterable[Split], split_bytes: int = DEFAULT_SPLIT_BYTES) -> list[list[Split]]:
    """Group neighbouring splits until `split_bytes` are reached, so that fifty small files are one task."""
    packed: list[list[Split]] = []
    room = 0
    for split in all_splits:
        if not packed or split.size > room:
            packed.append([])
            room = split_bytes
        packed[-1].append(split)
        room -= split.size
    return packed
