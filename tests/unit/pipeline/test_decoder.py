"""numpy's decoder against the plain one, and the rules of damage, selection, windows and limits."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import kafka_bytes
from tests.unit.pipeline.compare import comparable
from tests.unit.pipeline.logs import (
    batches,
    commit,
    commits_segment,
    raw_batch,
    record_bytes,
    right_records,
    segments,
)
from tests.unit.pipeline.plain import plain_rows

from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.group_metadata import encode_group_metadata_key
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_pipeline.decode.bytes_source import FileBytes, MemoryBytes
from muster_pipeline.decode.decoder import Decoder, Selection, decode_segment
from muster_pipeline.decode.errors import SegmentDamagedError, SegmentReadError
from muster_pipeline.decode.schema import SCHEMA, Kind, Problem, select_schema

GOLDEN = kafka_bytes("records/kafka-4.3.1.txt")


AT = {"base_offset": 0, "leader_epoch": 0, "timestamp_ms": 0}


def problems(table: pa.Table) -> list[tuple[str, int, int]]:
    rows = table.select(["problem", "position", "problem_bytes"]).to_pylist()
    return [(row["problem"], row["position"], row["problem_bytes"]) for row in rows if row["problem"]]


@pytest.mark.long
@settings(max_examples=150)
@given(segments())
def test_any_segment_decodes_as_the_plain_decoder_reads_it(data: bytes) -> None:
    assert comparable(decode_segment(data)) == plain_rows(data)


@pytest.mark.long
@settings(max_examples=15)
@given(st.lists(batches(right_records), min_size=49, max_size=90).map(b"".join))
def test_many_batches_side_by_side_decode_as_the_plain_decoder_reads_them(data: bytes) -> None:
    assert comparable(decode_segment(data)) == plain_rows(data)


@pytest.mark.long
@settings(max_examples=80)
@given(segments(), st.integers(1, 400))
def test_windows_of_any_size_give_the_same_rows(data: bytes, window_bytes: int) -> None:
    small = Decoder(window_bytes=window_bytes).decode(MemoryBytes(data))
    assert pa.Table.from_batches(small, SCHEMA).to_pylist() == decode_segment(data).to_pylist()


@settings(max_examples=150)
@given(st.binary(max_size=400))
def test_random_bytes_end_in_rows_that_say_so(data: bytes) -> None:
    table = decode_segment(data)
    assert sum(size for _, _, size in problems(table)) == len(data)


@pytest.mark.parametrize("version", range(5))
def test_offset_value_of_every_version_written_by_kafka_decodes(version: int) -> None:
    record = (GOLDEN["offset-commit-key"], GOLDEN[f"offset-commit-value-{version}"])
    [row] = decode_segment(encode_batch([record], base_offset=9, leader_epoch=2, timestamp_ms=5)).to_pylist()
    assert (row["group"], row["topic"], row["partition"], row["kind"]) == ("group-ä", "topic", 3, "offset_commit")
    assert (row["offset"], row["leader_epoch"], row["timestamp_ms"], row["value_version"]) == (9, 2, 5, version)
    assert (row["committed_offset"], row["metadata"]) == (1234567890123, "meta-ü")
    assert row["committed_leader_epoch"] == (9 if version >= 3 else -1)
    assert row["expire_timestamp_ms"] == (1700000099999 if version == 1 else -1)


@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if name.startswith("offset-commit-value-4")))
def test_offset_value_of_version_4_is_read_without_the_plain_decoder(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("muster_pipeline.decode.slow_rows.decode_record", None)
    batch = encode_batch(
        [(GOLDEN["offset-commit-key"], GOLDEN[name])] * 2, base_offset=9, leader_epoch=2, timestamp_ms=5
    )
    assert comparable(decode_segment(batch)) == plain_rows(batch)


@pytest.mark.parametrize(
    ("tags", "kind"),
    [
        (b"\1\5\2ab", Kind.OFFSET_COMMIT),  # of a later release
        (b"\0behind", Kind.OFFSET_COMMIT),
        (b"\1\0\x11" + bytes(17), Kind.UNREADABLE),  # a topic id that is none
        (b"\1\0\x10" + bytes(15), Kind.UNREADABLE),
        (b"", Kind.UNREADABLE),
    ],
)
def test_offset_value_with_other_tagged_fields_is_what_the_plain_decoder_reads(tags: bytes, kind: str) -> None:
    value = GOLDEN["offset-commit-value-4"][:-1] + tags
    batch = encode_batch([(GOLDEN["offset-commit-key"], value), commit("g", "t", 0, 1)], **AT)
    rows = decode_segment(batch)
    assert rows.column("kind").to_pylist() == [kind, Kind.OFFSET_COMMIT]
    assert comparable(rows) == plain_rows(batch)


@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if name.startswith("batch-")))
def test_batch_written_by_kafka_decodes_as_the_plain_decoder_reads_it(name: str) -> None:
    assert comparable(decode_segment(GOLDEN[name])) == plain_rows(GOLDEN[name])


def test_assignment_of_the_consumer_protocol_is_decoded() -> None:
    assignment = struct.pack(">hih6siiii", 3, 1, 6, b"orders", 2, 0, 4, -1)
    from muster_coordinator.records.group_metadata import (
        GroupMember,
        GroupMetadataValue,
        encode_group_metadata_key,
        encode_group_metadata_value,
    )

    members = tuple(
        GroupMember(f"m{i}", None, "c", "/h", 1, 2, b"", data) for i, data in enumerate([assignment, b"\xff"])
    )
    value = encode_group_metadata_value(GroupMetadataValue("consumer", 4, "range", "m0", 7, members))
    batch = encode_batch([(encode_group_metadata_key("g"), value)], base_offset=0, leader_epoch=0, timestamp_ms=0)
    [row] = decode_segment(batch).to_pylist()
    assert [member["assigned"] for member in row["members"]] == [
        [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 4}],
        None,
    ]


def test_zero_tail_is_one_row_with_its_length() -> None:
    data = commits_segment(10, 2)
    assert problems(decode_segment(data + bytes(1000))) == [(Problem.ZERO_TAIL, len(data), 1000)]


def test_torn_last_batch_is_one_row_and_the_rest_is_read() -> None:
    data = commits_segment(10, 2)
    size = len(commits_segment(2, 2))
    table = decode_segment(data[:-1])
    assert problems(table) == [(Problem.TORN_BATCH, 4 * size, size - 1)]
    assert table.num_rows == 9


def test_batch_with_a_bad_crc_is_one_row_and_the_batches_behind_it_are_read() -> None:
    data = bytearray(commits_segment(10, 2))
    size = len(commits_segment(2, 2))
    data[size + 70] ^= 1
    table = decode_segment(bytes(data))
    assert problems(table) == [(Problem.BAD_CRC, size, size)]
    assert table.num_rows == 9


def test_batch_of_an_old_format_is_one_row() -> None:
    data = bytearray(commits_segment(4, 2))
    data[16] = 1
    assert problems(decode_segment(bytes(data))) == [(Problem.UNREADABLE_MAGIC, 0, len(data) // 2)]


def test_batch_planted_in_a_record_is_never_taken_for_one() -> None:
    planted = encode_batch([commit("evil", "orders", 0, 1)], base_offset=5, leader_epoch=0, timestamp_ms=0)
    carrier = encode_batch([(b"\0\x07key", planted * 3)], base_offset=0, leader_epoch=0, timestamp_ms=0)
    for damaged in (carrier, carrier[:8] + b"\xff" + carrier[9:], carrier[:-1], carrier[:30] + b"\0" + carrier[31:]):
        assert "evil" not in decode_segment(damaged + carrier).column("group").to_pylist()


def test_unknown_value_version_is_a_row_that_names_it() -> None:
    key, value = commit("g", "t", 0, 1)
    batch = encode_batch([(key, b"\0\x09" + value[2:])], base_offset=3, leader_epoch=0, timestamp_ms=0)
    [row] = decode_segment(batch).to_pylist()
    assert (row["kind"], row["problem"], row["offset"]) == (Kind.UNREADABLE, Problem.UNSUPPORTED_VERSION, 3)
    assert row["value_version"] == 9
    assert "version 9" in row["problem_detail"]


@pytest.mark.parametrize(
    "data",
    [
        commits_segment(4, 2) + b"\0",
        commits_segment(4, 2)[:-1],
        encode_batch([(b"\0\x01", b"")], base_offset=0, leader_epoch=0, timestamp_ms=0),
        raw_batch(b"\x05\x05\x05\x05\x05\x05\x05\x05", 1),
    ],
    ids=["tail", "torn", "record", "records"],
)
def test_failfast_raises_with_file_and_position(data: bytes) -> None:
    with pytest.raises(SegmentDamagedError, match=r"^some\.log, byte \d+: "):
        decode_segment(data, file="some.log", fail_fast=True)


def test_failfast_is_not_evaded_by_a_selection_of_groups() -> None:
    data = encode_batch([(b"\0\x01", b""), commit("g", "t", 0, 1)], base_offset=0, leader_epoch=0, timestamp_ms=0)
    with pytest.raises(SegmentDamagedError):
        decode_segment(data, selection=Selection(groups=frozenset({"g"})), fail_fast=True)


@pytest.mark.long
@settings(max_examples=80)
@given(
    segments(),
    st.sets(st.sampled_from(sorted([Kind.OFFSET_COMMIT, Kind.GROUP_METADATA, Kind.DAMAGED, Kind.UNREADABLE]))),
)
def test_selection_of_kinds_is_the_filter_of_all_rows(data: bytes, kinds: set[str]) -> None:
    expected = [row for row in decode_segment(data).to_pylist() if row["kind"] in kinds]
    selected = decode_segment(data, selection=Selection(kinds=frozenset(kinds)))
    assert selected.to_pylist() == expected


@settings(max_examples=80)
@given(segments(), st.sets(st.sampled_from(["", "group", "ä" * 40])))
def test_selection_of_groups_is_the_filter_of_all_rows(data: bytes, groups: set[str]) -> None:
    expected = [row for row in decode_segment(data).to_pylist() if row["group"] in groups]
    selected = decode_segment(data, selection=Selection(groups=frozenset(groups)))
    assert selected.to_pylist() == expected


@settings(max_examples=30)
@given(segments(), st.lists(st.sampled_from(SCHEMA.names), unique=True, min_size=1, max_size=4))
def test_selection_of_columns_is_the_projection_of_all_columns(data: bytes, columns: list[str]) -> None:
    selected = decode_segment(data, selection=Selection(select_schema(columns)))
    assert selected.equals(decode_segment(data).select(columns))


@pytest.mark.parametrize(
    "record",
    [
        (encode_offset_commit_key("g\x80", "t", 0), None),
        (encode_offset_commit_key("g", "t\x80", 0), None),
        (encode_offset_commit_key("g", "t", 0), encode_offset_commit_value(OffsetCommitValue(1, 2, "m\x80", 3))),
        (encode_group_metadata_key("g\x80"), None),
    ],
    ids=["group", "topic", "metadata", "group metadata"],
)
def test_text_that_is_no_utf8_makes_a_record_unreadable_whatever_is_selected(
    record: tuple[bytes, bytes | None],
) -> None:
    bad = tuple(part and part.replace(b"\xc2\x80", b"x\x80") for part in record)
    data = encode_batch([commit("g", "t", 0, 1), bad, commit("g", "t", 0, 2)], **AT)
    kinds = [Kind.OFFSET_COMMIT, Kind.UNREADABLE, Kind.OFFSET_COMMIT]
    for columns in (["kind"], ["offset", "kind"], None):
        assert decode_segment(data, selection=Selection(select_schema(columns))).column("kind").to_pylist() == kinds
    only = Selection(kinds=frozenset({Kind.UNREADABLE}))
    assert decode_segment(data, selection=only).column("offset").to_pylist() == [1]


def test_unknown_column_and_unknown_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="no such columns: offsett"):
        select_schema(["offsett"])
    with pytest.raises(ValueError, match="no such kinds: commits"):
        Selection(kinds=frozenset({"commits"}))


def test_batch_above_the_limit_is_skipped_and_said_without_reading_it_whole() -> None:
    large = encode_batch([(b"\0\x07", bytes(100_000))], base_offset=0, leader_epoch=0, timestamp_ms=0)
    data = large + commits_segment(3, 1)
    table = pa.Table.from_batches(Decoder(max_batch_bytes=10_000, window_bytes=5_000).decode(MemoryBytes(data)), SCHEMA)
    assert problems(table) == [(Problem.TOO_LARGE, 0, len(large))]
    assert table.num_rows == 4


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_bomb_is_a_row_and_not_memory(codec: int) -> None:
    module = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}.get(codec)
    zeros = bytes(64 << 20)
    body = bytes(cramjam.snappy.compress_raw(zeros) if module is None else module.compress(zeros))
    data = raw_batch(body, 1, attributes=codec) * 3 + commits_segment(3, 1)
    del zeros
    tracemalloc.start()
    table = pa.Table.from_batches(Decoder(max_batch_bytes=8 << 20).decode(MemoryBytes(data)), SCHEMA)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [problem for problem, _, _ in problems(table)] == [Problem.TOO_LARGE] * 3
    assert table.num_rows == 6
    assert peak < 64 << 20


def test_compressed_batches_beyond_the_budget_of_a_window_are_read_in_the_next_one() -> None:
    body = b"".join(record_bytes(*commit("g", "t", 0, number, "m" * 100), number) for number in range(300))
    data = b"".join(
        raw_batch(bytes(cramjam.zstd.compress(body)), 300, attributes=4, base_offset=300 * number)
        for number in range(10)
    )
    budget = len(body) + 1
    table = pa.Table.from_batches(Decoder(max_batch_bytes=budget).decode(MemoryBytes(data)), SCHEMA)
    assert sorted(table.column("offset").to_pylist()) == list(range(3000))


def test_claimed_number_of_records_allocates_nothing() -> None:
    assert problems(decode_segment(raw_batch(b"", 2**31 - 1, last_delta=0)))[0][0] == Problem.BAD_RECORDS


def test_large_batch_is_read_with_a_longer_window() -> None:
    data = commits_segment(5000, 5000) + commits_segment(10, 1, base_offset=5000)
    table = pa.Table.from_batches(Decoder(window_bytes=1000).decode(MemoryBytes(data)), SCHEMA)
    assert sorted(table.column("offset").to_pylist()) == list(range(5010))


def test_random_garbage_behind_good_batches_is_bounded_work() -> None:
    garbage = random.Random(6).randbytes(1 << 20)
    table = decode_segment(commits_segment(4, 2) + garbage)
    assert problems(table)[-1][1] + problems(table)[-1][2] == len(commits_segment(4, 2)) + len(garbage)


def test_file_that_vanished_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SegmentReadError, match=r"gone\.log, byte 0: No such file"):
        FileBytes(str(tmp_path / "gone.log"))


def test_file_cut_while_it_is_read_is_an_error_with_the_position(tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    path.write_bytes(commits_segment(100, 1))
    with FileBytes(str(path)) as source:
        path.write_bytes(commits_segment(50, 1))
        with pytest.raises(SegmentReadError, match="it was longer when it was opened"):
            list(Decoder().decode(source))
