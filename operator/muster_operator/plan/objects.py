"""The objects of one cluster: those that count, and those that do not, with the reason in their status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from muster_coordinator.partition_numbers import INTERNAL_TOPICS, OFFSETS
from muster_operator.api.conditions import Reason
from muster_operator.api.models import LeadershipRecord, OffsetsPartition, OffsetsTopic, PartitionState
from muster_operator.plan.actions import Action, WritePartitionStatus, WriteTopicStatus
from muster_operator.plan.observation import Observation
from muster_operator.plan.record import as_recorded
from muster_operator.plan.reshard import indexes, is_retired, is_under_way
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


def used_topics(seen: Observation) -> tuple[OffsetsTopic, ...]:
    """The topics that the cluster uses: the oldest resource of each internal topic, that of the groups first. Without
    that one there is none: pods have no image without it.

    A topic that comes while the groups' topic is re-sharded is used when that is over: a transaction that began
    meanwhile would name partitions of the old layout (ADR 28).
    """
    if seen.cluster is None:
        return ()
    oldest = _oldest(seen)
    groups = oldest.get(OFFSETS.name)
    if groups is None:
        return ()
    found = (oldest[name] for name in INTERNAL_TOPICS if name in oldest)
    return tuple(each for each in found if each is groups or each.status.leaderships or not is_under_way(groups))


def _oldest(seen: Observation) -> Mapping[str, OffsetsTopic]:
    """The oldest OffsetsTopic of each internal topic."""
    oldest: dict[str, OffsetsTopic] = {}
    for each in seen.topics:
        oldest.setdefault(each.spec.topic, each)
    return oldest


def sort_objects(seen: Observation, used: Sequence[OffsetsTopic]) -> Objects:
    """Sort the partitions of the observation. `used`: the topics that the cluster uses."""
    shown: dict[int, OffsetsPartition] = {}
    by_name = {each.metadata.name: each for each in used}
    topics = {each.metadata.name for each in seen.topics}
    refused: list[tuple[OffsetsPartition, Reason, str]] = []
    lines = [line for each in used for line in each.status.leaderships.values()]
    known_uids = {LeadershipRecord.parse(line).uid for line in lines}
    wanted = {name: frozenset(indexes(each)) for name, each in by_name.items()}
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
        topic = by_name.get(name)
        if name not in topics:
            refused.append((partition, Reason.TOPIC_NOT_FOUND, f"OffsetsTopic {name} does not exist"))
        elif seen.cluster is None:
            refused.append((partition, Reason.CLUSTER_NOT_FOUND, f"CoordinatorCluster {seen.name} does not exist"))
        elif topic is None:
            refused.append((partition, Reason.DUPLICATE_TOPIC, f"OffsetsTopic {name} is not used: see its conditions"))
        elif index in wanted[name] and index not in shown:
            shown[index] = partition
        elif is_retired(topic, index):
            refused.append((partition, Reason.RETIRED, "a re-shard has replaced it; its logs are kept"))
        elif index not in wanted[name]:
            has = topic.layout.partitions
            refused.append((partition, Reason.INDEX_OUT_OF_RANGE, f"OffsetsTopic {name} has {has} partitions"))
        else:
            other = shown[index].metadata.name
            refused.append((partition, Reason.DUPLICATE_INDEX, f"OffsetsPartition {other} has index {index} already"))
    recorded = {index: as_recorded(by_name[each.spec.topic_ref.name], each) for index, each in shown.items()}
    return Objects(recorded, shown, tuple(refused))


def refuse_partitions(objects: Objects, time: str) -> Iterator[Action]:
    """Write to the status of each partition that does not count why that is."""
    for partition, reason, message in objects.refused:
        state = PartitionState.RETIRED if reason is Reason.RETIRED else PartitionState.STALLED
        status = partition_status(partition, replace(partition.status, state=state, reason=reason), message, time)
        if status != partition.status:
            yield WritePartitionStatus(partition, status)


def refuse_topics(seen: Observation, used: Sequence[OffsetsTopic], time: str) -> Iterator[Action]:
    """Write to the status of each topic that no cluster uses why that is: a wrong name, an older topic, no topic of the
    groups, or a re-shard of that."""
    by_topic = _oldest(seen)
    for topic in seen.topics:
        older = by_topic[topic.spec.topic]
        if topic in used:
            continue
        if seen.cluster is None:
            verdict = Verdict(
                Reason.CLUSTER_NOT_FOUND,
                f"CoordinatorCluster {seen.name} does not exist in namespace {seen.namespace}:"
                " create it, or delete this topic and create it with another spec.clusterRef",
                stalled=True,
            )
        elif not used:
            verdict = Verdict(
                Reason.NO_TOPIC,
                f"CoordinatorCluster {seen.name} has no OffsetsTopic of {OFFSETS.name}, whose groups the transactions"
                " are about: create one",
                stalled=True,
            )
        elif older is topic:
            verdict = Verdict(
                Reason.WAITS_FOR_RESHARD,
                f"OffsetsTopic {used[0].metadata.name} is being re-sharded:"
                f" {topic.spec.topic} is used when that is over",
            )
        else:
            verdict = Verdict(
                Reason.DUPLICATE_TOPIC,
                f"CoordinatorCluster {seen.name} has the older OffsetsTopic {older.metadata.name} of"
                f" {topic.spec.topic}, and one is all it can have: delete the one that is not meant",
                stalled=True,
            )
        status = topic_status(topic, (), verdict, time)
        if status != topic.status:
            yield WriteTopicStatus(topic, status)
