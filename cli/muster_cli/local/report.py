"""The report of `muster local status`, from the store, the run record and the answers of the pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from muster_cli.local.data_dir import RunningPod
from muster_coordinator.podapi.models import PodStatus
from muster_coordinator.states import OPEN_STATES, ReplicaRole
from muster_operator.api.conditions import ConditionType
from muster_operator.api.models import OffsetsPartition, PartitionState


class PodLine(msgspec.Struct, frozen=True):
    """One pod. `pid` is None, and `alive` False, if it does not run now."""

    name: str
    pid: int | None
    kafka_address: str
    alive: bool


class PartitionLine(msgspec.Struct, frozen=True):
    """One partition. `leader`: the pod that leads now, or None. `replicas`: the pods that hold the log, the preferred
    leader first. `followers`: the pods that follow the leader now.
    """

    partition: int
    leader: str | None
    epoch: int
    state: str
    replicas: tuple[str, ...]
    followers: tuple[str, ...] = ()


class StatusReport(msgspec.Struct, frozen=True):
    """The object that `--json` prints. Its names stay compatible."""

    bootstrap: str
    pods: tuple[PodLine, ...]
    partitions: tuple[PartitionLine, ...]

    @property
    def led(self) -> int:
        return sum(partition.leader is not None for partition in self.partitions)


def build_report(
    pods: Sequence[RunningPod], partitions: Sequence[OffsetsPartition], answers: Mapping[str, PodStatus]
) -> StatusReport:
    """The report. `partitions`: as the operator recorded them. `answers`: of the pods that answered, by name.

    A leader counts only if its pod says so itself: the record may be older than the end of the pod.
    """
    leaders = _leaders(answers)
    return StatusReport(
        bootstrap=",".join(pod.kafka_address for pod in pods),
        pods=tuple(_pod_line(pod) for pod in pods),
        partitions=tuple(
            _partition_line(partition, leaders.get(partition.spec.index), answers)
            for partition in sorted(partitions, key=lambda each: each.spec.index)
            if partition.status.state is not PartitionState.RETIRED
        ),
    )


def stall_causes(partitions: Sequence[OffsetsPartition]) -> dict[int, str]:
    """Partition -> why it needs a person to get a leader, in the operator's words."""
    return {
        each.spec.index: condition.message
        for each in partitions
        if each.status.state is PartitionState.STALLED
        for condition in each.status.conditions
        if condition.type == ConditionType.READY
    }


def _pod_line(pod: RunningPod) -> PodLine:
    alive = pod.alive
    pid = pod.process.pid if alive and pod.process is not None else None
    return PodLine(name=pod.name, pid=pid, kafka_address=pod.kafka_address, alive=alive)


def _leaders(answers: Mapping[str, PodStatus]) -> dict[int, tuple[int, str]]:
    """Partition -> (epoch, pod) of the leader that serves in the highest epoch."""
    leaders: dict[int, tuple[int, str]] = {}
    for name, answer in answers.items():
        for partition in answer.partitions:
            if partition.role is ReplicaRole.LEADER and partition.state in OPEN_STATES:
                claim = (partition.leader_epoch, name)
                leaders[partition.partition] = max(claim, leaders.get(partition.partition, claim))
    return leaders


def _partition_line(
    partition: OffsetsPartition, led: tuple[int, str] | None, answers: Mapping[str, PodStatus]
) -> PartitionLine:
    status, index = partition.status, partition.spec.index
    replicas = tuple(replica.pod for replica in status.replicas)
    if led is not None and led[0] >= status.epoch:
        followers = tuple(name for name in replicas if name in answers and _follows(answers[name], index, led[0]))
        return PartitionLine(index, led[1], led[0], PartitionState.LED.value, replicas, followers)
    state = PartitionState.LEADERLESS if status.state is PartitionState.LED else status.state
    return PartitionLine(partition.spec.index, None, status.epoch, state.value, replicas)


def _follows(pod: PodStatus, partition: int, epoch: int) -> bool:
    wanted = (partition, ReplicaRole.FOLLOWER, epoch)
    return any((each.partition, each.role, each.epoch) == wanted for each in pod.partitions)
