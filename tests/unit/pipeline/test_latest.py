"""`last_only` leaves out what another plain commit or removal of the same key replaces, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.compare import Row
from tests.unit.pipeline.logs import commit, commits_segment, raw_batch, record_bytes

from muster_coordinator.records.offset_commit import encode_offset_commit_key
from muster_pipeline.decode import latest
from muster_pipeline.decode.bytes_source import MemoryBytes
from muster_pipeline.decode.decoder import Decoder, Selection, decode_segment
from muster_pipeline.decode.fast_rows import Origin
from muster_pipeline.decode.latest import last_only
from muster_pipeline.decode.schema import KINDS, Kind, select_schema

WINDOW_BYTES = 2000
keys = st.tuples(st.sampled_from(["g", "h"]), st.sampled_from(["t", "u"]), st.integers(0, 1))
few_keys = st.tuples(keys, st.sampled_from(["commit", "commit", "removal"]))


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Commits and removals of few keys, plain and in transactions, other records, zeros at the end; some offsets come
    twice, or fall."""
    parts = []
    for base_offset in range(0, draw(st.integers(0, 120)), 4):
        content = draw(st.lists(few_keys, min_size=1, max_size=4))
        records = [
            commit(*key, base_offset + index) if what == "commit" else (encode_offset_commit_key(*key), None)
            for index, (key, what) in enumerate(content)
        ]
        if draw(st.integers(0, 5)) == 0:
            records.append((b"\0\x03\0\x01g", b""))  # of another protocol
        body = b"".join(record_bytes(key, value, index) for index, (key, value) in enumerate(records))
        attributes = draw(st.sampled_from([0, 0, 0, 16]))
        shift = draw(st.sampled_from([0] * 9 + [-8]))
        parts.append(
            raw_batch(
                body,
                len(records),
                attributes=attributes,
                producer_id=7 if attributes else -1,
                base_offset=max(0, base_offset + shift),
            )
        )
    return b"".join(parts) + draw(st.sampled_from([b"", bytes(100)]))


def read(data: bytes, selection: Selection) -> list[Row]:
    def decode(wide: Selection) -> Iterator[pa.RecordBatch]:
        return Decoder(wide, window_bytes=WINDOW_BYTES).decode(MemoryBytes(data), Origin("", 3))

    rows: list[Row] = pa.Table.from_batches(last_only(decode, selection), selection.schema).to_pylist()
    return rows


def without_replaced(rows: list[Row]) -> list[Row]:
    """The same, row by row."""

    def key(row: Row) -> tuple[object, ...] | None:
        plain = row["kind"] in (Kind.OFFSET_COMMIT, Kind.OFFSET_TOMBSTONE) and row["producer_id"] is None
        return (row["group"], row["topic"], row["partition"]) if plain else None

    last: dict[object, int] = {}
    for row in rows:
        last[key(row)] = max(last.get(key(row), -1), row["offset"] or 0)
    return [row for row in rows if key(row) is None or row["offset"] == last[key(row)]]


@pytest.mark.long
@settings(max_examples=60)
@given(logs())
def test_rows_are_all_but_the_replaced_ones_in_their_order(data: bytes) -> None:
    assert read(data, Selection()) == without_replaced(decode_segment(data, offsets_partition=3).to_pylist())


@pytest.mark.long
@settings(max_examples=60)
@given(logs(), st.sets(st.sampled_from(sorted(KINDS))), st.sets(st.sampled_from(["g", "h", "x"])))
def test_what_is_left_out_does_not_depend_on_the_selection(data: bytes, kinds: set[str], groups: set[str]) -> None:
    everything = without_replaced(decode_segment(data, offsets_partition=3).to_pylist())
    chosen = Selection(select_schema(["offset", "group"]), frozenset(kinds), frozenset(groups))
    expected = [
        {"offset": row["offset"], "group": row["group"]}
        for row in everything
        if row["kind"] in kinds and row["group"] in groups
    ]
    assert read(data, chosen) == expected


def test_rows_held_back_are_given_out_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "HELD_ROWS", 15)
    monkeypatch.setattr(latest, "SLICE_ROWS", 10)
    rows = read(commits_segment(2000, 2, groups=5), Selection())
    # of 15 keys; the last of each are among them
    assert 15 < len(rows) < 2000
    assert [row["offset"] for row in rows[-15:]] == list(range(1985, 2000))
