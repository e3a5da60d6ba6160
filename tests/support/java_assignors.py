"""Kafka's own assignors in a JVM (`Assignors.java`), and groups to draw for them."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.support.java_lines import JavaLines

from muster_coordinator.groups.consumer.assignors.spec import NO_ASSIGNMENT, Assignment, GroupSpec


class JavaAssignors(JavaLines):
    """One JVM, a group after the other."""

    def __init__(self) -> None:
        super().__init__("Assignors.java")

    def assign(self, name: str, spec: GroupSpec) -> dict[str, Assignment] | None:
        """The assignment of every member; None: Kafka refused."""
        answer = self.ask(_group(name, spec))
        if "" in answer:
            return None
        return {
            member_id: {bytes.fromhex(topic): tuple(partitions) for topic, partitions in topics}
            for member_id, topics in answer.items()
        }


def _group(name: str, spec: GroupSpec) -> dict[str, Any]:
    return {
        "assignor": name,
        "homogeneous": spec.homogeneous,
        "topics": [(topic_id.hex(), count) for topic_id, count in spec.partition_counts.items()],
        "members": [
            {
                "id": member_id,
                "instance": spec.instance_ids.get(member_id),
                "topics": [topic_id.hex() for topic_id in topics],
                "assignment": [(topic_id.hex(), each) for topic_id, each in spec.assignments[member_id].items()],
            }
            for member_id, topics in spec.topics.items()
        ],
    }


class MemberSpec(NamedTuple):
    """One member of a `GroupSpec`."""

    topics: tuple[bytes, ...]
    assignment: Assignment = NO_ASSIGNMENT
    instance_id: str | None = None


def spec_of(members: dict[str, MemberSpec], homogeneous: bool, counts: dict[bytes, int]) -> GroupSpec:
    return GroupSpec(
        {member_id: each.topics for member_id, each in members.items()},
        homogeneous,
        counts,
        {member_id: each.assignment for member_id, each in members.items()},
        {member_id: each.instance_id for member_id, each in members.items() if each.instance_id is not None},
    )


class DrawnGroup:
    """A group that changes at random: members come, go and subscribe to other topics, topics come and grow."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.homogeneous = random.random() < 0.5
        self._size = random.choice([1, 2, 3, 5, 8, 13, 40])
        self._partitions = random.choice([1, 3, 8, 20, 70, 300])
        self.counts: dict[bytes, int] = {}
        for _ in range(random.choice([1, 2, 3, 3, 6, 20])):
            self._add_topic()
        self._common = self._subscription()
        self.members: dict[str, MemberSpec] = {}
        for _ in range(self._size):
            self._add_member()

    def spec(self) -> GroupSpec:
        """The group as an assignor is given it now."""
        return spec_of(self.members, self.homogeneous, dict(self.counts))

    def take_over(self, assignment: dict[str, Assignment]) -> None:
        for member_id, own in assignment.items():
            self.members[member_id] = self.members[member_id]._replace(assignment=own)

    def change(self) -> None:
        """One to four things."""
        random = self._random
        for _ in range(random.randint(1, 4)):
            what = random.randrange(6)
            if what == 0:
                self._add_member()
            elif what == 1 and len(self.members) > 1:
                del self.members[random.choice(list(self.members))]
            elif what == 2:
                topic_id = random.choice(list(self.counts))
                self.counts[topic_id] += random.randint(1, 20)
            elif what == 3:
                self._add_topic()
            elif what == 4:
                self._subscribe_anew()
            else:
                self._come_back()

    def _add_topic(self) -> None:
        self.counts[self._random.randbytes(16)] = self._random.randint(0, self._partitions)

    def _add_member(self) -> None:
        random = self._random
        member_id = (
            f"{random.getrandbits(64):016x}" if random.random() < 0.7 else f"m-{random.randrange(1000)}-ü\U0001f600"
        )
        instance = f"i-{random.randrange(10_000)}" if random.random() < 0.2 else None
        if any(instance is not None and each.instance_id == instance for each in self.members.values()):
            instance = None
        topics = self._common if self.homogeneous else self._subscription()
        self.members.setdefault(member_id, MemberSpec(topics, {}, instance))

    def _subscription(self) -> tuple[bytes, ...]:
        topics = list(self.counts)
        return tuple(
            self._random.sample(topics, self._random.randint(0 if self._random.random() < 0.1 else 1, len(topics)))
        )

    def _subscribe_anew(self) -> None:
        if self.homogeneous:
            self._common = self._subscription()
            self.members = {name: each._replace(topics=self._common) for name, each in self.members.items()}
        else:
            name = self._random.choice(list(self.members))
            self.members[name] = self.members[name]._replace(topics=self._subscription())

    def _come_back(self) -> None:
        """A static member has a new member id, and what it had."""
        static = [name for name, each in self.members.items() if each.instance_id is not None]
        if static:
            spec = self.members.pop(self._random.choice(static))
            self.members[f"{self._random.getrandbits(64):016x}"] = spec
