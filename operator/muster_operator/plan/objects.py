"""The objects of one cluster: those that count, and those that do not, with the reason in their status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from muster_operator.api.conditions import Reason
from muster_operator.api.models import LeadershipRecord, OffsetsPartition, OffsetsTopic, PartitionState
from muster_operator.plan.actions import Action, WritePartitionStatus, WriteTopicStatus
from muster_operator.plan.observation import Observation
from muster_operator.plan.record import as_recorded
from muster_operator.plan.reshard import indexes, is_retired
from muster_operator.plan.status import partition_status, topic_status
from muster_operator.plan.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Objects:
    """The OffsetsPartitions of one cluster. `refused`: those that do not count, each with reason and message."""

    recorded: Mapping[int, OffsetsPartition]
    """The partitions that count, by index, with the leadership in the record of the topic."""
    shown: Mapping[int, OffsetsPartition]
    """The same partitions, with the leadership in their own status."""
    refused: tuple[tuple[OffsetsPartition, Reason, str], ...]


def sort_objects(seen: Observation, topic: OffsetsTopic | None) -> Objects:
    """Sort the partitions of the observation. `topic`: the topic that the cluster uses, if it has one."""
    shown: dict[int, OffsetsPartition] = {}
    wanted = frozenset(indexes(topic) if topic is not None else ())
    topics = {each.metadata.name for each in seen.topics}
    refused: list[tuple[OffsetsPartition, Reason, str]] = []
    lines = topic.status.leaderships.values() if topic is not None else ()
    known_uids = {LeadershipRecord.parse(line).uid for line in lines}
    # Of two objects with the same index the one with replicas counts, and of two such the older one.
    ranked = sorted(
        seen.partitions,
        key=lambda p: (
            not p.status.replicas and p.metadata.uid not in known_uids,
            p.metadata.creation_timestamp,
            p.metadata.name,
        ),
    )
    for partition in ranked:
        name, index = partition.spec.topic_ref.name, partition.spec.index
        if name not in topics:
            refused.append((partition, Reason.TOPIC_NOT_FOUND, f"OffsetsTopic {name} does not exist"))
        elif topic is None:
            refused.append((partition, Reason.CLUSTER_NOT_FOUND, f"CoordinatorCluster {seen.name} does not exist"))
        elif name != topic.metadata.name:
            refused.append((partition, Reason.DUPLICATE_TOPIC, f"OffsetsTopic {name} is not used: see its conditions"))
        elif index in wanted and index not in shown:
            shown[index] = partition
        elif is_retired(topic, index):
            refused.append((partition, Reason.RETIRED, "a re-shard has replaced it; its logs are kept"))
        elif index not in wanted:
            has = topic.layout.partitions
            refused.append((partition, Reason.INDEX_OUT_OF_RANGE, f"OffsetsTopic {name} has {has} partitions"))
        else:
            other = shown[index].metadata.name
            refused.append((partition, Reason.DUPLICATE_INDEX, f"OffsetsPartition {other} has index {index} already"))
    recorded = {index: as_recorded(topic, each) for index, each in shown.items()} if topic is not None else {}
    return Objects(recorded, shown, tuple(refused))


def refuse_partitions(objects: Objects, time: str) -> Iterator[Action]:
    """Write to the status of each partition that does not count why that is."""
    for partition, reason, message in objects.refused:
        state = PartitionState.RETIRED if reason is Reason.RETIRED else PartitionState.STALLED
        status = partition_status(partition, replace(partition.status, state=state, reason=reason), message, time)
        if status != partition.status:
            yield WritePartitionStatus(partition, status)


def refuse_topics(seen: Observation, used: OffsetsTopic | None, time: str) -> Iterator[Action]:
    """Write to the status of each topic that no cluster uses why that is: a wrong name, or an older topic."""
    for topic in seen.topics:
        if topic is used:
            continue
        if seen.cluster is None:
            verdict = Verdict(
                Reason.CLUSTER_NOT_FOUND,
                f"CoordinatorCluster {seen.name} does not exist in namespace {seen.namespace}:"
                " create it, or delete this topic and create it with another spec.clusterRef",
                stalled=True,
            )
        else:
            older = seen.topics[0].metadata.name
            verdict = Verdict(
                Reason.DUPLICATE_TOPIC,
                f"CoordinatorCluster {seen.name} has the older OffsetsTopic {older}, and one is all it can have:"
                " delete the one that is not meant",
                stalled=True,
            )
        status = topic_status(topic, (), verdict, time)
        if status != topic.status:
            yield WriteTopicStatus(topic, status)
