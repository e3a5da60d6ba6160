"""The order in which Java walks the keys of a HashMap, which decides ties of a protocol vote."""

from __future__ import annotations

from muster_coordinator.records.partitioner import java_string_hash


def java_hash_map_order(keys: list[str]) -> list[str]:
    """`keys`, given in insertion order, in the order in which a java.util.HashMap of them is walked.

    Kafka breaks the tie of a protocol vote by that order; to choose the same protocol we walk the same way. (Buckets of
    eight and more colliding keys become trees; their order is not reproduced.)
    """
    size = 16
    while len(keys) > size * 3 // 4:
        size *= 2

    def bucket(key: str) -> int:
        value = java_string_hash(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (size - 1)

    return sorted(keys, key=bucket)
