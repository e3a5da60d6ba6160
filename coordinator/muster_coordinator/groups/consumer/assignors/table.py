"""The assignors by name, in the order of `group.consumer.assignors`: the first is taken when no member asks for one."""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.groups.consumer.assignors.heterogeneous import HeterogeneousAssignment
from muster_coordinator.groups.consumer.assignors.homogeneous import HomogeneousAssignment
from muster_coordinator.groups.consumer.assignors.range_assignor import assign_ranges
from muster_coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec


def assign_uniformly(spec: GroupSpec) -> dict[str, Assignment]:
    """Source: UniformAssignor. Raises AssignorError."""
    if not spec.members:
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
    existing = {member_id: _existing(member, spec) for member_id, member in spec.members.items()}
    return ASSIGNORS[name](spec._replace(members=existing))


def _existing(member: MemberSpec, spec: GroupSpec) -> MemberSpec:
    counts = spec.partition_counts
    if not any(max(each, default=-1) >= counts.get(topic_id, 1 << 31) for topic_id, each in member.assignment.items()):
        return member
    kept: Assignment = {}
    for topic_id, partitions in member.assignment.items():
        count = counts.get(topic_id, 1 << 31)
        left = tuple([partition for partition in partitions if partition < count])
        if left:
            kept[topic_id] = left
    return member._replace(assignment=kept)
