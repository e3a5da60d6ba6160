"""One segment file: `<base offset, 20 digits>.log`, record batches one after the other.

An index of every 64 KiB or so is kept in memory only; Kafka's `.index` files are neither needed nor written.
Source: LogSegment, LogFileUtils.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from muster_coordinator.log.disk import Disk, read_fully, write_fully
from muster_coordinator.log.segments.scan import BatchInfo, Damage, SegmentScan
from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD

SUFFIX = ".log"
INDEX_INTERVAL_BYTES = 64 << 10
READ_CHUNK_BYTES = 1 << 20
_CRC_POSITION = 17
_CRC_START = 21
_HEADER = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, crc, attributes, last offset delta
_MAGIC_POSITION = 16


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}{SUFFIX}"


def segment_offsets(names: list[str]) -> list[int]:
    """Base offsets of the segments among the files of a directory, ascending. Other files are not ours to judge."""
    stems = (name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


class Segment:
    """A segment, and the batches that its file does not have yet. `size` counts what the file has.

    The file is made when the first batch is written to it: nothing of a batch is on the disk before the journal has it.
    """

    __slots__ = (
        "_descriptor",
        "_disk",
        "_index",
        "_last_indexed",
        "_pending",
        "base_offset",
        "dirty",
        "path",
        "pending_bytes",
        "size",
        "written_back",
    )

    def __init__(self, disk: Disk, directory: Path, base_offset: int) -> None:
        """A new one, to be made."""
        self._disk = disk
        self.path = directory / segment_name(base_offset)
        self.base_offset = base_offset
        self.size = 0
        self.pending_bytes = 0
        self.dirty = False  # written to since the last fdatasync
        self.written_back = 0  # bytes of the file that the operating system was told to write
        self._descriptor = -1
        self._pending: list[tuple[int, bytes]] = []  # (end offset, batch)
        self._index: list[tuple[int, int]] = [(base_offset, 0)]
        self._last_indexed = 0

    @classmethod
    def open(cls, disk: Disk, directory: Path, base_offset: int) -> Segment:
        segment = cls(disk, directory, base_offset)
        segment._descriptor = disk.open(segment.path)
        segment.size = segment.written_back = disk.size(segment._descriptor)
        return segment

    @property
    def descriptor(self) -> int:
        return self._descriptor

    @property
    def exists(self) -> bool:
        """The file was made."""
        return self._descriptor >= 0

    def add(self, batch: bytes, base_offset: int, end_offset: int) -> None:
        """Take a batch into the buffer."""
        position = self.size + self.pending_bytes
        if position - self._last_indexed >= INDEX_INTERVAL_BYTES:
            self.note(base_offset, position)
        self._pending.append((end_offset, batch))
        self.pending_bytes += len(batch)

    def flush(self, limit: int) -> None:
        """Write the buffered batches that end at or below offset `limit`.

        Raises OSError; the batches stay buffered then, and the next attempt writes them to the same place. The file may
        have been made for it all the same.
        """
        count = len(self._pending)
        while count and self._pending[count - 1][0] > limit:
            count -= 1
        if not count:
            return
        if not self.exists:
            self.make()
        data = b"".join([batch for _, batch in self._pending[:count]])
        self.dirty = True
        write_fully(self._disk, self._descriptor, data, self.size)
        del self._pending[:count]
        self.size += len(data)
        self.pending_bytes -= len(data)

    def make(self) -> None:
        """Make the file. Raises OSError."""
        self._descriptor = self._disk.open(self.path, create=True)

    def pending_from(self, offset: int) -> list[bytes]:
        """Buffered batches from the one that holds `offset` on."""
        return [batch for end_offset, batch in self._pending if end_offset > offset]

    def note(self, base_offset: int, position: int) -> None:
        """A batch begins there; remember it if the last remembered one is far enough away."""
        if position - self._last_indexed >= INDEX_INTERVAL_BYTES:
            self._index.append((base_offset, position))
            self._last_indexed = position

    def position_near(self, offset: int) -> int:
        """Position of a batch at or before the one that holds `offset`."""
        return self._index[max(bisect_right(self._index, offset, key=lambda entry: entry[0]) - 1, 0)][1]

    def rewrite(self, position: int, data: bytes) -> None:
        """Write again what the file has there. Raises OSError."""
        write_fully(self._disk, self._descriptor, data, position)
        self.dirty = True

    def cut(self, size: int) -> None:
        """Shorten the file to `size` bytes, durably, before anything is written after it."""
        self.cut_file(size)
        self.shorten(size)

    def cut_file(self, size: int) -> None:
        """The part of `cut` that blocks."""
        self._disk.truncate(self._descriptor, size)
        self._disk.fdatasync(self._descriptor)

    def shorten(self, size: int) -> None:
        """The other part."""
        self.size = size
        self.written_back = min(self.written_back, size)
        self._index = [entry for entry in self._index if entry[1] < size] or [(self.base_offset, 0)]
        self._last_indexed = self._index[-1][1]

    def infos(self, position: int) -> Iterator[BatchInfo]:
        """Headers in the file from `position` on, their CRC not checked. Ends early where the bytes are no batch."""
        while position < self.size:
            header = self._disk.pread(self._descriptor, HEADER_BYTES, position)
            if len(header) < HEADER_BYTES:
                return
            base_offset, length, epoch, magic, crc, _, last_delta = _HEADER.unpack_from(header)
            size = length + LENGTH_OVERHEAD
            if magic != 2 or size < HEADER_BYTES or position + size > self.size:
                return
            yield BatchInfo(base_offset, base_offset + last_delta + 1, epoch, crc, position, size)
            position += size

    def read(self, size: int, position: int) -> bytes:
        return read_fully(self._disk, self._descriptor, size, position)

    def close(self) -> None:
        if self.exists:
            self._disk.close(self._descriptor)
            self._descriptor = -1


def has_valid_crc(batch: bytes) -> bool:
    """True if the CRC of a whole batch is right. It covers neither base offset nor leader epoch."""
    return crc32c(batch[_CRC_START:]) == int.from_bytes(batch[_CRC_POSITION:_CRC_START], "big")


def scan_segment(disk: Disk, descriptor: int, base_offset: int) -> SegmentScan:
    """Read all of a segment and check every batch: bounds, magic, CRC-32C, offsets that never go back."""
    size = disk.size(descriptor)
    batches: list[BatchInfo] = []
    expected = base_offset
    position = 0  # in the file
    chunk = b""
    chunk_start = 0
    reason = ""
    while position < size:
        at = position - chunk_start
        if len(chunk) - at < HEADER_BYTES or len(chunk) - at < _claimed_size(chunk, at):
            wanted = max(READ_CHUNK_BYTES, min(_claimed_size(chunk, at), size - position))
            chunk, chunk_start, at = read_fully(disk, descriptor, wanted, position), position, 0
            claimed = _claimed_size(chunk, 0)
            if len(chunk) < claimed <= size - position:
                chunk = read_fully(disk, descriptor, claimed, position)
        info_or_reason = _check(chunk, at, position, expected)
        if isinstance(info_or_reason, str):
            reason = info_or_reason
            break
        batches.append(info_or_reason)
        expected = info_or_reason.end_offset
        position += info_or_reason.size
    if not reason:
        return SegmentScan(batches, size, None)
    rest = read_fully(disk, descriptor, size - position, position)
    return SegmentScan(batches, size, Damage(position, reason, _holds_valid_batch(rest, base_offset)))


def _claimed_size(chunk: bytes, at: int) -> int:
    if len(chunk) - at < LENGTH_OVERHEAD:
        return HEADER_BYTES
    return int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_OVERHEAD


def _check(chunk: bytes, at: int, position: int, expected: int) -> BatchInfo | str:
    """The batch at `at`, or what is wrong with it."""
    available = len(chunk) - at
    if available < HEADER_BYTES:
        return f"{available} bytes are no batch header"
    base_offset, length, epoch, magic, crc, _, last_delta = _HEADER.unpack_from(chunk, at)
    size = length + LENGTH_OVERHEAD
    if magic != 2:
        return f"magic {magic}, expected 2"
    if not HEADER_BYTES <= size <= available:
        return f"batch of {size} bytes, {available} are there"
    if base_offset < expected or last_delta < 0:
        return f"batch at offset {base_offset} of {last_delta + 1} offsets, expected offset {expected} or later"
    if crc32c(chunk[at + _CRC_START : at + size]) != crc:
        return f"CRC-32C of the batch at offset {base_offset} does not match"
    return BatchInfo(base_offset, base_offset + last_delta + 1, epoch, crc, position, size)


def _holds_valid_batch(rest: bytes, expected: int) -> bool:
    """True if a whole batch of an offset at or after `expected` begins anywhere in `rest`, but not at its start.

    The damage may be in a length, so every byte is a possible start; the magic byte narrows them down.
    """
    at = rest.find(b"\x02", _MAGIC_POSITION + 1)
    while at >= 0:
        start = at - _MAGIC_POSITION
        if not isinstance(_check(rest, start, start, expected), str):
            return True
        at = rest.find(b"\x02", at + 1)
    return False
