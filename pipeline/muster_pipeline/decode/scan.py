"""Finds the batches in a window of a segment, and the bytes of it that are no batch.

Every batch is found by the length of the one before, never by searching for something that looks like a batch: the
bytes inside a batch come from clients, who could plant one. So behind a batch whose length cannot be trusted the rest
of the file is unreadable, and is reported as such.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from struct import Struct

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD
from muster_pipeline.decode.columns import Ints
from muster_pipeline.decode.schema import Problem

CRC_START = 21
MAGIC = 2
MAGIC_AT = 16
_LENGTH = Struct(">8xi")
_HEAD = np.dtype({"names": ["magic", "crc"], "formats": ["u1", ">u4"], "offsets": [MAGIC_AT, 17], "itemsize": 21})


@dataclass(frozen=True)
class Damage:
    """`position` within the window or the file, as the holder says; `size` in bytes, to the end of the file if
    `to_end`.
    """

    position: int
    size: int
    problem: str
    detail: str
    to_end: bool = False


@dataclass(frozen=True)
class Scan:
    """`positions` and `sizes` of the right batches; `consumed`: bytes from the start of the window that are dealt
    with; what is left needs a longer window.
    """

    positions: Ints
    sizes: Ints
    damages: list[Damage]
    consumed: int


def claimed_size(data: bytes | memoryview, position: int) -> int:
    """Return the size of the batch at `position` from its header, at least that of a header."""
    if len(data) - position < LENGTH_OVERHEAD:
        return HEADER_BYTES
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    return max(HEADER_BYTES, length + LENGTH_OVERHEAD)


def header_problem(size: int, magic: int, available: int, max_batch_bytes: int) -> tuple[str, str, bool] | None:
    """(problem, detail, whether all behind it is unreadable as well) of a batch of which `available` bytes of the
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
    """Find and check the batches of `data` that begin before byte `stop`. From the start of `data` on the file
    has `file_left` bytes: all of `data`, or more.

    Ends at the first batch that the window does not hold whole, or with a Damage that reaches to the end of the file.
    """
    starts, crcs, position = _chain(data, stop)
    at = np.array(starts, np.int64)
    size = np.diff(at, append=position)
    heads = _heads(data, at)
    wrong = (heads["magic"] != MAGIC) | (heads["crc"] != np.array(crcs, np.uint32)) | (size > max_batch_bytes)
    damages: list[Damage] = []
    if wrong.any():
        for index in np.flatnonzero(wrong).tolist():
            start, bytes_, magic = starts[index], int(size[index]), int(heads["magic"][index])
            problem = header_problem(bytes_, magic, bytes_, max_batch_bytes)
            code, detail, _ = problem or (Problem.BAD_CRC, "CRC-32C does not match", False)
            damages.append(Damage(start, bytes_, code, detail))
        at, size = at[~wrong], size[~wrong]
    if position < min(stop, file_left):
        position = _after_chain(data, position, file_left, max_batch_bytes, damages)
    return Scan(at, size, damages, position)


def _chain(data: bytes | memoryview, stop: int) -> tuple[array[int], array[int], int]:
    """Return (starts, CRCs, position after the last) of the batches that are whole in `data` and have a valid length.

    With one record in a batch, as light load leaves them, this loop is half of the decoder.
    """
    starts, crcs = array("q"), array("I")
    add_start, add_crc, unpack, checksum = starts.append, crcs.append, _LENGTH.unpack_from, crc32c
    view = memoryview(data)
    end = len(data)
    last = min(stop, end - HEADER_BYTES + 1)
    position = 0
    while position < last:
        behind = position + unpack(data, position)[0] + LENGTH_OVERHEAD
        if behind > end or behind < position + HEADER_BYTES:
            break
        add_start(position)
        add_crc(checksum(view[position + CRC_START : behind]))
        position = behind
    return starts, crcs, position


def _heads(data: bytes | memoryview, at: Ints) -> NDArray[np.void]:
    """Return the fields of `_HEAD` of the batches at `at`."""
    places = max(0, len(data) - HEADER_BYTES + 1)
    return np.ndarray((places,), f"V{_HEAD.itemsize}", data, strides=(1,))[at].view(_HEAD)


def _after_chain(
    data: bytes | memoryview, position: int, file_left: int, max_batch_bytes: int, damages: list[Damage]
) -> int:
    """Handle the first batch that is not whole in `data`: add its damage, and return up to where bytes are consumed."""
    if len(data) - position < HEADER_BYTES:
        if 0 < file_left - position < HEADER_BYTES:
            detail = f"{file_left - position} bytes are no batch header"
            damages.append(Damage(position, file_left - position, Problem.TORN_BATCH, detail, to_end=True))
            return file_left
        return position
    size = _LENGTH.unpack_from(data, position)[0] + LENGTH_OVERHEAD
    wrong = header_problem(size, data[position + MAGIC_AT], file_left - position, max_batch_bytes)
    if wrong is None:
        return position  # a good header; the batch goes on behind the window
    problem, detail, to_end = wrong
    damages.append(Damage(position, file_left - position if to_end else size, problem, detail, to_end))
    return file_left if to_end else position + size  # possibly behind the window
