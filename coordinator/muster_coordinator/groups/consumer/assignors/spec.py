"""The input of an assignor (`GroupSpec`), and its output (`Assignment` of each member)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Assignment: TypeAlias = dict[bytes, tuple[int, ...]]
"""Topic id -> partitions. Both stand in the order in which Kafka's maps and sets are walked, which is also the order of
the record: who writes and reads it so goes on as Kafka would. Never changed once it is made."""

NO_ASSIGNMENT: Assignment = {}


class AssignorError(Exception):
    """There is no assignment, and why. Kafka: PartitionAssignorException."""


class MemberSpec(NamedTuple):
    """`topics`: ids of the topics that the member subscribes to, by name or expression, each once; all of them exist.
    `assignment`: what is meant for it so far, its target assignment.

    The rack of a member is not here: Kafka 4.3's assignors have no use for it.
    """

    topics: tuple[bytes, ...]
    assignment: Assignment = NO_ASSIGNMENT
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """`members` by id, in the order in which they joined. `homogeneous`: all subscribe to the same topics
    (SubscriptionType). `partition_counts` by topic id."""

    members: Mapping[str, MemberSpec]
    homogeneous: bool
    partition_counts: Mapping[bytes, int]

    def partition_count(self, topic_id: bytes) -> int:
        """AssignorError for a topic that does not exist."""
        count = self.partition_counts.get(topic_id)
        if count is None:
            raise AssignorError(f"a member is subscribed to the topic {topic_id.hex()}, which does not exist")
        return count


def nothing_assigned(spec: GroupSpec) -> dict[str, Assignment]:
    """The assignment of members that subscribe to nothing."""
    return {
        member_id: NO_ASSIGNMENT if member.assignment else member.assignment
        for member_id, member in spec.members.items()
    }
