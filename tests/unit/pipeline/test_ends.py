"""End offsets from files: right ones, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster_pipeline.analytics.ends import ENDS_SCHEMA, EndOffsetsError, ends_from_file

ROWS = [
    {"topic": "orders", "partition": 0, "timestamp_ms": 1, "end_offset": 5},
    {"topic": "orders", "partition": 1, "timestamp_ms": 1, "end_offset": 0},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ends.csv", "topic,partition,timestamp_ms,end_offset\norders,0,1,5\norders,1,1,0\n"),
        ("ends.csv", "end_offset,more,topic,partition,timestamp_ms\n5,x,orders,0,1\n0,y,orders,1,1\n"),
        (
            "ends.json",
            '{"topic": "orders", "partition": 0, "timestamp_ms": 1, "end_offset": 5}\n'
            '{"topic": "orders", "partition": 1, "timestamp_ms": 1, "end_offset": 0}\n',
        ),
    ],
)
def test_text_files_are_read_by_the_names_of_their_columns(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert ends_from_file(tmp_path / name).to_pylist() == ROWS


def test_parquet_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS, ENDS_SCHEMA), tmp_path / "ends.parquet")
    assert ends_from_file(tmp_path / "ends.parquet").to_pylist() == ROWS


def test_directory_of_parquet_files_is_read_as_one(tmp_path: Path) -> None:
    for number, row in enumerate(ROWS):
        pq.write_table(pa.Table.from_pylist([row], ENDS_SCHEMA), tmp_path / f"{number}.parquet")
    (tmp_path / "3.new").write_bytes(b"of a call that did not end")
    assert ends_from_file(tmp_path).to_pylist() == ROWS


def test_directory_without_files_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(EndOffsetsError, match="muster pipeline mirror"):
        ends_from_file(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ends.txt", "", "are a .csv, .json .one object per line. or .parquet file"),
        ("ends.csv", "topic,partition\norders,0\n", "needs the columns topic, partition, timestamp_ms, end_offset"),
        ("ends.csv", "topic,partition,timestamp_ms,end_offset\norders,x,1,5\n", "needs the columns"),
        ("ends.csv", "topic,partition,timestamp_ms,end_offset\norders,,1,5\n", "1 rows have no partition"),
        ("ends.csv", "topic,partition,timestamp_ms,end_offset\norders,0,1,-5\n", "negative"),
        ("ends.json", "{", "needs the columns"),
        ("away.csv", None, "No such file"),
    ],
)
def test_wrong_files_are_refused_with_their_name_and_a_reason(
    tmp_path: Path, name: str, text: str | None, reason: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(EndOffsetsError, match=reason) as caught:
        ends_from_file(tmp_path / name)
    assert name in str(caught.value)
