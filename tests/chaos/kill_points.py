"""Where an operator can be made to die: before or after each kind of action that a plan has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster_operator.plan.actions import (
    Action,
    CreatePartitions,
    CreateReplicas,
    Elect,
    PublishMetadata,
    RecordLeadership,
    RecordReshard,
    Refresh,
    RestartPod,
    SetFences,
    WriteClusterStatus,
    WriteTopicStatus,
)


class Port(StrEnum):
    """Whose method carries an action out."""

    STORE = "store"
    WORKLOAD = "workload"
    POD = "pod"


CALLS: dict[type[Action], tuple[Port, str]] = {
    RecordLeadership: (Port.STORE, "record_leadership"),
    Elect: (Port.POD, "elect"),
    PublishMetadata: (Port.POD, "update_metadata"),
    CreatePartitions: (Port.STORE, "create_partitions"),
    CreateReplicas: (Port.POD, "create_replicas"),
    Refresh: (Port.POD, "partitions"),
    RestartPod: (Port.WORKLOAD, "restart_pod"),
    RecordReshard: (Port.STORE, "write_topic_status"),
    SetFences: (Port.POD, "fence"),
    WriteTopicStatus: (Port.STORE, "write_topic_status"),
    WriteClusterStatus: (Port.STORE, "write_cluster_status"),
}
"""By kind of action: the call that carries it out."""


@dataclass(frozen=True)
class Point:
    """``when``: before or after the action, of which it is the nth since the point was set."""

    action: str
    when: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.action} {self.nth}"

    @classmethod
    def parse(cls, text: str) -> Point:
        when, action, nth = text.split()
        return cls(action, when, int(nth))


AMONG_MANY = 5
"""A failover records many partitions: of these the operator dies behind the fifth as well."""
POINTS = (
    *(Point(action.__name__, when) for action in CALLS for when in ("before", "after")),
    Point(RecordLeadership.__name__, "after", AMONG_MANY),
)
