"""`range`: of each topic each subscriber gets a row of neighbouring partitions. See docs/assignors.md.

Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from itertools import pairwise

from muster_coordinator.groups.consumer.assignors.java_order import buckets_for, topics_in_order
from muster_coordinator.groups.consumer.assignors.spec import NO_ASSIGNMENT, Assignment, GroupSpec


def assign_ranges(spec: GroupSpec) -> dict[str, Assignment]:
    """The assignment of every member. Raises AssignorError for a topic that does not exist."""
    members = sorted(spec.topics, key=lambda member_id: _precedence(member_id, spec.instance_ids.get(member_id)))
    ranges: dict[bytes, list[tuple[int, ...]]] = {}
    for topic_id, subscribers in _subscribers(spec, members).items():
        ranges[topic_id] = _ranges(spec.partition_count(topic_id), subscribers)
        ranges[topic_id].reverse()
    common = spec.topics[members[0]] if members else ()
    return {
        member_id: _kept(
            spec.assignments.get(member_id, NO_ASSIGNMENT),
            _take(common if spec.homogeneous else spec.topics[member_id], ranges),
        )
        for member_id in members
    }


def _precedence(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    """Static members come first, by their instance id, then the others by their member id; as Java compares strings,
    by units of UTF-16."""
    own = member_id if instance_id is None else instance_id
    return instance_id is None, own.encode("utf-16-be", "surrogatepass")


def _subscribers(spec: GroupSpec, members: list[str]) -> dict[bytes, int]:
    """The number of members that subscribe to each topic."""
    if spec.homogeneous:
        return dict.fromkeys(spec.topics[members[0]], len(members)) if members else {}
    counts: dict[bytes, int] = {}
    for member_id in members:
        for topic_id in spec.topics[member_id]:
            counts[topic_id] = counts.get(topic_id, 0) + 1
    return counts


def _ranges(partitions: int, subscribers: int) -> list[tuple[int, ...]]:
    """The range of each subscriber: the first ones have one more if the partitions do not come out even."""
    size, extra = divmod(partitions, subscribers)
    starts = [number * size + min(number, extra) for number in range(subscribers + 1)]
    return [tuple(range(start, end)) for start, end in pairwise(starts)]


def _take(topics: tuple[bytes, ...], ranges: dict[bytes, list[tuple[int, ...]]]) -> Assignment:
    taken: Assignment = {}
    for topic_id in topics:
        own = ranges[topic_id].pop()
        if own:
            taken[topic_id] = own
    return {each: taken[each] for each in topics_in_order(taken, buckets_for(len(topics) * 4 // 3 + 1))}


def _kept(before: Assignment, after: Assignment) -> Assignment:
    """`before` itself if both say the same."""
    same = before.keys() == after.keys() and all(set(before[topic]) == set(after[topic]) for topic in after)
    return before if same else after
