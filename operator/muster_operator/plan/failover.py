"""Who leads a partition, in which epoch: first election, re-election after a restart, and why there is none.

The rules (replication specification, "The operator"): leader and epoch are recorded before a pod is called; an epoch is
never lowered and never issued to a second pod; an epoch seen on a pod that is higher than the recorded one is recorded,
and the next election goes above both; one election per partition at a time; a replica is its log id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan.actions import Elect
from muster_operator.plan.observation import Attempt, Connection, PodView, ReplicaView

__all__ = ["Decision", "decide"]

_LOG_DAMAGED = "LogDamaged"  # this and the next: podapi.models.PartitionReason
_FAILURES = {"CannotWrite": Reason.CANNOT_WRITE, "LoadFailed": Reason.LOAD_FAILED}


@dataclass(frozen=True, slots=True)
class Decision:
    """What shall be recorded of a partition (without conditions and times), and what follows once it is recorded."""

    status: OffsetsPartitionStatus
    message: str
    elect: Elect | None = None
    create_on: str | None = None


def decide(partition: OffsetsPartition, pods: Mapping[str, PodView], attempt: Attempt | None) -> Decision:
    """For a partition that has its place (`status.replicas` is not empty)."""
    status = partition.status
    # With one replica there is one candidate. Its log is the partition: no other pod can take over.
    replica = status.replicas[0]
    pod = pods.get(replica.pod)
    if pod is None:
        return _leaderless(status, Reason.POD_DOWN, f"its log is on pod {replica.pod}, which does not exist")
    if pod.connection is Connection.UNSURE:
        return Decision(status, _message_of(partition))
    if pod.connection is Connection.DOWN:
        return _leaderless(status, Reason.POD_DOWN, f"its log is on pod {pod.name}, which is down: {pod.detail}")
    view = pod.replicas.get(partition.spec.index)
    if pod.draining and not (view is not None and view.state == "ACTIVE"):
        return _leaderless(status, Reason.POD_DOWN, f"its log is on pod {pod.name}, which is about to end")
    if not replica.log_id:
        return _without_log(partition, pod, view)
    if view is None or view.log_id != replica.log_id:
        there = f"has log {view.log_id}" if view else "has none"
        return _stalled(
            status,
            Reason.LOG_LOST,
            f"log {replica.log_id} is not on pod {pod.name} any more, which {there}: volume lost?",
        )
    if not view.used and status.high_watermark is not None:
        return _stalled(
            status, Reason.LOG_LOST, f"log {replica.log_id} on pod {pod.name} was led before and is now empty"
        )
    return _with_log(partition, pod, view, attempt)


def _without_log(partition: OffsetsPartition, pod: PodView, view: ReplicaView | None) -> Decision:
    """The place is chosen, no log id is recorded: create the log, or record the one that an earlier try created."""
    status, name = partition.status, pod.name
    if view is None:
        pending = replace(status, state=PartitionState.PENDING, reason=Reason.PLACING)
        return Decision(pending, f"pod {name} creates its log", create_on=name)
    if view.used and name not in partition.spec.replicas:
        # Somebody's acknowledged offsets: neither dropped nor taken for this partition's without being told so.
        return _stalled(
            status,
            Reason.UNKNOWN_LOG,
            f"pod {name} holds log {view.log_id} with data and no record names it; spec.replicas can",
        )
    placed = (Replica(name, view.log_id), *status.replicas[1:])
    return _elect(partition, replace(status, replicas=placed, epoch=max(status.epoch, view.epoch)), pod, view)


def _with_log(partition: OffsetsPartition, pod: PodView, view: ReplicaView, attempt: Attempt | None) -> Decision:
    status = partition.status
    leads = view.leader_epoch >= 0 and view.leader_epoch == view.epoch
    if leads and view.epoch >= status.epoch and view.state == "ACTIVE":
        # Also in an epoch that nobody recorded: it was promised, so it is the truth, and is recorded.
        led = replace(status, leader=pod.name, epoch=view.epoch, state=PartitionState.LED, reason=Reason.LED)
        return Decision(_with_watermark(led, status, view), f"pod {pod.name} leads in epoch {view.epoch}")
    if leads and view.epoch >= status.epoch and view.state == "LOADING":
        loading = replace(
            status, leader=pod.name, epoch=view.epoch, state=PartitionState.ELECTING, reason=Reason.LOADING
        )
        return Decision(loading, f"pod {pod.name} loads the log for epoch {view.epoch}")
    if view.state == "FAILED" and view.reason == _LOG_DAMAGED:
        seen = replace(status, epoch=max(status.epoch, view.epoch))
        return _stalled(seen, Reason.LOG_DAMAGED, f"pod {pod.name} refuses to serve its log: {view.message}")
    if attempt is not None and attempt.in_flight:
        return Decision(status, _message_of(partition))
    if attempt is not None and attempt.held_back:
        seen = replace(status, epoch=max(status.epoch, view.epoch))
        if view.state == "FAILED":
            return _leaderless(seen, _FAILURES.get(view.reason, Reason.LOAD_FAILED), f"pod {pod.name}: {view.message}")
        return _leaderless(
            seen, attempt.reason or Reason.ELECTING, attempt.message or f"pod {pod.name} does not lead yet"
        )
    return _elect(partition, status, pod, view)


def _elect(partition: OffsetsPartition, status: OffsetsPartitionStatus, pod: PodView, view: ReplicaView) -> Decision:
    """Issue an epoch to the pod, or repeat the one that is issued and that its replica has not promised yet."""
    issued = status.leader == pod.name and view.epoch < status.epoch
    epoch = status.epoch if issued else max(status.epoch, view.epoch) + 1
    electing = replace(status, leader=pod.name, epoch=epoch, state=PartitionState.ELECTING, reason=Reason.ELECTING)
    elect = Elect(
        partition=partition.metadata.name,
        index=partition.spec.index,
        pod=pod.name,
        epoch=epoch,
        replicas=tuple(replica.log_id for replica in electing.replicas),
        # Only a log that never led may be opened as the first: an empty log alone is no reason.
        bootstrap=not view.used and status.high_watermark is None,
    )
    return Decision(electing, f"pod {pod.name} is elected in epoch {epoch}", elect=elect)


def _with_watermark(
    led: OffsetsPartitionStatus, before: OffsetsPartitionStatus, view: ReplicaView
) -> OffsetsPartitionStatus:
    """The commit point is recorded once per leadership: it moves with every commit, and the record must not."""
    if before.state is PartitionState.LED and (before.leader, before.epoch) == (led.leader, led.epoch):
        return led
    return replace(led, high_watermark=view.high_watermark)


def _leaderless(status: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    return Decision(replace(status, state=PartitionState.LEADERLESS, reason=reason), message)


def _stalled(status: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    return Decision(replace(status, state=PartitionState.STALLED, reason=reason), message)


def _message_of(partition: OffsetsPartition) -> str:
    return next((each.message for each in partition.status.conditions if each.type == "Ready"), "")
