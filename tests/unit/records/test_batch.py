"""Record batch codec: round trips, bounds, and damage of every kind."""

from __future__ import annotations

import itertools

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch as kio_read_batch

from muster_coordinator.records.batch import (
    HEADER_BYTES,
    BatchRecord,
    CorruptBatchError,
    batch_bytes,
    encode_batch,
    iter_batches,
    read_batch,
    split_records,
)

RECORDS = st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=80)


def one_batch(offset: int = 0, value: bytes = b"value") -> bytes:
    return encode_batch([(b"key", value)], base_offset=offset, leader_epoch=3, timestamp_ms=1000)


def with_body(codec: int, body: bytes, count: int = 1) -> bytes:
    """A batch with the attributes of `codec` around any body, its CRC right."""
    head = bytearray(one_batch()[:HEADER_BYTES])
    head[21:23] = codec.to_bytes(2, "big")
    head[57:61] = count.to_bytes(4, "big")
    head[8:12] = (HEADER_BYTES - 12 + len(body)).to_bytes(4, "big")
    head[17:21] = crc32c(bytes(head[21:]) + body).to_bytes(4, "big")
    return bytes(head) + body


def test_batch_that_the_cleaner_has_emptied_reads_as_no_records() -> None:
    """Kafka keeps the header, for the producer's state [testLoadWithEmptyControlBatch]."""
    batch = read_batch(with_body(0x30, b"", 0), 0)  # transactional, control
    assert batch.is_control
    assert batch.records() == []
    assert batch.end_offset == 1


@given(RECORDS, st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.integers(0, 2**60))
def test_encoded_batch_reads_back(
    records: list[tuple[bytes, bytes | None]], base_offset: int, epoch: int, timestamp_ms: int
) -> None:
    batch = read_batch(encode_batch(records, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms), 0)
    expected = [BatchRecord(base_offset + i, timestamp_ms, key, value) for i, (key, value) in enumerate(records)]
    assert batch.records() == expected
    assert (batch.end_offset, batch.leader_epoch) == (base_offset + len(records), epoch)


@given(RECORDS)
def test_independent_reader_agrees(records: list[tuple[bytes, bytes | None]]) -> None:
    data = encode_batch(records, base_offset=7, leader_epoch=3, timestamp_ms=1_700_000_000_000)
    batch, size = kio_read_batch(data, 0)
    assert size == len(data)
    assert [(record.offset, record.key, record.value) for record in batch.records] == [
        (7 + i, key, value) for i, (key, value) in enumerate(records)
    ]


def test_more_records_than_small_varints_read_back() -> None:
    records = [(b"k%d" % i, b"v" * (i % 7)) for i in range(5000)]
    batch = read_batch(encode_batch(records, base_offset=0, leader_epoch=0, timestamp_ms=0))
    assert [(record.key, record.value) for record in batch.records()] == records


def test_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([], base_offset=0, leader_epoch=0, timestamp_ms=0)


def test_batches_one_behind_the_other_are_iterated() -> None:
    data = one_batch(0) + one_batch(1, b"x" * 500) + one_batch(2)
    assert [batch.base_offset for batch in iter_batches(data)] == [0, 1, 2]


def test_iteration_stops_with_an_error_at_trailing_bytes() -> None:
    data = one_batch() + b"\0" * 10
    batches = iter_batches(data)
    next(batches)
    with pytest.raises(CorruptBatchError) as caught:
        next(batches)
    assert caught.value.position == len(one_batch())


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (16, b"\1", "magic"),
        (8, b"\0\0\0\5", "length"),
        (8, b"\xff\xff\xff\xff", "length"),
        (20, b"\0", "CRC"),
    ],
    ids=["old magic", "length below a header", "negative length", "wrong crc"],
)
def test_damaged_header_is_corrupt_and_says_how(position: int, value: bytes, reason: str) -> None:
    data = bytearray(one_batch())
    data[position : position + len(value)] = value
    with pytest.raises(CorruptBatchError, match=reason) as caught:
        read_batch(bytes(data))
    assert not caught.value.truncated


@pytest.mark.parametrize(
    "body",
    [b"", b"\x80", b"\x0c\0\0\0\x7e", b"\xff" * 20, b"\x01", one_batch()[HEADER_BYTES:] + b"\0"],
    ids=["nothing", "open varint", "key leaves the record", "endless varint", "negative length", "trailing byte"],
)
def test_body_that_does_not_parse_is_corrupt(body: bytes) -> None:
    batch = read_batch(with_body(0, body))
    with pytest.raises(CorruptBatchError):
        batch.records()


@given(st.binary(max_size=300), st.integers(0, 7), st.integers(0, 5))
def test_any_body_gives_records_or_corrupt(body: bytes, codec: int, count: int) -> None:
    batch = read_batch(with_body(codec, body, count))
    try:
        batch.records()
    except CorruptBatchError:
        pass


def test_snappy_without_framing_decodes() -> None:
    body = one_batch()[HEADER_BYTES:]
    batch = read_batch(with_body(2, bytes(cramjam.snappy.compress_raw(body))))
    assert batch.records() == [BatchRecord(0, 1000, b"key", b"value")]


def test_log_append_time_counts_for_every_record() -> None:
    batch = read_batch(with_body(0x08, one_batch()[HEADER_BYTES:]))
    assert [record.timestamp_ms for record in batch.records()] == [batch.max_timestamp_ms]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_corrupt(data: bytes) -> None:
    try:
        read_batch(data)
    except CorruptBatchError:
        pass


RECORDS = st.lists(st.tuples(st.binary(min_size=1, max_size=30), st.none() | st.binary(max_size=60)), min_size=1)


@given(RECORDS, st.integers(HEADER_BYTES, 400))
def test_records_are_split_in_order_into_as_few_batches_as_hold_them(
    records: list[tuple[bytes, bytes | None]], bytes_max: int
) -> None:
    parts = list(split_records(records, bytes_max))
    assert [record for part in parts for record in part] == records
    assert all(batch_bytes(part) <= bytes_max or len(part) == 1 for part in parts)
    for part, following in itertools.pairwise(parts):
        assert batch_bytes([*part, following[0]]) > bytes_max, "no batch ends before it is full"


@given(RECORDS)
def test_size_that_is_estimated_is_never_too_small(records: list[tuple[bytes, bytes | None]]) -> None:
    encoded = encode_batch(records, base_offset=0, leader_epoch=0, timestamp_ms=0)
    assert len(encoded) <= batch_bytes(records)
