"""The offsets partition that a group belongs to (Kafka: GroupCoordinatorService#partitionFor)."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: 31 * h + code unit over UTF-16, as a signed 32-bit integer."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8) + data[position + 1]) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Index of the offsets partition of `group_id` among `partition_count`; abs(Integer.MIN_VALUE) counts as 0."""
    value = java_string_hash(group_id)
    return 0 if value == -0x8000_0000 else abs(value) % partition_count
