"""The report of `muster status`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_cli.oncall.seen import Seen
from muster_cli.oncall.verdict import Note, judge, message_of
from muster_operator.api.models import FailoverRecord, OffsetsPartition, PartitionState


class PodLine(msgspec.Struct, frozen=True):
    """One pod. `leads` and `holds`: numbers of partitions that it leads, and of which it has a replica.
    `maintenance`: Drained or Fenced, "" if it is neither.
    """

    name: str
    phase: str
    ready: bool
    node: str
    restarts: int
    trouble: str
    image: str
    leads: int
    holds: int
    maintenance: str = ""


class PartitionLine(msgspec.Struct, frozen=True):
    """One partition. `leader`: the pod that leads it, None if none does. `behind`: replicas that do not follow the
    leader, 0 if none leads. `reason`, `message`: the operator's, of a partition that is
    not led.
    """

    name: str
    partition: int
    state: str
    leader: str | None
    epoch: int
    replicas: tuple[str, ...]
    behind: int
    reason: str = ""
    message: str = ""


class ClusterReport(msgspec.Struct, frozen=True):
    """One cluster. `verdict`: healthy, under way, or needs a person."""

    namespace: str
    name: str
    verdict: str
    bootstrap: str
    image: str
    operator: str
    declared_pods: int
    pods: tuple[PodLine, ...]
    partitions: tuple[PartitionLine, ...]
    led: int
    behind: int
    needs_person: tuple[Note, ...]
    under_way: tuple[Note, ...]
    notes: tuple[Note, ...]
    failovers: tuple[FailoverRecord, ...]


class StatusReport(msgspec.Struct, frozen=True):
    """The object that `--json` prints. Its names stay compatible. `healthy`: nothing needs a person."""

    healthy: bool
    clusters: tuple[ClusterReport, ...]


def build_status(seen: Iterable[Seen], now: float) -> StatusReport:
    """The report at `now`, in seconds since 1970."""
    clusters = tuple(_cluster(each, now) for each in seen)
    return StatusReport(not any(each.needs_person for each in clusters), clusters)


def _cluster(seen: Seen, now: float) -> ClusterReport:
    verdict, cluster = judge(seen, now), seen.cluster
    partitions = tuple(map(_partition, seen.serving))
    return ClusterReport(
        namespace=cluster.metadata.namespace,
        name=cluster.metadata.name,
        verdict=verdict.word,
        bootstrap=cluster.status.bootstrap,
        image=cluster.status.image,
        operator=seen.operator.holder if seen.operator is not None else "",
        declared_pods=cluster.spec.pods,
        pods=_pods(seen, partitions),
        partitions=partitions,
        led=sum(each.leader is not None for each in partitions),
        behind=sum(each.behind for each in partitions),
        needs_person=verdict.needs_person,
        under_way=verdict.under_way,
        notes=verdict.notes,
        failovers=cluster.status.last_failovers,
    )


def _pods(seen: Seen, partitions: tuple[PartitionLine, ...]) -> tuple[PodLine, ...]:
    return tuple(
        PodLine(
            name=pod.name,
            phase=pod.phase,
            ready=pod.ready,
            node=pod.node,
            restarts=pod.restarts,
            trouble=pod.trouble,
            image=pod.image,
            leads=sum(each.leader == pod.name for each in partitions),
            holds=sum(pod.name in each.replicas for each in partitions),
            maintenance=seen.cluster.spec.maintenance.get(pod.name, ""),
        )
        for pod in seen.pods
    )


def _partition(partition: OffsetsPartition) -> PartitionLine:
    status = partition.status
    led = status.state is PartitionState.LED
    return PartitionLine(
        name=partition.metadata.name,
        partition=partition.spec.index,
        state=status.state.value,
        leader=status.leader if led else None,
        epoch=status.epoch,
        replicas=tuple(each.pod for each in status.replicas),
        behind=max(len(status.replicas) - status.following, 0) if led else 0,
        reason="" if led else status.reason,
        message="" if led else message_of(partition),
    )
