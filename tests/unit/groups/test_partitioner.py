"""The group's partition and Java's string hash (vectors computed with a JVM; reference, section 4.1)."""

from __future__ import annotations

import pytest

from muster_coordinator.groups.classic.java_hash_map import java_hash_map_order
from muster_coordinator.records.partitioner import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("group_id", "hash_code", "partition"),
    [
        ("", 0, 0),
        ("test", 3556498, 48),
        ("group", 98629247, 47),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("polygenelubricants", -(2**31), 0),
        ("grp-😀", -1235730613, 13),
    ],
)
def test_group_maps_to_the_partition_that_kafka_takes(group_id: str, hash_code: int, partition: int) -> None:
    assert java_string_hash(group_id) == hash_code
    assert partition_for(group_id, 50) == partition


def test_group_id_outside_ascii_is_hashed_by_utf16() -> None:
    assert partition_for("grp-é", 50) == 47


def test_hash_map_order_is_by_bucket_and_grows_with_the_number_of_keys() -> None:
    # One-letter keys hash to their code point: "a" is 97, bucket 1 of 16, bucket 33 of 64.
    assert java_hash_map_order(["p", "a", "q", "b"]) == ["p", "a", "q", "b"]  # 112 and 113 are buckets 0 and 1
    assert java_hash_map_order(["q", "a"]) == ["q", "a"]  # one bucket: insertion order
    many = [chr(code) for code in range(97, 97 + 26)]
    assert java_hash_map_order(list(reversed(many))) == sorted(many, key=lambda key: ord(key) % 64)
