"""Decodes a segment, or a part of one, into Arrow record batches. A pure function of the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muster_pipeline.decode.bytes_source import ByteSource, MemoryBytes
from muster_pipeline.decode.columns import Mask, mask_of, number_array, texts
from muster_pipeline.decode.errors import SegmentDamagedError
from muster_pipeline.decode.fast_rows import KIND_NAMES, Origin, Parse, fast_rows, parse_records
from muster_pipeline.decode.scan import Damage, claimed_size, scan
from muster_pipeline.decode.schema import KINDS, PROBLEM_KINDS, SCHEMA, Kind, Problem
from muster_pipeline.decode.slow_rows import Row, damage_row, slow_rows, to_batch
from muster_pipeline.decode.structure import Records, Window, read_window

WINDOW_BYTES = 2 << 20
"""Read and decoded at a time: large enough that numpy's cost per call vanishes, small enough for the caches."""
SLICE_ROWS = 64 << 10
"""Rows of an Arrow batch at most; it also bounds the memory of rows that take the plain decoder."""
DEFAULT_MAX_BATCH_BYTES = 64 << 20
"""The most bytes of a batch, and of what the compressed batches of a window decompress to. Kafka's largest default is
1 MiB."""


@dataclass(frozen=True)
class Selection:
    """The columns and rows that are wanted; None: all. A row without a group is in no selection by groups."""

    schema: pa.Schema = SCHEMA
    kinds: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    def __post_init__(self) -> None:
        unknown = (self.kinds or frozenset()) - KINDS
        if unknown:
            raise ValueError(f"no such kinds: {', '.join(sorted(unknown))}; there are {', '.join(sorted(KINDS))}")

    def has(self, row: Row) -> bool:
        return (self.kinds is None or row["kind"] in self.kinds) and (
            self.groups is None or row.get("group") in self.groups
        )


@dataclass(frozen=True)
class Stretch:
    """A part of a segment from `origin.position` to byte `end`."""

    window: Window
    damages: list[Damage]
    origin: Origin
    end: int


@dataclass(frozen=True)
class Decoder:
    """Decodes segments. With `fail_fast` damage raises SegmentDamagedError instead of giving a row with a problem."""

    selection: Selection = field(default_factory=Selection)
    fail_fast: bool = False
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    window_bytes: int = WINDOW_BYTES

    def decode(
        self, source: ByteSource, origin: Origin | None = None, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the batches that begin from `origin` on and before byte `end` (None: the end of the file).

        A batch begins at `origin` (None: the start of a log of offsets); `splits` finds such places. Raises
        SegmentReadError, SegmentDamagedError.
        """
        for stretch in self.stretches(source, origin or Origin(source.name), end):
            yield from self._rows(stretch.window, stretch.damages, stretch.origin)

    def stretches(self, source: ByteSource, origin: Origin, end: int | None = None) -> Iterator[Stretch]:
        """Yield the positions of the records from `origin` on instead of rows, for callers that use bytes. Raises
        SegmentReadError.
        """
        stop = source.size if end is None else min(end, source.size)
        position = origin.position
        wanted = self.window_bytes
        while position < stop:
            data = source.read(position, min(wanted, source.size - position))
            stretch = self._stretch(data, replace(origin, position=position), source, stop - position)
            if stretch.end > position:
                yield stretch
                wanted = self.window_bytes
            else:  # the first batch is larger than the window
                wanted = max(wanted, claimed_size(data, 0))
            position = stretch.end

    def _stretch(self, data: bytes | memoryview, origin: Origin, source: ByteSource, stop: int) -> Stretch:
        found = scan(data, source.size - origin.position, self.max_batch_bytes, stop)
        window = read_window(data, found.positions, found.sizes, self.max_batch_bytes)
        consumed = found.consumed
        if window.batches_read < len(found.positions):
            consumed = int(found.positions[window.batches_read])
        damages = sorted(
            (one for one in (*found.damages, *window.damages) if one.position < consumed), key=lambda one: one.position
        )
        return Stretch(
            window, [_judge_rest(one, origin, source) for one in damages], origin, origin.position + consumed
        )

    def _rows(self, window: Window, damages: list[Damage], origin: Origin) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order of the log, with damages between the records around them."""
        if damages and self.fail_fast:
            first = damages[0]
            raise SegmentDamagedError(origin.file, origin.position + first.position, first.problem, first.detail)
        places = window.positions[window.records.batch]
        before = np.searchsorted(places, [one.position for one in damages]).tolist()
        count = len(window.records)
        for start in range(0, max(count, 1), SLICE_ROWS):
            end = min(start + SLICE_ROWS, count)
            here = [
                (index - start, damage)
                for index, damage in zip(before, damages, strict=True)
                if start <= index < end or (end == count and index == count)
            ]
            yield from self._slice(window, window.records[start:end], here, origin)

    def _slice(
        self, window: Window, records: Records, damages: list[tuple[int, Damage]], origin: Origin
    ) -> Iterator[pa.RecordBatch]:
        """Pair each of `damages` with the number of the record after it."""
        parse = parse_records(window, records, of_transactions=origin.transaction_partition is not None)
        chosen = self._chosen(parse)
        fast = np.flatnonzero(chosen & ~parse.slow)
        slow = np.flatnonzero(parse.slow if self.fail_fast else chosen & parse.slow)
        rows: list[tuple[float, Row]] = list(zip(slow.tolist(), slow_rows(window, records, slow, origin), strict=True))
        if self.fail_fast:
            for _, row in rows:
                if row["kind"] in PROBLEM_KINDS:
                    raise SegmentDamagedError(origin.file, row["position"], row["problem"], row["problem_detail"])
        rows += [(index - 0.5, damage_row(damage, origin)) for index, damage in damages]
        rows = sorted((each for each in rows if self.selection.has(each[1])), key=lambda each: each[0])
        schema = self.selection.schema
        batches = []
        if len(fast):
            if len(fast) < len(records):
                records, parse = records[fast], parse[fast]
            batches.append(fast_rows(window, records, parse, origin, schema))
        if rows:
            batches.append(to_batch([row for _, row in rows], schema))
        if len(batches) == 2:
            order = np.argsort(np.concatenate([fast, [index for index, _ in rows]]), kind="stable")
            batches = [pa.concat_batches(batches).take(number_array(order, pa.int64()))]
        yield from batches

    def _chosen(self, parse: Parse) -> Mask:
        """Records that are selected, if they are not slow. A slow one is of the kind that it looks like, or unreadable;
        one that has no chance need not be read.
        """
        kinds, groups = self.selection.kinds, self.selection.groups
        mask = np.ones(len(parse.kind), np.bool_)
        if kinds is not None:
            mask &= np.array([name in kinds for name in KIND_NAMES])[parse.kind]
            if Kind.UNREADABLE in kinds:
                mask |= parse.slow
        if groups is not None:
            mask &= mask_of(pc.is_in(parse.group, value_set=texts(sorted(groups))))
        return mask


def _judge_rest(damage: Damage, origin: Origin, source: ByteSource) -> Damage:
    """Name a rest of the file that is all zeros `zero_tail`."""
    if not damage.to_end:
        return damage
    position = origin.position + damage.position
    while position < source.size:
        part = source.read(position, min(WINDOW_BYTES, source.size - position))
        if np.frombuffer(part, np.uint8).any():
            return damage
        position += len(part)
    return Damage(damage.position, damage.size, Problem.ZERO_TAIL, f"{damage.size} zero bytes to the end of the file")


def decode_segment(
    data: bytes,
    *,
    file: str = "",
    offsets_partition: int | None = None,
    transaction_partition: int | None = None,
    selection: Selection | None = None,
    fail_fast: bool = False,
) -> pa.Table:
    """Decode all rows of a segment's bytes. Raises SegmentDamagedError with `fail_fast`."""
    decoder = Decoder(selection or Selection(), fail_fast)
    batches = decoder.decode(MemoryBytes(data, file), Origin(file, offsets_partition, transaction_partition))
    return pa.Table.from_batches(batches, decoder.selection.schema)
