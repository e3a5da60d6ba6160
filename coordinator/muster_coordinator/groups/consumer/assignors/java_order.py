"""The order in which a java.util.HashMap or HashSet is walked, which decides between equals in Kafka's assignors.

A table has a power of two of buckets and is walked by bucket. Within a bucket an entry stands behind those that were
put before it; one of `computeIfAbsent` stands in front of them. A table doubles when three quarters of it are in use,
or when a ninth entry is put into a bucket of fewer than 64; it never shrinks. Not reproduced: nine entries in a bucket
of 64 and more, which become a tree. Source: java.util.HashMap of Java 17; since Java 19 the copy of 12, 24, 48, ...
elements has half as many buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from muster_coordinator.records.partitioner import java_string_hash

_K = TypeVar("_K")

DEFAULT_BUCKETS = 16
_CROWD = 8
_TREES_FROM = 64


def grown(buckets: int, count: int) -> int:
    """The number of buckets that a table of `buckets` grows to for `count` entries, if they are spread well."""
    while count > buckets * 3 // 4:
        buckets *= 2
    return buckets


def filled(buckets: int, hashes: Sequence[int]) -> int:
    """The number of buckets that a table of `buckets` grows to when entries with these hashes are put into it one by
    one."""
    end = grown(buckets, len(hashes))
    if len(hashes) <= _CROWD or end >= _TREES_FROM:
        return end
    for number in range(len(hashes)):
        buckets = put(buckets, number, hashes[:number], hashes[number])
    return buckets


def put(buckets: int, count: int, hashes: Iterable[int], added: int) -> int:
    """The number of buckets that a table of `buckets` with `count` entries of these hashes has once another one was put
    into it."""
    if buckets < _TREES_FROM and count >= _CROWD:
        mask = buckets - 1
        if sum(1 for each in hashes if not (each ^ added) & mask) >= _CROWD:
            buckets *= 2
    return grown(buckets, count + 1)


def buckets_for(capacity: int) -> int:
    """HashMap(capacity), for a capacity that is not negative."""
    return 1 << (capacity - 1).bit_length() if capacity > 1 else 1


def buckets_of_copy(count: int) -> int:
    """HashSet(a collection of `count` elements)."""
    return buckets_for(max(count * 4 // 3 + 1, DEFAULT_BUCKETS))


@lru_cache(maxsize=65536)
def string_hash(text: str) -> int:
    """A string's hash code as HashMap spreads it, 32 bits."""
    return _spread(java_string_hash(text) & 0xFFFFFFFF)


@lru_cache(maxsize=65536)
def uuid_hash(topic_id: bytes) -> int:
    """The hash code of an org.apache.kafka.common.Uuid as HashMap spreads it, 32 bits."""
    folded = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return _spread((folded >> 32) ^ (folded & 0xFFFFFFFF))


def _spread(hash_code: int) -> int:
    return hash_code ^ (hash_code >> 16)


def partition_hash(partition: int) -> int:
    """The hash code of an Integer that is not negative, as HashMap spreads it."""
    return _spread(partition)


def strings_in_order(texts: Iterable[str], buckets: int) -> list[str]:
    """The keys of a table of `buckets` that `texts` were put into, in this order."""
    return _in_order(list(texts), string_hash, buckets)


def topics_in_order(topic_ids: Iterable[bytes], buckets: int) -> list[bytes]:
    """The order of topic ids, found like that of strings."""
    return _in_order(list(topic_ids), uuid_hash, buckets)


def partitions_in_order(partitions: Iterable[int], buckets: int) -> list[int]:
    """The order of partitions, found like that of strings."""
    return _in_order(list(partitions), partition_hash, buckets)


def _in_order(keys: list[_K], hash_of: Callable[[_K], int], buckets: int) -> list[_K]:
    if len(keys) < 2:
        return keys
    mask = filled(buckets, [hash_of(key) for key in keys]) - 1
    return sorted(keys, key=lambda key: hash_of(key) & mask)
