"""The input of an assignor (`GroupSpec`), and its output (`Assignment` of each member)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Assignment: TypeAlias = dict[bytes, tuple[int, ...]]
"""Topic id -> partitions. Both stand in the order in which Kafka's maps and sets are walked, which is also the order of
the record: who writes and reads it so goes on as Kafka would. Never changed once it is made."""

NO_ASSIGNMENT: Assignment = {}


class AssignorError(Exception):
    """There is no assignment, and why. Kafka: PartitionAssignorException."""


class GroupSpec(NamedTuple):
    """`topics`: for each member, in the order in which they joined, ids of the topics that it subscribes to, by name or
    expression, each once; all of them exist. `homogeneous`: all subscribe to the same (SubscriptionType).
    `partition_counts` by topic id. `assignments`: what is meant for members so far, their target assignments; some
    members may have none, and members that are gone may have one. `instance_ids` of static members.

    The rack of a member is not here: Kafka 4.3's assignors have no use for it.
    """

    topics: dict[str, tuple[bytes, ...]]
    homogeneous: bool
    partition_counts: dict[bytes, int]
    assignments: dict[str, Assignment]
    instance_ids: dict[str, str]

    def partition_count(self, topic_id: bytes) -> int:
        """AssignorError for a topic that does not exist."""
        count = self.partition_counts.get(topic_id)
        if count is None:
            raise AssignorError(f"a member is subscribed to the topic {topic_id.hex()}, which does not exist")
        return count


def nothing_assigned(spec: GroupSpec) -> dict[str, Assignment]:
    """The assignment of members that subscribe to nothing."""
    before = spec.assignments
    return {each: before[each] if each in before and not before[each] else NO_ASSIGNMENT for each in spec.topics}
