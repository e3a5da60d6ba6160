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
    with holds:
        for index, (segment, size, pending) in enumerate(parts):
            if index or not _begins_at_or_before(pending, start_offset):  # else a follower goes on from memory
                yield from batches_of(segment, size, position, chunk_bytes, start_offset)
            for data in pending:
                yield read_batch(data)
            position = 0


def batches_of(
    segment: Segment, size: int, position: int, chunk_bytes: int, start_offset: int = 0
) -> Iterator[RecordBatch]:
    """Every batch between two positions of a segment's file, in bytes, but for those that end at or before
    `start_offset`, which are not looked at. Raises DamagedLogError, OSError."""
    while position < size:
        chunk = _read_chunk(segment, position, size, chunk_bytes)
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


def _begins_at_or_before(pending: list[bytes], offset: int) -> bool:
    return bool(pending) and _base_offset(pending[0]) <= offset


def _read_chunk(segment: Segment, position: int, size: int, chunk_bytes: int) -> bytes:
    """At least one whole batch, if there is one."""
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
        self.in_memory = _begins_at_or_before(self._parts[0][2], start)
        """Nothing has to be read from a file."""
        holds.__enter__()

    def run(self) -> tuple[int, list[RawBatch]]:
        """Read. Call it once, in any thread. Raises OSError, and DamagedLogError if a file has no batch there, or one
        whose CRC does not match: whoever it is sent to would refuse it, each time anew.
        """
        found: list[RawBatch] = []
        try:
            left = self._bytes_max
            for segment, size, pending in self._parts:
                for batch in self._batches(segment, size, pending, left):
                    if found and len(batch[3]) > left:
                        return found[-1][1], found
                    found.append(batch)
                    left -= len(batch[3])
            return self._end, found
        finally:
            self._holds.__exit__()

    def _batches(self, segment: Segment, size: int, pending: list[bytes], left: int) -> Iterator[RawBatch]:
        if not self.in_memory:
            yield from self._file_batches(segment, size, left)
        for data in pending:
            yield _raw(data)

    def _file_batches(self, segment: Segment, size: int, left: int) -> Iterator[RawBatch]:
        position = segment.position_near(self._start) if segment is self._parts[0][0] else 0
        chunk_bytes = max(left, 0) + INDEX_INTERVAL_BYTES
        while position < size:
            chunk = _read_chunk(segment, position, size, chunk_bytes)
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
