"""The file `muster.checkpoint`: what a partition's records amount to up to some offset, which loading need not read.

Magic "MCK1" | frames, each: payload bytes u32 | CRC-32C of the payload u32 | payload. The first payload is the head:
"<version of the payloads> <log id> <offset> <epoch>", ASCII; then come the parts of the state; an empty payload ends
the file. The log does not need it: a checkpoint that is damaged or does not fit the log is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import msgspec
import structlog
from crc32c import crc32c

from muster_coordinator.log.disk import Disk, create_file, read_fully, write_fully
from muster_coordinator.log.segments.partition_log import PartitionLog

logger = structlog.get_logger(__name__)

NAME = "muster.checkpoint"
MAKING_NAME = f"{NAME}.tmp"
MAGIC = b"MCK1"
_FRAME = Struct(">II")


class CheckpointHead(msgspec.Struct, frozen=True):
    """The state after all records below `offset`; `epoch`: of the last of them. `version`: of the parts."""

    version: int
    log_id: str
    offset: int
    epoch: int


def fits(head: CheckpointHead, log: PartitionLog) -> str:
    """The reason why the log does not go on from this checkpoint; "" if it does."""
    if not log.start_offset <= head.offset <= log.end_offset:
        return f"it is of offset {head.offset}, the log reaches from {log.start_offset} to {log.end_offset}"
    if head.offset < log.cleaned_to.tombstone_horizon:
        return f"tombstones up to {log.cleaned_to.tombstone_horizon} are gone, it is of offset {head.offset}"
    epoch = log.epochs.epoch_at(head.offset - 1)
    if epoch != head.epoch:
        return f"it has epoch {head.epoch} at offset {head.offset}, the log epoch {epoch}"
    return ""


def discard(disk: Disk, directory: Path) -> None:
    """Remove the log's checkpoint, durably: the log lost data. Raises OSError."""
    if NAME in disk.listdir(directory):
        disk.unlink(directory / NAME)
        disk.fsync_dir(directory)


class CheckpointWriter:
    """`add` the parts, then `publish`, or `discard`. In any thread, one call at a time. All raise OSError."""

    def __init__(self, disk: Disk, directory: Path, head: CheckpointHead) -> None:
        self._disk = disk
        self._directory = directory
        self._path = directory / MAKING_NAME
        self._descriptor = create_file(disk, self._path)
        self.size = 0
        self._write(MAGIC)
        self.add(f"{head.version} {head.log_id} {head.offset} {head.epoch}".encode("ascii"))

    def add(self, payload: bytes) -> None:
        self._write(_FRAME.pack(len(payload), crc32c(payload)) + payload)

    def publish(self) -> None:
        """Replace the previous checkpoint. Call it once the commit point has passed the offset of this one."""
        self.add(b"")
        self._disk.fdatasync(self._descriptor)
        self._close()
        self._disk.rename(self._path, self._directory / NAME)
        self._disk.fsync_dir(self._directory)

    def discard(self) -> None:
        """Does nothing after `publish`."""
        if self._descriptor >= 0:
            self._close()
            self._disk.unlink(self._path)

    def _write(self, data: bytes) -> None:
        write_fully(self._disk, self._descriptor, data, self.size)
        self.size += len(data)

    def _close(self) -> None:
        self._disk.close(self._descriptor)
        self._descriptor = -1


class CheckpointFile:
    """A checkpoint whose head was read. `close` it."""

    def __init__(self, disk: Disk, descriptor: int, size: int, head: CheckpointHead, position: int) -> None:
        """Use `open`."""
        self.head = head
        self.size = size
        self._disk = disk
        self._descriptor = descriptor
        self._position = position  # of the first part

    @classmethod
    def open(cls, disk: Disk, directory: Path) -> CheckpointFile | None:
        """Returns None if there is none, or none that can be read."""
        try:
            if NAME not in disk.listdir(directory):
                return None
            descriptor = disk.open(directory / NAME)
        except OSError as error:
            logger.warning("checkpoint_ignored", directory=str(directory), reason=str(error))
            return None
        try:
            return cls._open(disk, descriptor)
        except (OSError, ValueError) as error:
            disk.close(descriptor)
            logger.warning("checkpoint_ignored", directory=str(directory), reason=str(error))
            return None

    @classmethod
    def _open(cls, disk: Disk, descriptor: int) -> CheckpointFile:
        size = disk.size(descriptor)
        if read_fully(disk, descriptor, len(MAGIC), 0) != MAGIC:
            raise ValueError("no checkpoint: wrong magic")
        file = cls(disk, descriptor, size, CheckpointHead(0, "", 0, 0), len(MAGIC))
        payload, position = file._frame(len(MAGIC))
        version, log_id, offset, epoch = payload.decode("ascii").split(" ")
        return cls(disk, descriptor, size, CheckpointHead(int(version), log_id, int(offset), int(epoch)), position)

    def parts(self) -> Iterator[bytes]:
        """Every part. Raises ValueError where the file is damaged or cut off, OSError."""
        position = self._position
        while True:
            payload, position = self._frame(position)
            if not payload:
                return
            yield payload

    def _frame(self, position: int) -> tuple[bytes, int]:
        head = read_fully(self._disk, self._descriptor, _FRAME.size, position)
        start = position + _FRAME.size
        if len(head) < _FRAME.size:
            raise ValueError(f"cut off at byte {position}")
        size, checksum = _FRAME.unpack(head)
        if start + size > self.size:
            raise ValueError(f"cut off at byte {position}")
        payload = read_fully(self._disk, self._descriptor, size, start)
        if crc32c(payload) != checksum:
            raise ValueError(f"CRC-32C of the part at byte {position} does not match")
        return payload, start + size

    def close(self) -> None:
        self._disk.close(self._descriptor)
