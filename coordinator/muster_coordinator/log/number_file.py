"""Small text files that hold a few offsets of a log: one line, "1 <number>... <CRC-32C of what is before, hex>"."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from muster_coordinator.log.disk import Disk, read_whole_file
from muster_coordinator.log.errors import DamagedLogError

_VERSION = 1


def encode_numbers(*offsets: int) -> bytes:
    text = " ".join(map(str, (_VERSION, *offsets))).encode("ascii")
    return b"%b %08x\n" % (text, crc32c(text))


def read_numbers(disk: Disk, path: Path, count: int) -> tuple[int, ...] | None:
    """Returns None if there is no such file. Raises DamagedLogError, OSError."""
    if path.name not in disk.listdir(path.parent):
        return None
    text, _, checksum = read_whole_file(disk, path).strip().rpartition(b" ")
    if checksum != b"%08x" % crc32c(text):
        raise DamagedLogError(path, 0, "unreadable: CRC-32C does not match")
    version, *offsets = map(int, text.split(b" "))
    if version != _VERSION or len(offsets) != count:
        raise DamagedLogError(path, 0, f"unknown version {version}")
    return tuple(offsets)
