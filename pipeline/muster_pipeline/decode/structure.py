"""Finds the positions of every record's key and value, in all batches of a window at once.

Kafka's record layout is a chain: each record's length says where the next begins. Record j of every batch is found in
one numpy step, so the number of steps is that of the records of the largest batch, not of all; when few batches are
left, a plain loop is quicker. Everything behind the chain works on all records at once.
Source: DefaultRecord, DefaultRecordBatch; layout in `muster_coordinator.records.batch`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from muster_coordinator.records.batch import HEADER_BYTES
from muster_pipeline.decode.columns import Ints, Mask, Source
from muster_pipeline.decode.compression import TooLargeError, decompress
from muster_pipeline.decode.scan import Damage
from muster_pipeline.decode.schema import Problem

SMALLEST_RECORD_BYTES = 7
"""Length, attributes, timestamp delta, offset delta, two lengths of nothing, no headers: a byte each."""
MAX_INT_BYTES = 5
MAX_LONG_BYTES = 10
FEW_BATCHES = 48
"""Below this many batches a step in numpy costs more than a plain loop over them."""

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


@dataclass(frozen=True)
class Records:
    """Column arrays, one element per record. Positions are in `Window.source`; a null key or value ends at -1.

    `fields`: where the key's length begins; key and value, with their lengths, lie from there on without a gap.
    """

    batch: Ints  # index into the headers of the window
    offset: Ints
    timestamp_ms: Ints
    fields: Ints
    key_start: Ints
    key_end: Ints
    value_start: Ints
    value_end: Ints

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, index: slice | Ints | Mask) -> Records:
        return Records(*(getattr(self, one.name)[index] for one in fields(self)))


@dataclass(frozen=True)
class Window:
    """`headers`: structured array, one element per batch; `positions` of the batches in the data given."""

    source: Source
    headers: NDArray[np.void]
    positions: Ints
    records: Records
    damages: list[Damage]
    batches_read: int  # of the batches given: fewer, when what they decompress to reached the budget


def read_window(data: bytes | memoryview, positions: Ints, sizes: Ints, max_batch_bytes: int) -> Window:
    """Return the records of batches whose CRCs were checked. Batches whose records do not parse become damages."""
    at, size = positions, sizes
    source = Source(data)
    raw = np.ndarray((max(0, len(source.data) - HEADER_BYTES + 1),), f"V{HEADER_BYTES}", source.data, strides=(1,))
    headers = raw[at].view(_HEADER)
    body_start, body_end = at + HEADER_BYTES, at + size
    damages: list[Damage] = []
    bad = (headers["base_offset"] < 0) | (headers["last_offset_delta"] < 0) | (headers["count"] < 0)
    for index in np.flatnonzero(bad):
        detail = "negative base offset, last offset delta or record count"
        damages.append(Damage(int(positions[index]), int(sizes[index]), Problem.BAD_HEADER, detail))
    read = len(positions)
    compressed = np.flatnonzero((headers["attributes"] & _CODEC != 0) & ~bad)
    if len(compressed):
        inflated = _inflate(data, headers, positions, sizes, compressed, max_batch_bytes)
        read = inflated.batches_read
        damages = [one for one in damages if read == len(positions) or one.position < int(positions[read])]
        damages += inflated.damages
        bad = bad[:read]
        bad[inflated.bad] = True
        at, size, headers = at[:read], size[:read], headers[:read]
        source, body_start, body_end = _rebuild(data, at, size, inflated)
    count = np.where(bad, 0, headers["count"]).astype(np.int64)
    crowded = np.flatnonzero(count * SMALLEST_RECORD_BYTES > body_end - body_start)
    count[crowded] = 0
    starts, ends, broken = _record_bounds(source, body_start, body_end, count)
    broken[crowded] = True
    batch = np.repeat(np.arange(len(count)), count)
    if broken.any():
        kept = ~broken[batch]
        batch, starts, ends = batch[kept], starts[kept], ends[kept]
    records, unparsed = _fields(source, headers, batch, starts, ends)
    if len(unparsed):
        broken[unparsed] = True
        records = records[~broken[records.batch]]
    for index in np.flatnonzero(broken & ~bad):
        detail = f"records of the batch at offset {headers['base_offset'][index]} do not parse"
        damages.append(Damage(int(positions[index]), int(sizes[index]), Problem.BAD_RECORDS, detail))
    return Window(source, headers, at, records, damages, read)


@dataclass(frozen=True)
class _Inflated:
    bodies: dict[int, bytes]  # index of the batch -> decompressed records
    bad: list[int]
    damages: list[Damage]
    batches_read: int


def _inflate(
    data: bytes | memoryview,
    headers: NDArray[np.void],
    positions: Ints,
    sizes: Ints,
    compressed: Ints,
    max_batch_bytes: int,
) -> _Inflated:
    """Decompress until the budget (`max_batch_bytes` for all together) is used up, at least one batch."""
    bodies: dict[int, bytes] = {}
    bad: list[int] = []
    damages: list[Damage] = []
    used = 0
    for index in compressed.tolist():
        if used >= max_batch_bytes:
            return _Inflated(bodies, bad, damages, index)
        position, size = int(positions[index]), int(sizes[index])
        codec = int(headers["attributes"][index]) & _CODEC
        try:
            body = decompress(codec, bytes(data[position + HEADER_BYTES : position + size]), max_batch_bytes)
        except ValueError as exc:
            problem = Problem.TOO_LARGE if isinstance(exc, TooLargeError) else Problem.BAD_RECORDS
            damages.append(Damage(position, size, problem, str(exc)))
            bad.append(index)
            continue
        bodies[index] = body
        used += len(body)
    return _Inflated(bodies, bad, damages, len(positions))


def _rebuild(data: bytes | memoryview, at: Ints, size: Ints, inflated: _Inflated) -> tuple[Source, Ints, Ints]:
    """Return (source, starts, ends): the bodies of all batches in one buffer, decompressed ones included."""
    parts = [
        inflated.bodies.get(index, data[start + HEADER_BYTES : start + length])
        for index, (start, length) in enumerate(zip(at.tolist(), size.tolist(), strict=True))
    ]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return Source(*parts), np.concatenate([[0], ends[:-1]]).astype(np.int64), ends


def _record_bounds(source: Source, body_start: Ints, body_end: Ints, count: Ints) -> tuple[Ints, Ints, Mask]:
    """Return (starts after the length, ends) of all records by batch, and which batches do not parse."""
    total = int(count.sum())
    starts = np.zeros(total, np.int64)
    ends = np.zeros(total, np.int64)
    broken = np.zeros(len(count), np.bool_)
    first_slot = np.cumsum(count) - count
    active = np.flatnonzero(count > 0)
    place = body_start[active]
    step = 0
    while len(active) >= FEW_BATCHES:
        length, at, too_long = source.varints(place, MAX_INT_BYTES)
        behind = at + length
        wrong = (length < 0) | (behind > body_end[active])
        if too_long is not None:
            wrong |= too_long
        slot = first_slot[active] + step
        starts[slot] = at
        ends[slot] = behind
        place = behind
        step += 1
        going_on = count[active] > step
        if wrong.any():
            broken[active[wrong]] = True
            going_on &= ~wrong
        if not going_on.all():
            done = ~going_on & ~wrong
            broken[active[done]] |= place[done] != body_end[active[done]]
            active, place = active[going_on], place[going_on]
    for index, position in zip(active.tolist(), place.tolist(), strict=True):
        first = int(first_slot[index]) + step
        broken[index] = not _walk(
            source.data, position, int(body_end[index]), int(count[index]) - step, starts, ends, first
        )
    empty = count == 0
    broken[empty] = body_start[empty] != body_end[empty]
    return starts, ends, broken


def _walk(data: bytes, position: int, body_end: int, left: int, starts: Ints, ends: Ints, slot: int) -> bool:
    """Walk the `left` records of one batch from `position` on. False if they do not end where the batch does."""
    found_starts: list[int] = []
    found_ends: list[int] = []
    for _ in range(left):
        raw = data[position]
        position += 1
        if raw > 0x7F:
            shift, byte = 7, raw
            raw &= 0x7F
            while byte > 0x7F:
                if shift >= 7 * MAX_INT_BYTES:
                    return False
                byte = data[position]
                position += 1
                raw |= (byte & 0x7F) << shift
                shift += 7
        found_starts.append(position)
        position += raw >> 1
        if raw & 1 or position > body_end:
            return False
        found_ends.append(position)
    starts[slot : slot + left] = found_starts
    ends[slot : slot + left] = found_ends
    return position == body_end


def _fields(source: Source, headers: NDArray[np.void], batch: Ints, starts: Ints, ends: Ints) -> tuple[Records, Ints]:
    """Return (records, batches in which the fields of a record leave the record)."""
    delta_ms, at, long_time = source.varints(starts + 1, MAX_LONG_BYTES)
    offset_delta, fields_at, long_offset = source.varints(at, MAX_INT_BYTES)
    key_size, key_start, long_key = source.varints(fields_at, MAX_INT_BYTES)
    key_end = key_start + np.maximum(key_size, 0)
    wrong = key_end > ends
    at = np.minimum(key_end, ends)  # what is wrong already must not lead out of the buffer
    value_size, value_start, long_value = source.varints(at, MAX_INT_BYTES)
    value_end = value_start + np.maximum(value_size, 0)
    wrong |= value_end > ends
    for too_long in (long_time, long_offset, long_key, long_value):
        if too_long is not None:
            wrong |= too_long
    key_end = np.where(key_size < 0, -1, key_end)
    value_end = np.where(value_size < 0, -1, value_end)
    timestamp_ms = headers["base_timestamp"].astype(np.int64)[batch] + delta_ms
    append_time = headers["attributes"] & _LOG_APPEND_TIME != 0
    if append_time.any():
        timestamp_ms = np.where(append_time[batch], headers["max_timestamp"].astype(np.int64)[batch], timestamp_ms)
    offset = headers["base_offset"].astype(np.int64)[batch] + offset_delta
    records = Records(batch, offset, timestamp_ms, fields_at, key_start, key_end, value_start, value_end)
    return records, np.unique(batch[wrong])
