"""`uniform` for members that all subscribe to the same topics. See docs/assignors.md.

Source: org.apache.kafka.coordinator.group.assignor.UniformHomogeneousAssignmentBuilder.
"""

from __future__ import annotations

from muster_coordinator.groups.consumer.assignors.altered import (
    AlteredAssignment,
    partitions_as_recorded,
    topics_as_recorded,
)
from muster_coordinator.groups.consumer.assignors.java_order import (
    DEFAULT_BUCKETS,
    buckets_of_copy,
    strings_in_order,
    topics_in_order,
)
from muster_coordinator.groups.consumer.assignors.spec import (
    NO_ASSIGNMENT,
    Assignment,
    AssignorError,
    GroupSpec,
    nothing_assigned,
)


class HomogeneousAssignment:
    """One computation. Each member keeps what it has up to its quota; what is free goes to those below it."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._before = spec.assignments
        self._members = strings_in_order(spec.topics, DEFAULT_BUCKETS)
        topics = spec.topics[self._members[0]]
        self._topics = topics_in_order(topics, buckets_of_copy(len(topics)))
        self._subscribed = frozenset(topics)
        self._altered: dict[str, AlteredAssignment] = {}
        self._free: list[tuple[bytes, int]] = []  # in the order in which they are given away

    def build(self) -> dict[str, Assignment]:
        """The assignment of every member. Raises AssignorError for a topic that does not exist, and for partitions
        that two members had."""
        if not self._topics:
            return nothing_assigned(self._spec)
        total = self._find_free()
        lacking = self._revoke(total)
        self._give(lacking)
        return {member_id: self._result(member_id) for member_id in self._spec.topics}

    def _find_free(self) -> int:
        """Collects the partitions that no member has. Returns how many there are at all."""
        assigned: dict[bytes, set[int]] = {topic_id: set() for topic_id in self._topics}
        for member_id in self._members:
            for topic_id, partitions in self._before.get(member_id, NO_ASSIGNMENT).items():
                if topic_id in assigned:
                    assigned[topic_id].update(partitions)
        total = 0
        for topic_id in self._topics:
            count = self._spec.partition_count(topic_id)
            total += count
            if len(assigned[topic_id]) < count:
                self._free += [(topic_id, each) for each in range(count) if each not in assigned[topic_id]]
        return total

    def _revoke(self, total: int) -> list[tuple[str, int]]:
        """Takes from each member what is beyond its quota. Returns (member, how many it lacks).

        Of `total` = quota x members + extra, the first `extra` members that need it have one more: those that have it
        already keep it; the last ones must take what the others before them left.
        """
        lacking = []
        quota, extra = divmod(total, len(self._members))
        for left, member_id in zip(range(len(self._members), 0, -1), self._members, strict=True):
            has_extra = extra > 0
            room = self._keep(member_id, quota + has_extra)
            if room > 0 and has_extra and left > extra:
                room -= 1
                has_extra = False
            if room > 0:
                lacking.append((member_id, room))
            extra -= has_extra
        return lacking

    def _keep(self, member_id: str, room: int) -> int:
        """Takes from a member what is not subscribed, and what is beyond `room`. Returns what is left of that."""
        before = self._before.get(member_id, NO_ASSIGNMENT)
        for topic_id in topics_as_recorded(before):
            if topic_id not in self._subscribed:
                self._alter(member_id).remove_topic(topic_id)
            elif len(before[topic_id]) <= room:
                room -= len(before[topic_id])
            else:
                for partition in partitions_as_recorded(before[topic_id])[room:]:
                    self._alter(member_id).remove(topic_id, partition)
                    self._free.append((topic_id, partition))
                room = 0
        return room

    def _give(self, lacking: list[tuple[str, int]]) -> None:
        given = 0
        for member_id, room in lacking:
            altered = self._alter(member_id)
            for topic_id, partition in self._free[given : given + room]:
                altered.add(topic_id, partition, DEFAULT_BUCKETS)
            given += room
        if given < len(self._free):
            raise AssignorError(f"{len(self._free) - given} partitions were left unassigned")

    def _alter(self, member_id: str) -> AlteredAssignment:
        altered = self._altered.get(member_id)
        if altered is None:
            altered = self._altered[member_id] = AlteredAssignment(self._before.get(member_id, NO_ASSIGNMENT))
        return altered

    def _result(self, member_id: str) -> Assignment:
        before = self._before.get(member_id, NO_ASSIGNMENT)
        altered = self._altered.get(member_id)
        return before if altered is None else altered.result(before)
