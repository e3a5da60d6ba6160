"""What follows from Java's hash of a text: the offsets partition of a group, and the order of a HashMap's keys."""

from __future__ import annotations

from muster_coordinator.records.partitioner import java_string_hash, partition_for

__all__ = ["java_hash_map_order", "java_string_hash", "partition_for"]


def java_hash_map_order(keys: list[str]) -> list[str]:
    """``keys``, given in insertion order, in the order in which a java.util.HashMap of them is walked.

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
