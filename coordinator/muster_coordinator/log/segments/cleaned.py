"""Cleaned segments: how they replace others, at run time and at start-up, and up to where a log is cleaned.

`muster.cleaner` holds end offset and tombstone horizon (`marks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk, replace_file
from muster_coordinator.log.number_file import encode_numbers, read_numbers
from muster_coordinator.log.segments.segment import segment_name, segment_offsets

logger = structlog.get_logger(__name__)

COMPACTING = ".compacting"
COMPACTED = ".compacted"
STATE_NAME = "muster.cleaner"
_SIDE_FILES = (".index", ".timeindex", ".txnindex")
"""Kafka's, of a segment that it wrote: they would not fit any more, and Kafka makes them anew."""


@dataclass(frozen=True)
class CleanedTo:
    """`end_offset`: segments below it may be cleaned. `tombstone_horizon`: tombstones and markers below it may be
    gone, so who has less of this log than that must not go on from there.
    """

    end_offset: int = 0
    tombstone_horizon: int = 0

    @classmethod
    def read(cls, disk: Disk, directory: Path) -> CleanedTo:
        """Raises DamagedLogError, OSError."""
        mark = read_numbers(disk, directory / STATE_NAME, 2)
        return cls(*mark) if mark is not None else cls()

    def write(self, disk: Disk, directory: Path) -> None:
        """Durably. Raises OSError."""
        replace_file(disk, directory / STATE_NAME, encode_numbers(self.end_offset, self.tombstone_horizon))
        disk.fsync_dir(directory)


def compacted_name(base_offset: int, end_offset: int) -> str:
    return f"{base_offset:020d}-{end_offset:020d}{COMPACTED}"


def put_in_place(disk: Disk, directory: Path, name: str) -> None:
    """Replace the segments that the compacted file stands for, durably. Raises OSError; to be repeated then."""
    base_offset, end_offset = (int(part) for part in name.removesuffix(COMPACTED).split("-"))
    names = disk.listdir(directory)
    replaced = [offset for offset in segment_offsets(names) if base_offset <= offset < end_offset]
    for offset in replaced:
        stem = segment_name(offset).removesuffix(".log")
        for suffix in _SIDE_FILES:
            if stem + suffix in names:
                disk.unlink(directory / (stem + suffix))
    for offset in replaced[1:]:
        disk.unlink(directory / segment_name(offset))
    disk.fsync_dir(directory)
    disk.rename(directory / name, directory / segment_name(base_offset))
    disk.fsync_dir(directory)


def finish_cleaning(disk: Disk, directory: Path) -> None:
    """Carries out at start-up what was decided, and removes what was not. Raises OSError."""
    for name in sorted(disk.listdir(directory)):
        if name.endswith(COMPACTED):
            logger.info("cleaning_finished", directory=str(directory), file=name)
            put_in_place(disk, directory, name)
        elif name.endswith(COMPACTING):
            disk.unlink(directory / name)
