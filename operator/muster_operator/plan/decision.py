"""The decision of a plan about one partition, and the election that a decision can contain."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from muster_operator.api.conditions import ConditionType, Reason, find_condition
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState
from muster_operator.plan.actions import Elect
from muster_operator.plan.partition_view import Member, PartitionView, log_ids


@dataclass(frozen=True, slots=True)
class Decision:
    """The record that a partition is to get (without conditions and times), and what follows it.

    `create_on`: pods that shall create a log. `refresh`: the pod to ask how far its followers are; "" for none.
    """

    status: OffsetsPartitionStatus
    message: str
    elect: Elect | None = None
    create_on: tuple[str, ...] = ()
    refresh: str = ""


def unchanged(record: OffsetsPartition) -> Decision:
    """Keep the recorded status and its message: wait. What is recorded and not shown yet has no message of its own."""
    status = record.status
    ready = find_condition(status.conditions, ConditionType.READY)
    if ready is not None and (ready.reason == status.reason or status.leader is None):
        return Decision(status, ready.message)
    return Decision(status, f"pod {status.leader} is elected in epoch {status.epoch}" if status.leader else "")


def leaderless(status: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    """The decision that no replica leads, and what is missing may come by itself."""
    return Decision(replace(status, state=PartitionState.LEADERLESS, reason=reason, following=0), message)


def stalled(status: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    """The decision that no replica leads, and a person has to act."""
    return Decision(replace(status, state=PartitionState.STALLED, reason=reason, following=0), message)


def same_log(pods: str) -> str:
    """Tells people what helps where `pods` have one log."""
    return f"pods {pods} have a log with the same id: remove the volume that is a copy"


def preferred_pod(record: OffsetsPartition) -> str:
    """The pod that shall lead: the declared one if it has a replica, else that of the first replica, as in Kafka."""
    replicas = [each.pod for each in record.status.replicas]
    wanted = record.spec.preferred_leader
    return wanted if wanted is not None and wanted in replicas else next(iter(replicas), "")


def elect(
    partition: PartitionView, chosen: Member, reason: Reason, *, force: bool = False, resign: str = ""
) -> Decision:
    """Issue an epoch to the pod of `chosen`, or repeat an issued epoch that no replica has promised yet."""
    status, view = partition.status, chosen.view
    assert view is not None
    pod = chosen.replica.pod
    above = partition.facts.epoch_above(partition.index)
    highest = max(partition.highest_epoch(), above)
    promised = [each.view.epoch for each in partition.members if each.view is not None]
    issued = pod == status.leader and max(promised) < status.epoch == highest > above
    epoch = highest if issued else highest + 1
    partition.facts.tally.led[pod] += 1
    electing = replace(status, leader=pod, epoch=epoch, state=PartitionState.ELECTING, reason=reason)
    text = f"pod {pod} is elected in epoch {epoch}"
    call = Elect(
        partition=partition.record.metadata.name,
        index=partition.index,
        pod=pod,
        epoch=epoch,
        replicas=log_ids(electing.replicas),
        previous_replicas=log_ids(electing.previous_replicas),
        bootstrap=partition.was_never_led,
        force=force,
        resign=resign,
        reason=reason,
        message=text,
    )
    return Decision(electing, text, elect=call)
