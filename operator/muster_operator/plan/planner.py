"""`plan`: all actions for one cluster, the most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields

from msgspec.structs import replace

from muster_operator.api.conditions import PLANNED, Reason
from muster_operator.api.durations import format_time, parse_duration
from muster_operator.api.models import (
    CoordinatorCluster,
    LeadershipRecord,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    PartitionState,
)
from muster_operator.plan.actions import (
    Action,
    CreatePartitions,
    CreateReplicas,
    RecordLeadership,
    RecordReshard,
    Refresh,
    RemoveReplicas,
    WriteClusterStatus,
    WritePartitionStatus,
    WriteTopicStatus,
)
from muster_operator.plan.cluster_facts import ClusterFacts, Tally
from muster_operator.plan.decide import decide
from muster_operator.plan.decision import Decision, stalled
from muster_operator.plan.metadata import publish
from muster_operator.plan.observation import CallKind, Connection, Observation
from muster_operator.plan.placement import place
from muster_operator.plan.record import as_recorded, next_record
from muster_operator.plan.reshard import dropped, indexes, is_retired, next_phase, set_fences
from muster_operator.plan.rollout import next_to_restart, restart
from muster_operator.plan.set_change import removable
from muster_operator.plan.status import (
    Verdict,
    cluster_status,
    damage_of,
    partition_status,
    topic_status,
    verdict_of_topic,
)

__all__ = ["plan"]

MOVES_AT_ONCE = 1
"""Elections under way that interrupt a leader that lives. They share the CPUs of the pods between which leaders move:
each group waits for all that are under way with its own."""
PARTITIONS_PER_MOVE = 100
"""In a large cluster there are more at once: so a drain is over after some dozen rounds however much a pod leads."""
CHANGES_AT_ONCE = 5
"""Partitions whose set changes: each copies a log."""


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The partition objects of one key: those that count, by index, and those that do not, with why."""

    counting: Mapping[int, OffsetsPartition]
    """As the record of the topic has them."""
    shown: Mapping[int, OffsetsPartition]
    """The same ones as their own status shows them."""
    refused: tuple[tuple[OffsetsPartition, Reason, str], ...]


def plan(seen: Observation, now: float) -> tuple[Action, ...]:
    """The actions that the observation asks for. `now`: seconds since 1970, only for the times in status."""
    time, cluster = format_time(now), seen.cluster
    topic = seen.topics[0] if cluster is not None and seen.topics else None
    objects = _sort(seen, topic)
    if cluster is not None and cluster.spec.suspend:
        recorded = [each.status for each in objects.counting.values()]
        return tuple(_cluster(seen, cluster, recorded, None, time))
    refusals = tuple(_refuse(objects, time))
    others = tuple(_refuse_topics(seen, topic, time))
    if cluster is None:
        return (*refusals, *others)
    if topic is None:
        return (*refusals, *others, *_cluster(seen, cluster, [], None, time))

    facts = _facts(seen, topic, objects)
    decisions = _decide(seen, objects, facts, time)
    statuses = {index: decision.status for index, decision in decisions.items()}
    record = _record(topic, objects, statuses)
    shown = [
        WritePartitionStatus(objects.shown[index], status)
        for index, status in statuses.items()
        if status != objects.shown[index].status
    ]
    elections = [decision.elect for decision in decisions.values() if decision.elect is not None]
    image = publish(seen, topic, statuses)
    ordered = list(statuses.values())
    verdict = verdict_of_topic(topic, len(indexes(topic)), ordered, _too_few_pods(seen, topic))
    after = topic_status(topic, ordered, verdict, time)
    resharded = next_phase(seen, topic, time)
    # Each of the three writes of the topic's status is compared and swapped: one at a time, the most urgent first.
    rewritten = after != topic.status and not resharded and not record
    return (
        *((record,) if record else ()),
        *elections,
        *((image,) if image else ()),
        *shown,
        *((RecordReshard(topic, resharded),) if resharded and not record else ()),
        *set_fences(seen, topic),
        *dropped(seen, topic),
        *_missing(topic, objects),
        *_replicas(seen, topic, decisions),
        *_removals(seen, objects, decisions),
        *_refreshes(seen, decisions),
        *restart(seen, facts, statuses),
        *refusals,
        *((WriteTopicStatus(topic, after),) if rewritten else ()),
        *others,
        *_cluster(seen, cluster, ordered, verdict, time),
    )


def _record(
    topic: OffsetsTopic, objects: _Sorted, statuses: Mapping[int, OffsetsPartitionStatus]
) -> RecordLeadership | None:
    before = topic.status.leaderships
    retired = {index for index in before if is_retired(topic, int(index))}
    after = next_record(before, objects.shown, statuses, retired)
    return RecordLeadership(topic, after) if after != before else None


def _sort(seen: Observation, topic: OffsetsTopic | None) -> _Sorted:
    shown: dict[int, OffsetsPartition] = {}
    wanted = frozenset(indexes(topic) if topic is not None else ())
    topics = {each.metadata.name for each in seen.topics}
    refused: list[tuple[OffsetsPartition, Reason, str]] = []
    lines = topic.status.leaderships.values() if topic is not None else ()
    recorded = {LeadershipRecord.parse(line).uid for line in lines}
    # Of two objects with one index the one that has a place stays, then the older.
    ranked = sorted(
        seen.partitions,
        key=lambda p: (
            not p.status.replicas and p.metadata.uid not in recorded,
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
    counting = {index: as_recorded(topic, each) for index, each in shown.items()} if topic is not None else {}
    return _Sorted(counting, shown, tuple(refused))


def _facts(seen: Observation, topic: OffsetsTopic, objects: _Sorted) -> ClusterFacts:
    assert seen.cluster is not None
    spec = seen.cluster.spec
    rebalance_after_s = parse_duration(spec.failover.rebalance_after)
    return ClusterFacts(
        pods={pod.name: pod for pod in seen.pods},
        replication_factor=topic.spec.replication_factor,
        declared=spec.pods,
        rebalance_after_s=rebalance_after_s,
        replace_after_s=parse_duration(spec.failover.replace_after),
        emptying=next_to_restart(seen, rebalance_after_s),
        tally=_count(seen, objects),
    )


def _count(seen: Observation, objects: _Sorted) -> Tally:
    """The counts before the first decision of the plan."""
    partitions = objects.counting.values()
    statuses = [each.status for each in partitions]
    moves = max(MOVES_AT_ONCE, len(statuses) // PARTITIONS_PER_MOVE)
    if any(pod.gone for pod in seen.pods):
        moves = len(statuses)  # what is not moved before the process ends has to wait until its silence is noticed
    return Tally(
        moves=moves - sum(_is_moving(seen, each) for each in partitions),
        changes=CHANGES_AT_ONCE - sum(bool(status.learners or status.previous_replicas) for status in statuses),
        led=Counter(status.leader for status in statuses if status.leader is not None),
        held=Counter(replica.pod for status in statuses for replica in status.replicas),
    )


def _is_moving(seen: Observation, partition: OffsetsPartition) -> bool:
    """A call is under way that was planned, and its pod does not lead yet. The call's end frees the place whatever came
    of it: one that takes longer is answered so within a second, and a pod that does not answer at all is given up
    after `electionTimeout`. Without the memory of calls (another operator) nothing is under way.
    """
    status, attempt = partition.status, seen.attempts.get(partition.metadata.name)
    if attempt is None or not attempt.in_flight or attempt.reason not in PLANNED:
        return False
    view = next((pod.replicas.get(partition.spec.index) for pod in seen.pods if pod.name == attempt.pod), None)
    return view is None or not view.is_active or view.leader_epoch < status.epoch


def _decide(seen: Observation, objects: _Sorted, facts: ClusterFacts, time: str) -> Mapping[int, Decision]:
    """One decision per partition, by index, each with the status as it is to be recorded."""
    placed = {index: each for index, each in objects.counting.items() if each.status.replicas}
    decisions = {index: decide(each, facts, seen.attempts.get(each.metadata.name)) for index, each in placed.items()}
    if len(placed) < len(objects.counting):
        decisions |= _placement(seen, objects)
    return {
        index: _with_conditions(seen, objects.counting[index], decision, time)
        for index, decision in sorted(decisions.items())
    }


def _with_conditions(seen: Observation, record: OffsetsPartition, decided: Decision, time: str) -> Decision:
    damage = damage_of(record.spec.index, seen.pods)
    return with_fields(decided, status=partition_status(record, decided.status, decided.message, time, damage))


def _too_few_pods(seen: Observation, topic: OffsetsTopic) -> str:
    """Why the partitions of the topic cannot have their replicas; "" if they can."""
    assert seen.cluster is not None
    factor, pods = topic.spec.replication_factor, seen.cluster.spec.pods
    if factor <= pods:
        return ""
    return f"replicationFactor {factor} needs {factor} pods, and CoordinatorCluster {seen.name} has {pods}"


def _placement(seen: Observation, objects: _Sorted) -> Mapping[int, Decision]:
    """Where the partitions without a place go.

    Waits until every declared pod answers: a volume may hold the log of such a partition (a store that lost its
    status), and to open an empty one elsewhere would lose what was committed.
    """
    assert seen.cluster is not None
    unplaced = [each for each in objects.counting.values() if not each.status.replicas]
    placed = [each for each in objects.counting.values() if each.status.replicas]
    if too_few := _too_few_pods(seen, seen.topics[0]):
        return {each.spec.index: stalled(each.status, Reason.TOO_FEW_PODS, too_few) for each in unplaced}
    declared = seen.cluster.spec.pods
    silent = [pod.name for pod in seen.pods if pod.connection is not Connection.UP]
    if len(seen.pods) < declared or silent:
        waiting = f"waits for pod {silent[0]}" if silent else f"waits for {declared - len(seen.pods)} more pods"
        return {each.spec.index: _pending(each, f"{waiting} before it gets its place") for each in unplaced}
    places = place(unplaced, placed, seen.pods, seen.topics[0].spec.replication_factor)
    decisions = {}
    for each in unplaced:
        chosen = places[each.metadata.name]
        holders = [pod.name for pod in seen.pods if (view := pod.replicas.get(each.spec.index)) and view.used]
        if holders and not each.spec.replicas:
            decisions[each.spec.index] = _unknown_log(each, holders)
            continue
        pending = replace(each.status, replicas=chosen, state=PartitionState.PENDING, reason=Reason.PLACING)
        decisions[each.spec.index] = Decision(pending, f"is placed on {', '.join(r.pod for r in chosen)}")
    return decisions


def _pending(partition: OffsetsPartition, message: str) -> Decision:
    return Decision(replace(partition.status, state=PartitionState.PENDING, reason=Reason.PLACING), message)


def _unknown_log(partition: OffsetsPartition, holders: Sequence[str]) -> Decision:
    text = f"a log with data that no record names is on {', '.join(holders)}; name the pod to use in spec.replicas"
    return stalled(partition.status, Reason.UNKNOWN_LOG, text)


def _missing(topic: OffsetsTopic, objects: _Sorted) -> Iterator[Action]:
    missing = tuple(index for index in indexes(topic) if index not in objects.counting)
    if missing:
        yield CreatePartitions(topic, missing)


def _replicas(seen: Observation, topic: OffsetsTopic, decisions: Mapping[int, Decision]) -> Iterator[Action]:
    creating = {index: decision.create_on for index, decision in decisions.items() if decision.create_on}
    for pod in seen.pods if creating else ():
        indexes = tuple(index for index, pods in creating.items() if pod.name in pods)
        if indexes and (CallKind.CREATE, pod.name) not in seen.busy:
            yield CreateReplicas(pod.name, indexes, topic.spec.segment_bytes)


def _removals(seen: Observation, objects: _Sorted, decisions: Mapping[int, Decision]) -> Iterator[Action]:
    """Of logs that left, as is recorded, where the leader's log has named the present set alone, and that set is
    committed.
    """
    left = [
        (index, decision.status)
        for index, decision in decisions.items()
        if decision.elect is None and objects.counting[index].status.left
    ]
    for pod in seen.pods if left else ():
        removals = [
            (index, view.log_id, status.led_epoch)
            for index, status in left
            if (view := pod.replicas.get(index)) is not None and removable(status, pod.name, view)
        ]
        if removals and pod.is_up and (CallKind.REMOVE, pod.name) not in seen.busy:
            yield RemoveReplicas(pod.name, tuple(removals))


def _refreshes(seen: Observation, decisions: Mapping[int, Decision]) -> Iterator[Action]:
    for pod in sorted({decision.refresh for decision in decisions.values() if decision.refresh}):
        if (CallKind.REFRESH, pod) not in seen.busy:
            yield Refresh(pod)


def _refuse(objects: _Sorted, time: str) -> Iterator[Action]:
    for partition, reason, message in objects.refused:
        state = PartitionState.RETIRED if reason is Reason.RETIRED else PartitionState.STALLED
        status = partition_status(partition, replace(partition.status, state=state, reason=reason), message, time)
        if status != partition.status:
            yield WritePartitionStatus(partition, status)


def _refuse_topics(seen: Observation, used: OffsetsTopic | None, time: str) -> Iterator[Action]:
    """Topics that no cluster serves: its name is wrong, or it has an older topic."""
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


def _cluster(
    seen: Observation,
    cluster: CoordinatorCluster,
    partitions: Sequence[OffsetsPartitionStatus],
    of_topic: Verdict | None,
    time: str,
) -> Iterator[Action]:
    status = cluster_status(seen, partitions, of_topic, time)
    if status != cluster.status:
        yield WriteClusterStatus(cluster, status)
