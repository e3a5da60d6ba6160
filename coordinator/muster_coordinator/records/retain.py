"""A record batch with some of its records only: what compaction leaves of it.

Base offset, last offset delta, timestamps, producer and epoch stay as they are, and so do the bytes of each record that
is kept. The result is not compressed. Source: MemoryRecords#filterTo.
"""

from __future__ import annotations

from collections.abc import Set
from struct import Struct

from crc32c import crc32c

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD, RecordBatch
from muster_coordinator.records.compression import decompress
from muster_coordinator.records.varint import read_varint

_CODEC_MASK = 0x07
_PREFIX = Struct(">qiibI")
_SUFFIX = Struct(">hiqqqhii")


def retain(batch: RecordBatch, offsets: Set[int]) -> bytes:
    """The batch with the records at `offsets`; b"" if it has none of them. `batch` was parsed without error."""
    codec = batch.attributes & _CODEC_MASK
    body = decompress(codec, batch.data[HEADER_BYTES:]) if codec else batch.data[HEADER_BYTES:]
    kept: list[bytes] = []
    position = 0
    for _ in range(batch.records_count):
        start = position
        length, position = read_varint(body, position)
        _, at = read_varint(body, position + 1)
        delta, _ = read_varint(body, at)
        position += length
        if batch.base_offset + delta in offsets:
            kept.append(body[start:position])
    if not kept:
        return b""
    if len(kept) == batch.records_count:
        return batch.data
    suffix = _SUFFIX.pack(
        batch.attributes & ~_CODEC_MASK,
        batch.last_offset_delta,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(kept),
    )
    checked = suffix + b"".join(kept)
    length = _PREFIX.size + len(checked) - LENGTH_OVERHEAD
    return _PREFIX.pack(batch.base_offset, length, batch.leader_epoch, 2, crc32c(checked)) + checked
