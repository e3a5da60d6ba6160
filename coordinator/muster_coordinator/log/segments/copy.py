"""A whole copy of another replica's log, built beside the log that it will replace, and swapped in by renames.

The copy's files have the names that they will get, with `.copying` after. They are written without the journal and
synced before the swap, which goes in steps that a start carries on (`finish_swap`):

1. `muster.copy.decided` appears: from here on the copy is the log.
2. The old log's files go, with its checkpoint and the marks of cleaner and archive.
3. `muster.copy.decided` becomes `muster.copy.moving`; then the copy's files get their names.
4. `muster.copy.moving` becomes `muster.copy`, which stays: it counts the swaps, and says where the new log ends, of
   which the journal knows nothing yet, and below which no write can be lost any more. What the journal has of the log
   of before is told by that number from what it gets now.

Source: replication.md, "Loss, rebuild, start-up": a re-sync is built beside the log and swapped by rename.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk, replace_file, write_fully
from muster_coordinator.log.number_file import encode_numbers, read_numbers
from muster_coordinator.log.segments.cleaned import COMPACTED, COMPACTING, STATE_NAME
from muster_coordinator.log.segments.segment import SUFFIX, segment_name
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME, EpochCache

logger = structlog.get_logger(__name__)

COPYING = ".copying"
COUNT_NAME = "muster.copy"
DECIDED_NAME = f"{COUNT_NAME}.decided"
MOVING_NAME = f"{COUNT_NAME}.moving"
_OF_THE_LOG = (SUFFIX, ".index", ".timeindex", ".txnindex", COMPACTING, COMPACTED)
_MARKS = (CHECKPOINT_NAME, STATE_NAME, "muster.checkpoint", "muster.archive")


class LogCopy:
    """Begins empty. `append` and `skip_to` write into the page cache; `swap_in` blocks. All raise OSError."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int) -> None:
        _drop(disk, directory, COPYING)
        self.end_offset = 0
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._epochs = EpochCache()
        self._tail_end = 0  # what the files say of the end
        self._size = 0  # of the last segment
        self._descriptors = [self._open(0)]

    def _open(self, base_offset: int) -> int:
        return self._disk.open(self._directory / f"{segment_name(base_offset)}{COPYING}", create=True)

    def append(self, batch: bytes, base_offset: int, end_offset: int, leader_epoch: int) -> None:
        """A batch at or after the end."""
        if base_offset < self.end_offset:
            raise AssertionError(f"batch at {base_offset}, the copy of {self._directory} ends at {self.end_offset}")
        if self._size and self._size + len(batch) > self._segment_bytes:
            self._next_segment(base_offset)
        self._epochs.assign(leader_epoch, base_offset)
        write_fully(self._disk, self._descriptors[-1], batch, self._size)
        self._size += len(batch)
        self.end_offset = self._tail_end = end_offset

    def skip_to(self, offset: int) -> None:
        """The log goes on there; what lies in between was compacted away."""
        self.end_offset = offset

    def _next_segment(self, base_offset: int) -> None:
        self._descriptors.append(self._open(base_offset))
        self._size = 0

    def swap_in(self, horizon: int, count: int) -> None:
        """Put the copy in place of the log, durably. `horizon`: tombstones below it are missing; `count`: of
        the swaps, this one included.
        """
        if self._tail_end < self.end_offset:
            self._next_segment(self.end_offset)
        for descriptor in self._descriptors:
            self._disk.fdatasync(descriptor)
        self.close()
        directory = self._directory
        replace_file(self._disk, directory / f"{CHECKPOINT_NAME}{COPYING}", self._epochs.encode())
        replace_file(self._disk, directory / f"{STATE_NAME}{COPYING}", encode_numbers(0, horizon))
        self._disk.fsync_dir(directory)
        replace_file(self._disk, directory / DECIDED_NAME, encode_numbers(count, self.end_offset))
        self._disk.fsync_dir(directory)
        finish_swap(self._disk, directory)

    def close(self) -> None:
        """It is not written any more. What is there goes with the next copy, or start."""
        for descriptor in self._descriptors:
            self._disk.close(descriptor)
        self._descriptors = []


def finish_swap(disk: Disk, directory: Path) -> None:
    """Carry out what was decided, remove what was not. Raises OSError; to be repeated then."""
    names = disk.listdir(directory)
    if DECIDED_NAME in names:
        logger.info("log_swapped", directory=str(directory))
        _drop_log_files(disk, directory)
        disk.rename(directory / DECIDED_NAME, directory / MOVING_NAME)
        disk.fsync_dir(directory)
    if DECIDED_NAME in names or MOVING_NAME in names:
        for name in sorted(disk.listdir(directory)):
            if name.endswith(COPYING):
                disk.rename(directory / name, directory / name.removesuffix(COPYING))
        disk.fsync_dir(directory)
        disk.rename(directory / MOVING_NAME, directory / COUNT_NAME)
        disk.fsync_dir(directory)
    else:
        _drop(disk, directory, COPYING)


def _drop_log_files(disk: Disk, directory: Path) -> None:
    """Remove everything that is of one log and no other, durably."""
    for name in log_files(disk, directory):
        disk.unlink(directory / name)
    disk.fsync_dir(directory)


def log_files(disk: Disk, directory: Path) -> list[str]:
    """Names of everything that is of one log and no other, the last segment first."""
    names = sorted(disk.listdir(directory), reverse=True)
    return [name for name in names if name.endswith(_OF_THE_LOG) or name in _MARKS]


def swap_mark(disk: Disk, directory: Path) -> tuple[int, int]:
    """The number of logs that were in this directory before the present one, and where the present one ended when it
    replaced the last of them, or was cut since; (0, -1) for the first one. Raises DamagedLogError, OSError."""
    mark = read_numbers(disk, directory / COUNT_NAME, 2)
    return (mark[0], mark[1]) if mark is not None else (0, -1)


def swap_count(disk: Disk, directory: Path) -> int:
    """The number of `swap_mark`. Raises DamagedLogError, OSError."""
    return swap_mark(disk, directory)[0]


def copied_to(disk: Disk, directory: Path) -> int:
    """The offset up to which the present log is as it was swapped in, all of it durable then: no offset that is missing
    below it is a write that was lost. -1 for a log that was no copy. Raises DamagedLogError, OSError."""
    return swap_mark(disk, directory)[1]


def lower_mark(disk: Disk, directory: Path, offset: int) -> None:
    """The log is cut at `offset`: what is appended there was not copied. Durable when this returns. Raises
    DamagedLogError, OSError."""
    count, end_offset = swap_mark(disk, directory)
    if end_offset > offset:
        replace_file(disk, directory / COUNT_NAME, encode_numbers(count, offset))
        disk.fsync_dir(directory)


def mark_empty_log(disk: Disk, directory: Path, count: int) -> None:
    """The present log is the one after `count` others, and empty; durably. Raises OSError."""
    replace_file(disk, directory / COUNT_NAME, encode_numbers(count, 0))
    disk.fsync_dir(directory)


def _drop(disk: Disk, directory: Path, suffix: str) -> None:
    for name in disk.listdir(directory):
        if name.endswith(suffix):
            disk.unlink(directory / name)
