"""`AlteredAssignment`: the assignment of a member while an assignor changes it."""

from __future__ import annotations

from muster_coordinator.groups.consumer.assignors.java_order import (
    DEFAULT_BUCKETS,
    buckets_for,
    buckets_of_copy,
    filled,
    grown,
    partition_hash,
    partitions_in_order,
    put,
    topics_in_order,
    uuid_hash,
)
from muster_coordinator.groups.consumer.assignors.spec import Assignment


def topics_as_recorded(assignment: Assignment) -> list[bytes]:
    """The topics of an assignment in the order in which Kafka walks them after it has read the record."""
    return topics_in_order(assignment, DEFAULT_BUCKETS)


def partitions_as_recorded(partitions: tuple[int, ...]) -> list[int]:
    """The order of a topic's partitions as Kafka reads them from a record, like `topics_as_recorded`."""
    return partitions_in_order(partitions, buckets_of_copy(len(partitions)))


class _Partitions:
    """A HashSet of partitions: `added` in order; a dictionary for the sake of removal."""

    __slots__ = ("added", "buckets")

    def __init__(self, partitions: list[int], buckets: int) -> None:
        self.added: dict[int, None] = dict.fromkeys(partitions)
        self.buckets = filled(buckets, [partition_hash(partition) for partition in partitions])

    def add(self, partition: int) -> None:
        hashes = map(partition_hash, self.added)
        self.buckets = put(self.buckets, len(self.added), hashes, partition_hash(partition))
        self.added[partition] = None

    def result(self) -> tuple[int, ...]:
        mask = self.buckets - 1
        return tuple(sorted(self.added, key=lambda partition: partition_hash(partition) & mask))


class AlteredAssignment:
    """A copy of `assignment` that keeps to the order of Kafka's copy (AssignorHelpers#deepCopyAssignment)."""

    __slots__ = ("_buckets", "_ranks", "_topics")

    def __init__(self, assignment: Assignment) -> None:
        topics = topics_as_recorded(assignment)
        self._topics: dict[bytes, _Partitions] = {}
        for topic_id in topics:
            partitions = partitions_as_recorded(assignment[topic_id])
            self._topics[topic_id] = _Partitions(partitions, buckets_of_copy(len(partitions)))
        self._buckets = filled(buckets_for(len(topics)), [uuid_hash(topic_id) for topic_id in topics])
        self._ranks: dict[bytes, int] = {topic_id: rank for rank, topic_id in enumerate(topics)}

    def add(self, topic_id: bytes, partition: int, new_buckets: int) -> None:
        """`new_buckets`: of the set, if it is the topic's first partition."""
        self._buckets = grown(self._buckets, len(self._topics))
        found = self._topics.get(topic_id)
        if found is None:
            found = self._topics[topic_id] = _Partitions([], new_buckets)
            self._ranks[topic_id] = min(self._ranks.values(), default=0) - 1  # in front, as computeIfAbsent puts it
        found.add(partition)

    def remove(self, topic_id: bytes, partition: int) -> None:
        """A topic goes with its last partition."""
        found = self._topics.get(topic_id)
        if found is None:
            return
        found.added.pop(partition, None)
        if not found.added:
            self.remove_topic(topic_id)

    def remove_topic(self, topic_id: bytes) -> None:
        del self._topics[topic_id]
        del self._ranks[topic_id]

    def result(self, before: Assignment) -> Assignment:
        """`before` itself if nothing came of all changes."""
        if self._says(before):
            return before
        mask = self._buckets - 1
        topics = sorted(self._topics, key=lambda topic_id: (uuid_hash(topic_id) & mask, self._ranks[topic_id]))
        return {topic_id: self._topics[topic_id].result() for topic_id in topics}

    def _says(self, assignment: Assignment) -> bool:
        if self._topics.keys() != assignment.keys():
            return False
        return all(
            len(found.added) == len(assignment[topic_id]) and found.added.keys() == set(assignment[topic_id])
            for topic_id, found in self._topics.items()
        )
