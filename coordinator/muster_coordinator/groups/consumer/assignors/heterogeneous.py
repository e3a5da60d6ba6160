"""`uniform` for members that subscribe to different topics. See docs/assignors.md.

Source: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from muster_coordinator.groups.consumer.assignors.altered import AlteredAssignment
from muster_coordinator.groups.consumer.assignors.balancer import NOBODY, Balancer
from muster_coordinator.groups.consumer.assignors.java_order import (
    DEFAULT_BUCKETS,
    buckets_for,
    strings_in_order,
)
from muster_coordinator.groups.consumer.assignors.spec import NO_ASSIGNMENT, Assignment, GroupSpec, nothing_assigned

ROUNDS_MAX = 16
"""The most rounds over all topics: subscriptions that overlap in part may never come to rest."""

_UNOWNED = -1


class HeterogeneousAssignment:
    """One computation. Members are numbers, in Java's order. `_sizes`: how many partitions each one has; `_owners`: by
    topic id, the member of each partition."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._before = spec.assignments
        self._members = strings_in_order(spec.topics, DEFAULT_BUCKETS)
        self._sizes = [0] * len(self._members)
        self._altered: dict[int, AlteredAssignment] = {}
        self._subscribers: dict[bytes, list[int]] = {}
        self._owners: dict[bytes, list[int]] = {}
        for number, member_id in enumerate(self._members):
            for topic_id in spec.topics[member_id]:
                if topic_id not in self._subscribers:
                    self._subscribers[topic_id] = []
                    self._owners[topic_id] = [_UNOWNED] * spec.partition_count(topic_id)
                self._subscribers[topic_id].append(number)

    def build(self) -> dict[str, Assignment]:
        """The assignment of every member. Raises AssignorError for a topic that does not exist (on construction)."""
        if not self._subscribers:
            return nothing_assigned(self._spec)
        self._revoke()
        topics = sorted(self._subscribers, key=self._precedence)
        self._give(topics)
        self._balance([topic_id for topic_id in topics if len(self._subscribers[topic_id]) > 1])
        results = {member_id: self._result(number) for number, member_id in enumerate(self._members)}
        return {member_id: results[member_id] for member_id in self._spec.topics}

    def _precedence(self, topic_id: bytes) -> tuple[float, int, int, int]:
        """Most partitions for each subscriber first, then fewest subscribers, then by id, of two signed numbers."""
        subscribers = len(self._subscribers[topic_id])
        high = int.from_bytes(topic_id[:8], "big", signed=True)
        low = int.from_bytes(topic_id[8:], "big", signed=True)
        return -(len(self._owners[topic_id]) / subscribers), subscribers, high, low

    def _revoke(self) -> None:
        """Each member keeps what it has of the topics that it subscribes to."""
        for number, member_id in enumerate(self._members):
            subscribed = frozenset(self._spec.topics[member_id])
            for topic_id, partitions in self._before.get(member_id, NO_ASSIGNMENT).items():
                if topic_id not in subscribed:
                    self._alter(number).remove_topic(topic_id)
                    continue
                self._sizes[number] += len(partitions)
                owners = self._owners[topic_id]
                for partition in partitions:
                    owners[partition] = number

    def _give(self, topics: list[bytes]) -> None:
        """Gives unassigned partitions to the subscribers with the fewest partitions."""
        balancer = Balancer(self._sizes)
        for topic_id in topics:
            free = [partition for partition, owner in enumerate(self._owners[topic_id]) if owner == _UNOWNED]
            if free:
                balancer.start(self._subscribers[topic_id])
                for partition in free:
                    self._move(topic_id, partition, balancer.least())

    def _balance(self, topics: list[bytes]) -> None:
        """Goes through the topics until a whole round has moved nothing."""
        balancer = Balancer(self._sizes)
        last_moved: bytes | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id, balancer) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: bytes, balancer: Balancer) -> bool:
        """Moves partitions of a topic from subscribers with the most to those with the fewest partitions. Returns
        whether there was one to move."""
        if balancer.start(self._subscribers[topic_id]) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while not balancer.is_balanced():
            giver = balancer.most()
            while giver != NOBODY and not owned.get(giver):
                balancer.exclude_most()
                giver = balancer.most()
            if giver == NOBODY:
                break
            partition = owned[giver].pop()
            taker = balancer.least()
            if balancer.is_balanced():
                break
            self._move(topic_id, partition, taker)
            moved = True
        return moved

    def _move(self, topic_id: bytes, partition: int, taker: int) -> None:
        giver = self._owners[topic_id][partition]
        if giver != _UNOWNED:
            self._alter(giver).remove(topic_id, partition)
            self._sizes[giver] -= 1
        expected = -(-len(self._owners[topic_id]) // len(self._subscribers[topic_id]))
        self._alter(taker).add(topic_id, partition, buckets_for(expected * 4 // 3 + 1))
        self._owners[topic_id][partition] = taker
        self._sizes[taker] += 1

    def _alter(self, number: int) -> AlteredAssignment:
        altered = self._altered.get(number)
        if altered is None:
            assignment = self._before.get(self._members[number], NO_ASSIGNMENT)
            altered = self._altered[number] = AlteredAssignment(assignment)
        return altered

    def _result(self, number: int) -> Assignment:
        before = self._before.get(self._members[number], NO_ASSIGNMENT)
        altered = self._altered.get(number)
        return before if altered is None else altered.result(before)
