"""A run of offsets is, byte for byte and in what it changes, its records one after the other."""

from __future__ import annotations

import struct

import pytest

from muster_coordinator.records.batch import HEADER_BYTES, batch_bytes, count_of, encode_batch, encode_record
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.offset_run import OffsetRun
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitValue

COMMIT_MS = 1_760_000_000_123
STRIDE = 18
OFFSETS = [0, 1, -1, 2**63 - 1, -(2**63), 0x0102030405060708]
EPOCHS = [-1, 0, 2**31 - 1, -(2**31), 0x01020304]


def entries_of(count: int) -> list[tuple[int, int, int]]:
    """(partition, offset, leader epoch), no two alike and all bytes of them in use."""
    return [
        (number * 0x01010101 % 2**31, OFFSETS[number % len(OFFSETS)] ^ number, EPOCHS[number % len(EPOCHS)])
        for number in range(count)
    ]


def run_of(group: str, topic: str, entries: list[tuple[int, int, int]], topic_id: bytes) -> OffsetRun:
    partitions, offsets, epochs = zip(*entries, strict=True)
    data = b"".join(struct.pack(">iqi", *entry) + b"??" for entry in entries)
    prefix = encode_offset_commit_key(group, topic, 0)[:-4]
    return OffsetRun(group, topic, prefix, data, STRIDE, partitions, offsets, epochs, COMMIT_MS, topic_id)


def records_of(
    group: str, topic: str, entries: list[tuple[int, int, int]], topic_id: bytes
) -> list[tuple[bytes, bytes, OffsetCommitValue]]:
    values = [OffsetCommitValue(offset, epoch, "", COMMIT_MS, -1, topic_id) for _, offset, epoch in entries]
    keys = [encode_offset_commit_key(group, topic, partition) for partition, _, _ in entries]
    return [(key, encode_offset_commit_value(value), value) for key, value in zip(keys, values, strict=True)]


@pytest.mark.parametrize("topic_id", [NO_TOPIC_ID, bytes(range(16))], ids=["no id", "id"])
@pytest.mark.parametrize("name", ["n", "n" * 20, "n" * 5000], ids=["short", "middle", "long"])
@pytest.mark.parametrize("first_delta", [0, 13, 63, 64, 4090, 4096, 8191, 1_048_570])
@pytest.mark.parametrize("count", [1, 2, 50, 200])
def test_run_has_the_bytes_of_its_records(count: int, first_delta: int, name: str, topic_id: bytes) -> None:
    entries = entries_of(count)
    run = run_of(name, name + "-topic", entries, topic_id)
    records = records_of(name, name + "-topic", entries, topic_id)
    encoded = [encode_record(first_delta + n, key, value) for n, (key, value, _) in enumerate(records)]
    assert run.encode(first_delta) == b"".join(encoded)


def test_run_among_records_makes_the_batch_of_them_all() -> None:
    entries, other = entries_of(70), [(b"k", b"v", None), (b"k", None, None)]
    run, records = run_of("g", "t", entries, NO_TOPIC_ID), records_of("g", "t", entries, NO_TOPIC_ID)
    at = {"base_offset": 9, "leader_epoch": 3, "timestamp_ms": COMMIT_MS}
    together = [other[0], run, run, other[1]]
    assert encode_batch(together, **at) == encode_batch([other[0], *records, *records, other[1]], **at)
    assert count_of(together) == 2 * 70 + 2


def test_run_is_counted_with_the_bytes_of_its_records() -> None:
    entries = entries_of(7)
    run, records = run_of("g", "t", entries, NO_TOPIC_ID), records_of("g", "t", entries, NO_TOPIC_ID)
    assert batch_bytes([run]) == batch_bytes(records) == HEADER_BYTES + run.bytes_max


def test_run_stores_what_its_records_say_at_the_offsets_that_they_get() -> None:
    entries = entries_of(9)
    run, records = run_of("g", "t", entries, b"i" * 16), records_of("g", "t", entries, b"i" * 16)
    assert list(run.stored(100)) == [
        (partition, (100 + number, value))
        for number, ((partition, _, _), (_, _, value)) in enumerate(zip(entries, records, strict=True))
    ]
