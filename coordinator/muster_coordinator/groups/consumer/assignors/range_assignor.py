"""`range`: of each topic each subscriber gets a row of neighbouring partitions. See docs/assignors.md.

Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from itertools import pairwise

from muster_coordinator.groups.consumer.assignors.java_order import buckets_for, topics_in_order
from muster_coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec


def assign_ranges(spec: GroupSpec) -> dict[str, Assignment]:
    """The assignment of every member. Raises AssignorError for a topic that does not exist."""
    members = sorted(spec.members.items(), key=_precedence)
    ranges: dict[bytes, list[tuple[int, ...]]] = {}
    for topic_id, subscribers in _subscribers(spec, members).items():
        ranges[topic_id] = _ranges(spec.partition_count(topic_id), subscribers)
        ranges[topic_id].reverse()
    common = members[0][1].topics if members else ()
    return {
        member_id: _kept(member.assignment, _take(common if spec.homogeneous else member.topics, ranges))
        for member_id, member in members
    }


def _precedence(entry: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
    """Static members come first, by their instance id, then the others by their member id; as Java compares strings,
    by units of UTF-16."""
    member_id, member = entry
    own = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, own.encode("utf-16-be", "surrogatepass")


def _subscribers(spec: GroupSpec, members: list[tuple[str, MemberSpec]]) -> dict[bytes, int]:
    """The number of members that subscribe to each topic."""
    if spec.homogeneous:
        return dict.fromkeys(members[0][1].topics, len(members)) if members else {}
    counts: dict[bytes, int] = {}
    for _, member in members:
        for topic_id in member.topics:
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
