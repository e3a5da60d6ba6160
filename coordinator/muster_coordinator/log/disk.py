"""The only door from the log to files.

Everything that is written goes through a `Disk`, so that a simulation can lose, tear or refuse writes. Calls block;
results are checked here: a write that comes back short is carried on, and one that makes no progress is an error.
A file that cannot be opened because no descriptor is left is tried again: that is no failure of the disk.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol, TypeVar

import structlog

from muster_coordinator.log.direct import DirectWriter
from muster_coordinator.tuning.descriptors import NO_DESCRIPTOR, SpareDescriptors
from muster_coordinator.tuning.pacing import POLL_S, Rest
from muster_coordinator.tuning.write_back import begin_write_back

logger = structlog.get_logger(__name__)

Result = TypeVar("Result")

_ZEROS = bytes(1 << 20)
DESCRIPTOR_WAIT_S = 30.0
"""Time that a thread waits for a descriptor before the disk counts as failed and another replica may lead: closed
connections give theirs back within milliseconds."""
GENTLE = Rest(1 / 3, longest_s=1.0)
"""The pace of `fill_with_zeros`, which leaves time for the writes of other processes to the same disk."""


class Disk(Protocol):
    """Files by path and descriptor. Every method raises OSError, but `begin_write_back`."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> int:
        """A descriptor for reading and writing; `create`: make it if it is not there. `direct`: it is for
        `pwritev_durably` alone, which goes past the page cache then, and may put zeros after what it writes.
        """
        ...

    def close(self, descriptor: int) -> None: ...

    def size(self, descriptor: int) -> int:
        """Length in bytes."""
        ...

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Up to `size` bytes; less at the end of the file."""
        ...

    def pwritev(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        """Returns how many bytes were written, possibly not all."""
        ...

    def pwritev_durably(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        """The same, and what was taken is on stable storage, with the metadata that is needed to read it
        (RWF_DSYNC).
        """
        ...

    def fdatasync(self, descriptor: int) -> None:
        """All that was written to the file is on stable storage, its length included."""
        ...

    def begin_write_back(self, descriptor: int, position: int, size: int) -> None:
        """Let the operating system begin to write what it has of these bytes, and do not wait for it. A hint, which
        raises nothing: what becomes of it is said by the next `fdatasync`.
        """
        ...

    def truncate(self, descriptor: int, size: int) -> None: ...

    def fill_with_zeros(self, descriptor: int, size: int, *, gently: bool = False) -> None:
        """Make the file `size` bytes of written zeros, durably, so that later writes in place need no metadata.
        `gently`: with rests, for the others that write to the disk meanwhile.
        """
        ...

    def mkdir(self, path: Path) -> None:
        """Parents too; one that is there is fine."""
        ...

    def listdir(self, path: Path) -> list[str]: ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces `target`."""
        ...

    def unlink(self, path: Path) -> None: ...

    def fsync_dir(self, path: Path) -> None:
        """Names made, renamed and removed in `path` are on stable storage."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Room on the file system, for a process without privileges."""
        ...


class OsDisk:
    """The operating system's files, in directories for this user alone, or of `directory_mode`. `spares`: what is given
    to files when no descriptor is left; then threads wait for one, but not the main thread, whose event loop closes
    connections."""

    def __init__(self, spares: SpareDescriptors | None = None, directory_mode: int = 0o700) -> None:
        self._direct: dict[int, DirectWriter] = {}
        self._spares = spares
        self._directory_mode = directory_mode

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = self._with_descriptor(lambda: os.open(path, flags, 0o644))
        if direct:
            self._direct[descriptor] = DirectWriter(descriptor)
        return descriptor

    def _with_descriptor(self, opens: Callable[[], Result]) -> Result:
        """Returns the result of `opens`, tried again when there was no descriptor for it. Raises OSError."""
        until_s = 0.0
        while True:
            try:
                result = opens()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                if self._spares is not None and self._spares.give():
                    continue
                now_s = monotonic()
                if not until_s:
                    logger.warning("no_descriptor_left", error=str(error))
                    until_s = now_s + DESCRIPTOR_WAIT_S
                if now_s >= until_s or threading.current_thread() is threading.main_thread():
                    raise
                sleep(POLL_S)
            else:
                return result

    def close(self, descriptor: int) -> None:
        self._direct.pop(descriptor, None)
        os.close(descriptor)
        if self._spares is not None and not self._spares.are_full:
            self._spares.fill()

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        return os.pread(descriptor, size, position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        return os.pwritev(descriptor, buffers, position)

    def pwritev_durably(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        direct = self._direct.get(descriptor)
        if direct is not None:
            return direct.write(buffers, position)
        return os.pwritev(descriptor, buffers, position, os.RWF_DSYNC)

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def begin_write_back(self, descriptor: int, position: int, size: int) -> None:
        begin_write_back(descriptor, position, size)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def fill_with_zeros(self, descriptor: int, size: int, *, gently: bool = False) -> None:
        for position in range(0, size, len(_ZEROS)):
            started_s = monotonic()
            write_fully(self, descriptor, _ZEROS[: size - position], position)
            if gently:
                os.fdatasync(descriptor)
                sleep(GENTLE.after(monotonic() - started_s))
        os.fsync(descriptor)

    def mkdir(self, path: Path) -> None:
        path.mkdir(self._directory_mode, parents=True, exist_ok=True)

    def listdir(self, path: Path) -> list[str]:
        return self._with_descriptor(lambda: os.listdir(path))

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def fsync_dir(self, path: Path) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = self._with_descriptor(lambda: os.open(path, flags))
        try:
            os.fsync(descriptor)
        finally:
            self.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize


def write_fully(disk: Disk, descriptor: int, data: bytes, position: int) -> None:
    """Write all of `data`. Raises OSError; then any part of it may have been written."""
    written = disk.pwritev(descriptor, (data,), position)
    while written < len(data):
        progress = disk.pwritev(descriptor, (data[written:],), position + written)
        if progress <= 0:
            raise OSError(errno.EIO, f"write stopped after {written} of {len(data)} bytes")
        written += progress


def write_fully_durably(disk: Disk, descriptor: int, data: bytes, position: int) -> None:
    """`write_fully`, and it is on stable storage."""
    written = disk.pwritev_durably(descriptor, (data,), position)
    while written < len(data):
        progress = disk.pwritev_durably(descriptor, (data[written:],), position + written)
        if progress <= 0:
            raise OSError(errno.EIO, f"write stopped after {written} of {len(data)} bytes")
        written += progress


def read_fully(disk: Disk, descriptor: int, size: int, position: int) -> bytes:
    """`size` bytes, less only at the end of the file."""
    data = disk.pread(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    have = len(data)
    while have < size:
        more = disk.pread(descriptor, size - have, position + have)
        if not more:
            break
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def read_whole_file(disk: Disk, path: Path) -> bytes:
    descriptor = disk.open(path)
    try:
        return read_fully(disk, descriptor, disk.size(descriptor), 0)
    finally:
        disk.close(descriptor)


def create_file(disk: Disk, path: Path) -> int:
    """Descriptor of a new file, which the caller renames when it is whole. Raises OSError.

    A file of this name that a start has found is removed, not written anew: where a power loss came in the middle of
    its rename, it is a second name of the file that has taken its place.
    """
    if path.name in disk.listdir(path.parent):
        disk.unlink(path)
    return disk.open(path, create=True)


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Put `data` under `path` at once and synced; the name is durable after `fsync_dir`. Raises OSError."""
    making = path.with_name(f"{path.name}.tmp")
    descriptor = create_file(disk, making)
    try:
        write_fully(disk, descriptor, data, 0)
        disk.fdatasync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(making, path)
