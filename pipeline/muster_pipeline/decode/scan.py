"""Where the batches of a window of a segment lie, and which stretches of it are none.

Every batch is found by the length of the one before, never by searching for something that looks like a batch: the
bytes inside a batch come from clients, who could plant one. So behind a batch whose length cannot be trusted the rest
of the file is unreadable, and is reported as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from crc32c import crc32c

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD
from muster_pipeline.decode.schema import Problem

__all__ = ["Damage", "Scan", "claimed_size", "header_problem", "scan"]

CRC_START = 21
MAGIC = 2
_HEAD = Struct(">iibI")  # length, leader epoch, magic, CRC; at byte 8 of a batch


@dataclass(frozen=True)
class Damage:
    """``position`` within the window or the file, as the holder says; ``size`` in bytes, to the end of the file if
    ``to_end``.
    """

    position: int
    size: int
    problem: str
    detail: str
    to_end: bool = False


@dataclass
class Scan:
    """``consumed``: bytes from the start of the window that are dealt with; what is left needs a longer window."""

    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    consumed: int = 0


def claimed_size(data: bytes | memoryview, position: int) -> int:
    """Of the batch at ``position``, as its header says; a header's at least."""
    if len(data) - position < LENGTH_OVERHEAD:
        return HEADER_BYTES
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    return max(HEADER_BYTES, length + LENGTH_OVERHEAD)


def header_problem(size: int, magic: int, available: int, max_batch_bytes: int) -> tuple[str, str, bool] | None:
    """(problem, detail, whether all behind it is unreadable as well) of a batch of which ``available`` bytes of the
    file are left.
    """
    if size < HEADER_BYTES:
        return Problem.BAD_HEADER, f"length {size - LENGTH_OVERHEAD} is less than a batch header", True
    if size > available:
        if magic != MAGIC:
            return Problem.UNREADABLE_MAGIC, f"magic {magic}, and a batch of {size} bytes where {available} are", True
        return Problem.TORN_BATCH, f"batch of {size} bytes, {available} are there", True
    if magic != MAGIC:
        return Problem.UNREADABLE_MAGIC, f"magic {magic}, expected {MAGIC}", False
    if size > max_batch_bytes:
        return Problem.TOO_LARGE, f"batch of {size} bytes, the limit is {max_batch_bytes}", False
    return None


def scan(data: bytes | memoryview, file_left: int, max_batch_bytes: int, stop: int) -> Scan:
    """Find and check the batches of ``data`` that begin before byte ``stop``. From the start of ``data`` on the file
    has ``file_left`` bytes: all of ``data``, or more.

    Ends at the first batch that the window does not hold whole, or with a Damage that reaches to the end of the file.
    """
    found = Scan()
    add_position = found.positions.append
    add_size = found.sizes.append
    view = memoryview(data)
    end = len(data)
    unpack = _HEAD.unpack_from
    position = 0
    while end - position >= HEADER_BYTES and position < stop:
        length, _, magic, crc = unpack(data, position + 8)
        size = length + LENGTH_OVERHEAD
        if magic == MAGIC and HEADER_BYTES <= size <= end - position and size <= max_batch_bytes:
            if crc32c(view[position + CRC_START : position + size]) == crc:
                add_position(position)
                add_size(size)
            else:
                found.damages.append(Damage(position, size, Problem.BAD_CRC, "CRC-32C does not match"))
            position += size
            continue
        wrong = header_problem(size, magic, file_left - position, max_batch_bytes)
        if wrong is None:
            break  # a good header; the batch goes on behind the window
        problem, detail, to_end = wrong
        found.damages.append(Damage(position, file_left - position if to_end else size, problem, detail, to_end))
        if to_end:
            position = file_left
            break
        position += size  # possibly behind the window
    else:
        if 0 < file_left - position < HEADER_BYTES and position < stop:
            detail = f"{file_left - position} bytes are no batch header"
            found.damages.append(Damage(position, file_left - position, Problem.TORN_BATCH, detail, to_end=True))
            position = file_left
    found.consumed = position
    return found
