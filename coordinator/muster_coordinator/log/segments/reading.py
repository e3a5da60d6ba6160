"""Reading a log's segments: whole batches, from files and from what waits in memory.

What is read is fixed when a reader is made, on the event loop; it may then be read in another thread while the log
grows, is flushed or cleaned. Only a cut of the log makes a reader fail, or give less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.segment import INDEX_INTERVAL_BYTES, Segment, has_valid_crc
from muster_coordinator.log.segments.sync import Holds
from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD, CorruptBatchError, RecordBatch, read_batch

MAX_OFFSET = 2**63 - 1

RawBatch: TypeAlias = tuple[int, int, int, bytes]
"""(base offset, end offset, leader epoch, bytes)."""


def segment_index(segments: list[Segment], offset: int) -> int:
    """Index of the segment that holds `offset`."""
    return max(bisect_right(segments, offset, key=lambda s: s.base_offset) - 1, 0)


def read_batches(segments: list[Segment], holds: Holds, start_offset: int, chunk_bytes: int) -> Iterator[RecordBatch]:
    """Every batch from the one that holds `start_offset` to the present end. Raises DamagedLogError, OSError."""
    # All of it now: a batch that is flushed meanwhile must not come twice.
    parts = [(s, s.size, s.pending_from(start_offset)) for s in segments[segment_index(segments, start_offset) :]]
    position = parts[0][0].position_near(start_offset)
    ends = _file_ends(parts)
    with holds:
        for index, (segment, size, pending) in enumerate(parts):
            if index or not _begins_at_or_before(pending, start_offset):  # else a follower goes on from memory
                yield from batches_of(segment, size, position, chunk_bytes, start_offset, ends[index])
            for data in pending:
                yield read_batch(data)
            position = 0


def _file_ends(parts: list[tuple[Segment, int, list[bytes]]]) -> list[int]:
    """An offset for each segment, at or below which the last batch in its file ends."""
    ends: list[int] = []
    for index, (_, _, pending) in enumerate(parts):
        after = parts[index + 1][0].base_offset if index + 1 < len(parts) else MAX_OFFSET
        ends.append(_base_offset(pending[0]) if pending else after)
    return ends


def batches_of(
    segment: Segment, size: int, position: int, chunk_bytes: int, start_offset: int = 0, end_offset: int = MAX_OFFSET
) -> Iterator[RecordBatch]:
    """Every batch between two positions of a segment's file, in bytes, but for those that end at or before
    `start_offset`, which are not looked at. All end at or before `end_offset`. Raises DamagedLogError, OSError."""
    expected = segment.base_offset
    while position < size:
        chunk = _read_chunk(segment, position, size, chunk_bytes)
        expected = _check_order(segment, chunk, position, size, expected, end_offset)
        at = 0
        while at < len(chunk):
            skipped = start_offset and _length_before(chunk, at, start_offset)
            if skipped:
                at += skipped
                continue
            try:
                batch = read_batch(chunk, at)
            except CorruptBatchError as exc:
                if exc.truncated and at and position + len(chunk) < size:
                    break
                raise DamagedLogError(segment.path, position + at, exc.reason) from exc
            yield batch
            at += len(batch.data)
        position += at


def _length_before(chunk: bytes, at: int, start_offset: int) -> int:
    """Size in bytes of the batch that begins `at` in `chunk` if it ends at or before `start_offset`, else 0."""
    if len(chunk) - at < HEADER_BYTES or _base_offset(chunk[at : at + 8]) >= start_offset:
        return 0
    end_offset = _raw(chunk[at : at + HEADER_BYTES])[1]
    length = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD
    whole = chunk[at + 16] == 2 and HEADER_BYTES <= length <= len(chunk) - at
    return length if whole and end_offset <= start_offset else 0


def _check_order(segment: Segment, chunk: bytes, position: int, size: int, expected: int, end_offset: int) -> int:
    """Offset after the last whole batch of the chunk. Raises DamagedLogError where batches are not in their order: the
    CRC of each does not tell that a write has landed at the place of another one.

    What compaction has removed leaves gaps, so it is what comes behind that tells: before any of a chunk is used, all
    of it is looked at.
    """
    at, has_gap = 0, False
    while len(chunk) - at >= HEADER_BYTES:
        length = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD
        if chunk[at + 16] != 2 or length < HEADER_BYTES or position + at + length > size:
            if has_gap:
                raise DamagedLogError(segment.path, position + at, "no batch here, and others are missing before it")
            break  # its reader says so, if it comes so far
        base = _base_offset(chunk[at : at + 8])
        end = base + int.from_bytes(chunk[at + 23 : at + 27], "big", signed=True) + 1
        if base < expected or end > end_offset:
            reason = f"the batch at offset {base} is not between {expected} and {end_offset}"
            raise DamagedLogError(segment.path, position + at, reason)
        if at + length > len(chunk):
            break
        has_gap |= base > expected
        expected = end
        at += length
    return expected


def _begins_at_or_before(pending: list[bytes], offset: int) -> bool:
    return bool(pending) and _base_offset(pending[0]) <= offset


def _read_chunk(segment: Segment, position: int, size: int, chunk_bytes: int) -> bytes:
    """Reads at least one whole batch, if there is one."""
    chunk = segment.read(min(chunk_bytes, size - position), position)
    if len(chunk) >= HEADER_BYTES:
        first = int.from_bytes(chunk[8:12], "big", signed=True) + LENGTH_OVERHEAD
        if len(chunk) < first <= size - position:
            chunk = segment.read(first, position)
    return chunk


class RangeReader:
    """Reads [start, end) as it is sent to other replicas: whole batches from the one that holds `start` on, at least
    one and about `bytes_max`; `run` returns the end of the range and its batches. The range ends after the last
    one, or at the end of the log where none follows.
    """

    def __init__(self, segments: list[Segment], holds: Holds, start: int, end: int, bytes_max: int) -> None:
        self._start = start
        self._end = end
        self._bytes_max = bytes_max
        self._holds = holds
        later = segments[segment_index(segments, start) :]
        self._parts = [(s, s.size, s.pending_from(start)) for s in later]
        self._ends = _file_ends(self._parts)
        self.in_memory = _begins_at_or_before(self._parts[0][2], start)
        """True if nothing has to be read from a file."""
        holds.__enter__()

    def run(self) -> tuple[int, list[RawBatch]]:
        """Read. Call it once, in any thread. Raises OSError, and DamagedLogError if a file has no batch there, or one
        whose CRC does not match: every receiver would refuse it, each time anew.
        """
        found: list[RawBatch] = []
        try:
            left = self._bytes_max
            for (segment, size, pending), end in zip(self._parts, self._ends, strict=True):
                for batch in self._batches(segment, size, pending, left, min(end, self._end)):
                    if found and len(batch[3]) > left:
                        return found[-1][1], found
                    found.append(batch)
                    left -= len(batch[3])
            return self._end, found
        finally:
            self._holds.__exit__()

    def _batches(self, segment: Segment, size: int, pending: list[bytes], left: int, end: int) -> Iterator[RawBatch]:
        if not self.in_memory:
            yield from self._file_batches(segment, size, left, end)
        for data in pending:
            yield _raw(data)

    def _file_batches(self, segment: Segment, size: int, left: int, end: int) -> Iterator[RawBatch]:
        position = segment.position_near(self._start) if segment is self._parts[0][0] else 0
        chunk_bytes = max(left, 0) + INDEX_INTERVAL_BYTES
        expected = segment.base_offset
        while position < size:
            chunk = _read_chunk(segment, position, size, chunk_bytes)
            expected = _check_order(segment, chunk, position, size, expected, end)
            at = 0
            while len(chunk) - at >= HEADER_BYTES:
                length = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD
                if chunk[at + 16] != 2 or length < HEADER_BYTES or position + at + length > size:
                    raise DamagedLogError(segment.path, position + at, "no batch here")
                if at + length > len(chunk):
                    break
                raw = _raw(chunk[at : at + length])
                if raw[1] > self._start:
                    if not has_valid_crc(raw[3]):
                        reason = f"CRC-32C of the batch at offset {raw[0]} does not match"
                        raise DamagedLogError(segment.path, position + at, reason)
                    yield raw
                at += length
            if not at:
                raise DamagedLogError(segment.path, position, "no batch here")
            position += at


def _base_offset(data: bytes) -> int:
    return int.from_bytes(data[:8], "big", signed=True)


def _raw(data: bytes) -> RawBatch:
    base = _base_offset(data)
    last_delta = int.from_bytes(data[23:27], "big", signed=True)
    return base, base + last_delta + 1, int.from_bytes(data[12:16], "big", signed=True), data
