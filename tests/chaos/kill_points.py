"""Where an operator can be made to die: before or after each kind of action that a plan has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from muster_operator.api.models import OffsetsTopic, OffsetsTopicStatus
from muster_operator.plan.actions import (
    Action,
    AskResets,
    CreatePartitions,
    CreateReplicas,
    Elect,
    GiveAccess,
    MakeClaim,
    MarkClaims,
    PublishMetadata,
    RecordLeadership,
    RecordReshard,
    Refresh,
    RemoveReplicas,
    ReplaceVolume,
    RestartPod,
    SetFences,
    StartBackup,
    StartMoves,
    StartRestoreJob,
    WriteBackupStatus,
    WriteClusterStatus,
    WriteGroupStatus,
    WritePartitionStatus,
    WriteTopicStatus,
    WriteUserStatus,
)


class Port(StrEnum):
    """Whose method carries an action out."""

    STORE = "store"
    WORKLOAD = "workload"
    POD = "pod"
    JOBS = "jobs"
    """What has to be done for backups; `muster local up` has none."""
    RESTORES = "restores"
    """Likewise, for a cluster that begins from one."""


@dataclass(frozen=True)
class Call:
    """`belongs`: whether a call with these arguments is of this kind, where several kinds have one method."""

    port: Port
    method: str
    belongs: Callable[..., bool] = lambda *_, **__: True


def _of_a_reshard(_: object, seen: OffsetsTopic, status: OffsetsTopicStatus) -> bool:
    return seen.status.reshard != status.reshard


def _carries_out(kind: type[Action]) -> Call:
    return Call(Port.RESTORES, "carry_out", lambda _, cluster, action: isinstance(action, kind))


CALLS: dict[type[Action], Call] = {
    RecordLeadership: Call(Port.STORE, "record_leadership"),
    Elect: Call(Port.POD, "elect"),
    PublishMetadata: Call(Port.POD, "update_metadata"),
    GiveAccess: Call(Port.POD, "give_access"),
    CreatePartitions: Call(Port.STORE, "create_partitions"),
    CreateReplicas: Call(Port.POD, "create_replicas"),
    RemoveReplicas: Call(Port.POD, "remove_replicas"),
    RecordReshard: Call(Port.STORE, "write_topic_status", _of_a_reshard),
    SetFences: Call(Port.POD, "fence"),
    Refresh: Call(Port.POD, "partitions"),
    RestartPod: Call(Port.WORKLOAD, "restart_pod"),
    ReplaceVolume: Call(Port.WORKLOAD, "replace_volume"),
    WriteTopicStatus: Call(Port.STORE, "write_topic_status", lambda *call: not _of_a_reshard(*call)),
    WritePartitionStatus: Call(Port.STORE, "write_partition_status"),
    WriteClusterStatus: Call(Port.STORE, "write_cluster_status"),
    WriteUserStatus: Call(Port.STORE, "write_user_status"),
    StartMoves: Call(Port.POD, "move"),
    AskResets: Call(Port.POD, "reset"),
    WriteGroupStatus: Call(Port.STORE, "write_group_status"),
    StartBackup: Call(Port.JOBS, "start"),
    WriteBackupStatus: Call(Port.STORE, "write_backup_status"),
    StartRestoreJob: _carries_out(StartRestoreJob),
    MakeClaim: _carries_out(MakeClaim),
    MarkClaims: _carries_out(MarkClaims),
}
"""By kind of action: the call that carries it out."""


@dataclass(frozen=True)
class Point:
    """`when`: before or after the action, of which it is the nth since the point was set."""

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
"""A failover shows many partitions: of these the operator dies after the fifth as well."""
POINTS = (
    *(Point(action.__name__, when) for action in CALLS for when in ("before", "after")),
    Point(WritePartitionStatus.__name__, "after", AMONG_MANY),
)
