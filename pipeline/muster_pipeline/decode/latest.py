"""Keeps only the last of the records that replace each other, to compute the current offsets.

A plain offset commit, or the removal of an offset, says all there is about its group, topic and partition, until the
next one. So of those that are read together only the one with the highest offset is needed to know the offsets of now;
the answer is the same as from all of them. Everything else is given as it is: a commit in a transaction counts only
once its marker is known, which may lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muster_pipeline.decode.columns import Ints, mask_array, mask_of, number_array, numbers_of, texts
from muster_pipeline.decode.decoder import SLICE_ROWS, Selection
from muster_pipeline.decode.schema import Kind, select_schema

KEY = ["offsets_partition", "group", "topic", "partition"]
_NEEDED = [*KEY, "offset", "kind", "producer_id"]
_REPLACEABLE = frozenset({Kind.OFFSET_COMMIT, Kind.OFFSET_TOMBSTONE})
HELD_ROWS = 1 << 18
"""Rows that are held back at most, to be compared with those behind them: 50 MiB or so."""


def last_only(
    decode: Callable[[Selection], Iterable[pa.RecordBatch]], selection: Selection
) -> Iterator[pa.RecordBatch]:
    """The rows that `decode` gives for `selection`, without those that another one of them replaced.

    What is left out does not depend on the selection: a commit that an unselected removal replaced is not given.
    """
    names = selection.schema.names
    kinds = selection.kinds
    wide = replace(
        selection,
        schema=select_schema([*names, *(each for each in _NEEDED if each not in names)]),
        kinds=None if kinds is None else kinds | _REPLACEABLE,
    )
    for batch in _held_back(decode(wide)):
        chosen = batch if kinds is None else batch.filter(_is_in(batch["kind"], kinds))
        for start in range(0, chosen.num_rows, SLICE_ROWS):
            yield chosen.slice(start, SLICE_ROWS).select(names)


def _held_back(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compares each row with up to HELD_ROWS before it."""
    held: list[pa.RecordBatch] = []
    rows = compared = 0
    for batch in batches:
        held.append(without_replaced(batch))
        rows += held[-1].num_rows
        if rows >= 2 * compared + SLICE_ROWS:
            held = [without_replaced(pa.concat_batches(held))]
            rows = compared = held[0].num_rows
            if rows >= HELD_ROWS:
                yield from held
                held, rows, compared = [], 0, 0
    if held:
        yield without_replaced(pa.concat_batches(held))


def without_replaced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that no later row of the batch replaces, in their order."""
    replaceable = mask_of(_is_in(batch["kind"], _REPLACEABLE)) & mask_of(batch["producer_id"].is_null())
    rows = np.flatnonzero(replaceable)
    chosen = batch if len(rows) == batch.num_rows else batch.take(number_array(rows, pa.int64()))
    if not len(rows):
        return batch
    keys = _codes(chosen)
    offset = numbers_of(chosen["offset"])
    last = np.full(keys.max() + 1, np.iinfo(np.int64).min)
    np.maximum.at(last, keys, offset)
    kept = ~replaceable
    kept[rows] = offset == last[keys]
    return batch if kept.all() else batch.filter(mask_array(kept))


def _codes(batch: pa.RecordBatch) -> Ints:
    """Return a number for each row, equal for rows with the same key."""
    codes: Ints = np.zeros(batch.num_rows, np.int64)
    for name in KEY:
        own = _indices(batch[name])
        codes = _indices(number_array(codes * (own.max() + 1) + own, pa.int64()))
    return codes


def _indices(column: pa.Array) -> Ints:
    return numbers_of(column.dictionary_encode(null_encoding="encode").indices)


def _is_in(column: pa.Array, values: Iterable[str]) -> pa.Array:
    return pc.is_in(column, value_set=texts(sorted(values)))
