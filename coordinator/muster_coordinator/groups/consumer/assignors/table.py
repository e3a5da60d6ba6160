"""The assignors by name, in the order of `group.consumer.assignors`: the first is taken when no member asks for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster_coordinator.groups.consumer.assignors.heterogeneous import HeterogeneousAssignment
from muster_coordinator.groups.consumer.assignors.homogeneous import HomogeneousAssignment
from muster_coordinator.groups.consumer.assignors.range_assignor import assign_ranges
from muster_coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec

_NO_LIMIT = 1 << 31  # of partitions: the topic is not subscribed to


def assign_uniformly(spec: GroupSpec) -> dict[str, Assignment]:
    """Source: UniformAssignor. Raises AssignorError."""
    if not spec.topics:
        return {}
    if spec.homogeneous:
        return HomogeneousAssignment(spec).build()
    return HeterogeneousAssignment(spec).build()


ASSIGNORS: dict[str, Callable[[GroupSpec], dict[str, Assignment]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


def assign(name: str, spec: GroupSpec) -> dict[str, Assignment]:
    """The assignment of every member by the assignor `name`, one of ASSIGNORS. The very object that a member had says
    that it keeps what it has. Partitions that their topic does not have any more are taken away first.

    Raises AssignorError: a member subscribes to a topic that does not exist, or two had the same partition.
    """
    cut = {
        member_id: _existing(spec.assignments[member_id], spec.partition_counts)
        for member_id in spec.topics
        if member_id in spec.assignments and _has_gone(spec.assignments[member_id], spec.partition_counts)
    }
    return ASSIGNORS[name](spec._replace(assignments={**spec.assignments, **cut}) if cut else spec)


def _has_gone(assignment: Assignment, counts: Mapping[bytes, int]) -> bool:
    """True if partitions are among it that their topic does not have any more."""
    for topic_id, partitions in assignment.items():
        if max(partitions, default=-1) >= counts.get(topic_id, _NO_LIMIT):
            return True
    return False


def _existing(assignment: Assignment, counts: Mapping[bytes, int]) -> Assignment:
    kept: Assignment = {}
    for topic_id, partitions in assignment.items():
        count = counts.get(topic_id, _NO_LIMIT)
        left = tuple([partition for partition in partitions if partition < count])
        if left:
            kept[topic_id] = left
    return kept
