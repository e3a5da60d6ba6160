"""Copies of closed segments, made before compaction takes records out of them.

`Archive` is the port; `DirectoryArchive` puts files into a directory, an object store can stand in its place. Names
are `__consumer_offsets-<p>/<log id>/<20 digits>.log`: a copy is of one replica's log, replicas do not share files. Nor
do the logs that a replica had one after the other, which may differ: that of the second one are in `<log id>/1`, and so
on.

Up to where a log is archived stands in `muster.archive` in its directory (`marks`). That is written when the copy
is complete, verified and durable, so an interrupted copy is simply made again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

from muster_coordinator.log.disk import Disk, create_file, read_fully, replace_file, write_fully
from muster_coordinator.log.number_file import encode_numbers, read_numbers
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.segments.segment import Segment

STATE_NAME = "muster.archive"
STEP_BYTES = 256 << 10


class ArchiveConflictError(Exception):
    """The archive holds something else under the name of a segment. Nothing in it is ever overwritten."""


class Upload(Protocol):
    """A file on its way into the archive. Every method raises OSError."""

    def write(self, data: bytes) -> None: ...

    def read(self, size: int, position: int) -> bytes:
        """Reads back what was written so far; less at the end."""
        ...

    def finish(self) -> None:
        """All of it is in the archive, durably, from now on; before, nothing of it is."""
        ...

    def abandon(self) -> None:
        """Does nothing after `finish`."""
        ...


class Archive(Protocol):
    """Files by name, never changed once they are there. Every method raises OSError."""

    def read(self, name: str, size: int, position: int) -> bytes | None:
        """Less at the end of the file; None if there is no such file."""
        ...

    def begin(self, name: str) -> Upload: ...


class DirectoryArchive:
    """An `Archive` in a directory of the file system."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root

    def read(self, name: str, size: int, position: int) -> bytes | None:
        path = self._root / name
        try:
            descriptor = self._disk.open(path)
        except FileNotFoundError:
            return None
        try:
            return read_fully(self._disk, descriptor, size, position)
        finally:
            self._disk.close(descriptor)

    def begin(self, name: str) -> Upload:
        path = self._root / name
        self._disk.mkdir(path.parent)
        return _FileUpload(self._disk, self._root, path)


class _FileUpload:
    def __init__(self, disk: Disk, root: Path, path: Path) -> None:
        self._disk = disk
        self._root = root
        self._path = path
        self._making = path.with_name(f"{path.name}.part")
        self._descriptor = create_file(disk, self._making)
        self._size = 0

    def write(self, data: bytes) -> None:
        write_fully(self._disk, self._descriptor, data, self._size)
        self._size += len(data)

    def read(self, size: int, position: int) -> bytes:
        return read_fully(self._disk, self._descriptor, size, position)

    def finish(self) -> None:
        self._disk.fdatasync(self._descriptor)
        self._close()
        self._disk.rename(self._making, self._path)
        directory = self._path.parent
        self._disk.fsync_dir(directory)
        while directory != self._root:  # they may be new as well
            directory = directory.parent
            self._disk.fsync_dir(directory)

    def abandon(self) -> None:
        if self._descriptor >= 0:
            self._close()
            self._disk.unlink(self._making)

    def _close(self) -> None:
        self._disk.close(self._descriptor)
        self._descriptor = -1


def archived_to(disk: Disk, directory: Path) -> int:
    """The offset up to which the log in `directory` is archived. Raises DamagedLogError, OSError."""
    mark = read_numbers(disk, directory / STATE_NAME, 1)
    return mark[0] if mark is not None else 0


def archive_segment(
    disk: Disk, archive: Archive, log: PartitionLog, log_name: str, segment: Segment, end_offset: int
) -> Generator[int, None, None]:
    """Copy one closed segment, then note that the log is archived up to its `end_offset`. To be run step by step, in
    any thread; each step yields the bytes that it moved.

    Raises DamagedLogError (it is not copied then), ArchiveConflictError, OSError.
    """
    name = f"{log.directory.name}/{log_name}/{segment.path.name}"
    if archive.read(name, 1, 0) is None:
        upload = archive.begin(name)
        try:
            for data in _contents(log, segment, end_offset):
                upload.write(data)
                yield len(data)
            yield from _compare(log, segment, end_offset, name, upload.read)
            upload.finish()
        finally:
            upload.abandon()
    else:
        yield from _compare(
            log, segment, end_offset, name, lambda size, position: archive.read(name, size, position) or b""
        )
    replace_file(disk, log.directory / STATE_NAME, encode_numbers(end_offset))
    disk.fsync_dir(log.directory)


class _Read(Protocol):
    def __call__(self, size: int, position: int) -> bytes: ...


def _compare(log: PartitionLog, segment: Segment, end_offset: int, name: str, read: _Read) -> Iterator[int]:
    position = 0
    for data in _contents(log, segment, end_offset):
        if read(len(data), position) != data:
            raise ArchiveConflictError(f"{name} in the archive differs from {segment.path} at byte {position}")
        position += len(data)
        yield len(data)
    if read(1, position):
        raise ArchiveConflictError(f"{name} in the archive is longer than {segment.path}")


def _contents(log: PartitionLog, segment: Segment, end_offset: int) -> Iterator[bytes]:
    """The segment in pieces of whole batches, each of which was checked."""
    piece: list[bytes] = []
    size = 0
    for batch in log.batches_of(segment, end_offset):
        piece.append(batch.data)
        size += len(batch.data)
        if size >= STEP_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
