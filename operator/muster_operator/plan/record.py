"""The record of leaderships in the status of a topic, from which all decisions are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from muster_operator.api.conditions import Reason
from muster_operator.api.models import (
    LeadershipRecord,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    PartitionState,
)


def leadership_of(status: OffsetsPartitionStatus, uid: str) -> LeadershipRecord:
    """The part of a partition's status that is recorded before a pod is called. `uid`: of the OffsetsPartition."""
    return LeadershipRecord(
        leader=status.leader,
        epoch=status.epoch,
        led_epoch=status.led_epoch,
        replicas=status.replicas,
        previous_replicas=status.previous_replicas,
        learners=status.learners,
        left=status.left,
        uid=uid,
    )


def as_recorded(topic: OffsetsTopic, partition: OffsetsPartition) -> OffsetsPartition:
    """The partition with the leadership in the record of its topic, in place of the one in its own status.

    A partition of another topic is returned as it is.
    An epoch never falls, so the higher epoch is newer. That is the record, unless the topic was restored, or deleted
    and created again.
    """
    status = partition.status
    if partition.spec.topic_ref.name != topic.metadata.name:
        return partition
    line = topic.status.leaderships.get(str(partition.spec.index))
    if line is None or line == leadership_of(status, partition.metadata.uid).line:
        return partition
    recorded = LeadershipRecord.parse(line)
    if recorded.epoch < status.epoch:
        return partition
    if _begins_anew(recorded, partition):
        return replace(partition, status=replace(status, epoch=recorded.epoch))
    told = replace(
        status,
        leader=recorded.leader,
        epoch=recorded.epoch,
        led_epoch=recorded.led_epoch,
        replicas=recorded.replicas,
        previous_replicas=recorded.previous_replicas,
        learners=recorded.learners,
        left=recorded.left,
    )
    if (recorded.leader, recorded.epoch) != (status.leader, status.epoch):
        # The status still describes the leader before.
        state = PartitionState.LEADERLESS if recorded.leader is None else PartitionState.ELECTING
        told = replace(told, state=state, reason=Reason.ELECTING)
    elif not status.reason:  # its place is recorded, and nothing is shown yet
        told = replace(told, state=PartitionState.PENDING, reason=Reason.PLACING)
    return replace(partition, status=told)


def _begins_anew(recorded: LeadershipRecord, partition: OffsetsPartition) -> bool:
    """A person has deleted the object, which means to begin without the logs of before; only the epoch goes on.

    An object that has another uid and shows something is an older one that a cache still has, or was restored.
    """
    shown = partition.status
    return recorded.uid != partition.metadata.uid and shown.epoch < 0 and not shown.replicas


def next_record(
    before: Mapping[str, str],
    partitions: Mapping[int, OffsetsPartition],
    decided: Mapping[int, OffsetsPartitionStatus],
    retired: Collection[str],
) -> dict[str, str]:
    """The record with what was `decided` of `partitions`, which are as they show themselves.

    Retired partitions leave the record: no election is ever about them again.
    """
    found = {index: line for index, line in before.items() if index not in retired}
    for index, status in decided.items():
        line, partition = before.get(str(index)), partitions[index]
        decision = leadership_of(status, partition.metadata.uid)
        if decision.line == line:
            continue
        recorded = None if line is None else LeadershipRecord.parse(line)
        if recorded is not None and not _begins_anew(recorded, partition):
            decision = leadership_of(status, recorded.uid)
        if recorded is not None or decision != LeadershipRecord(uid=decision.uid):
            found[str(index)] = decision.line
    return found
