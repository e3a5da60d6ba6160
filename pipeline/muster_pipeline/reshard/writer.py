"""Writes segments of the new logs: uncompressed record batches v2 with dense offsets, all in one leader epoch.

The new logs begin anew, so they begin in epoch 0, as those of a new Kafka topic do; the next leader opens a
higher one. Only that keeps epochs rising along a log that is put together from several old ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import numpy as np
from crc32c import crc32c

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD
from muster_coordinator.records.varint import SMALL, encode_varint
from muster_pipeline.decode.columns import Ints
from muster_pipeline.reshard.route import Carried
from muster_pipeline.source.topics import OFFSETS_TOPIC

LEADER_EPOCH = 0
MAX_BATCH_RECORDS = 1000  # below len(SMALL)
MAX_BATCH_BYTES = 512 << 10
"""The most bytes of a batch with more than one record: below Kafka's default message.max.bytes."""
_EPOCHS_NAME = "leader-epoch-checkpoint"
_PREFIX = Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_CHECKED = Struct(">hiqqqhii")  # attributes to records count
_SMALL_COUNT = len(SMALL)


def log_directory(root: Path, partition: int, topic: str = OFFSETS_TOPIC) -> Path:
    return root / f"{topic}-{partition}"


@dataclass
class TargetLog:
    """`base` offset and `size` in bytes of the segment that is written, `next_offset` of the log."""

    directory: Path
    segment_bytes: int
    base: int = 0
    size: int = 0
    next_offset: int = 0

    @property
    def segment(self) -> Path:
        return self.directory / f"{self.base:020d}.log"

    def create(self) -> None:
        """Create an empty first segment. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.segment.touch()

    def cut_back(self) -> None:
        """Remove everything that an interrupted run wrote after this state. Raises OSError."""
        for file in self.directory.glob("*.log"):
            if int(file.stem) > self.base:
                file.unlink()
        os.truncate(self.segment, self.size)

    def append(self, carried: Carried, indexes: Ints) -> None:
        """Append the records at `indexes`, in their order. Raises OSError."""
        parts: list[bytes] = []
        for batch in self._batches(carried, indexes):
            if self.size and self.size + len(batch) > self.segment_bytes:
                self._write(parts)
                self.base, self.size = int.from_bytes(batch[:8], "big"), 0
            parts.append(batch)
            self.size += len(batch)
        self._write(parts)

    def _write(self, parts: list[bytes]) -> None:
        with self.segment.open("ab") as file:
            file.write(b"".join(parts))
        parts.clear()

    def _batches(self, carried: Carried, indexes: Ints) -> list[bytes]:
        sizes = np.cumsum(carried.end[indexes] - carried.start[indexes])
        out = []
        first = 0
        while first < len(indexes):
            before = int(sizes[first - 1]) if first else 0
            fits = int(np.searchsorted(sizes, before + MAX_BATCH_BYTES, "right"))
            end = min(len(indexes), first + MAX_BATCH_RECORDS, max(first + 1, fits))
            out.append(_encode(carried, indexes[first:end], self.next_offset))
            self.next_offset += end - first
            first = end
        return out

    def sync(self) -> None:
        """Raises OSError."""
        descriptor = os.open(self.segment, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Write the epoch checkpoint, in Kafka's format, and sync everything. Raises OSError."""
        entries = [f"{LEADER_EPOCH} 0"] if self.next_offset else []
        text = "\n".join(["0", str(len(entries)), *entries]) + "\n"
        (self.directory / _EPOCHS_NAME).write_text(text)
        for path in self.directory.iterdir():
            sync_path(path)
        sync_path(self.directory)


def sync_path(path: Path) -> None:
    """Sync a file or a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(carried: Carried, indexes: Ints, base_offset: int) -> bytes:
    """Encode one batch. Each record keeps its own timestamp, which `records.encode_batch` does not do."""
    data = carried.data
    times = carried.timestamp_ms[indexes]
    base_ms, count = int(times[0]), len(indexes)
    parts: list[bytes] = [b""]
    add = parts.append
    columns = (times - base_ms, carried.start[indexes], carried.end[indexes])
    for delta, (delta_ms, start, end) in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
        body = b"\0%b%b%b\0" % (
            SMALL[delta_ms] if 0 <= delta_ms < _SMALL_COUNT else encode_varint(delta_ms),
            SMALL[delta],
            data[start:end],
        )
        add(SMALL[len(body)] if len(body) < _SMALL_COUNT else encode_varint(len(body)))
        add(body)
    parts[0] = _CHECKED.pack(0, count - 1, base_ms, int(times.max()), -1, -1, 0, count)
    checked = b"".join(parts)
    length = len(checked) + HEADER_BYTES - _CHECKED.size - LENGTH_OVERHEAD
    return _PREFIX.pack(base_offset, length, LEADER_EPOCH, 2, crc32c(checked)) + checked
