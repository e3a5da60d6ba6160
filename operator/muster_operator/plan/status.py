"""The status of partitions, topics and clusters: counts, and conditions with a reason for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from muster_coordinator.states import FailureReason
from muster_operator.api.conditions import Condition, ConditionType, Reason, with_condition, without_condition
from muster_operator.api.models import (
    GROUP,
    CoordinatorClusterStatus,
    FailoverRecord,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    PartitionState,
    ReshardPhase,
)
from muster_operator.plan.identity import Identity
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.plan.reshard import REASONS

LAST_FAILOVERS = 20
"""How many failovers the status of a cluster lists (the limit of the schema)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The content of an object's conditions."""

    reason: Reason
    message: str
    ready: bool = False
    reconciling: bool = False
    stalled: bool = False


def conditions_of(before: tuple[Condition, ...], verdict: Verdict, generation: int, now: str) -> tuple[Condition, ...]:
    """The conditions by the rules of kstatus: Ready always, Reconciling and Stalled only while they are true."""
    flags = {
        ConditionType.READY: verdict.ready,
        ConditionType.RECONCILING: verdict.reconciling,
        ConditionType.STALLED: verdict.stalled,
    }
    after = before
    for kind, flag in flags.items():
        if flag or kind is ConditionType.READY:
            condition = Condition(
                type=kind,
                status="True" if flag else "False",
                reason=verdict.reason,
                message=verdict.message,
                observed_generation=generation,
            )
            after = with_condition(after, condition, now)
        else:
            after = without_condition(after, kind)
    return after


_DAMAGE = (FailureReason.LOG_DAMAGED, FailureReason.PROTOCOL_VIOLATION, FailureReason.LOG_SET_ASIDE)


def damage_of(index: int, pods: Iterable[PodView]) -> str:
    """The damage that pods report in their logs of a partition; "" if there is none.

    The text stays the same while the damaged log exists, and after the log was set aside.
    """
    views = [(pod.name, view) for pod in pods if (view := pod.replicas.get(index)) is not None]
    found = (f"pod {name}: {view.message}" for name, view in views if view.reason in _DAMAGE)
    return "; ".join(sorted(found))


def partition_status(
    partition: OffsetsPartition, decided: OffsetsPartitionStatus, message: str, now: str, damage: str = ""
) -> OffsetsPartitionStatus:
    """The decided status with conditions and times. It equals the recorded status if nothing changed."""
    before, generation = partition.status, partition.metadata.generation
    verdict = Verdict(
        Reason(decided.reason),
        message,
        ready=decided.state is PartitionState.LED,
        reconciling=decided.state in (PartitionState.PENDING, PartitionState.ELECTING),
        stalled=decided.state is PartitionState.STALLED,
    )
    changed = (decided.state, decided.leader, decided.epoch) != (before.state, before.leader, before.epoch)
    conditions = conditions_of(before.conditions, verdict, generation, now)
    if damage:
        found = Condition(ConditionType.DAMAGED, "True", Reason.LOG_DAMAGED, damage, observed_generation=generation)
        conditions = with_condition(conditions, found, now)
    else:
        conditions = without_condition(conditions, ConditionType.DAMAGED)
    return replace(
        decided,
        observed_generation=generation,
        conditions=conditions,
        last_transition_time=now if changed or not before.last_transition_time else before.last_transition_time,
    )


def verdict_of_partitions(
    expected: int, partitions: Sequence[OffsetsPartitionStatus], too_few_pods: str = ""
) -> Verdict:
    """The verdict on a topic from its partitions. It names the most serious cause."""
    led = _count(partitions, PartitionState.LED)
    if too_few_pods and led < expected:
        return Verdict(Reason.TOO_FEW_PODS, too_few_pods, stalled=True)
    if len(partitions) < expected:
        return Verdict(
            Reason.CREATING_PARTITIONS, f"{len(partitions)} of {expected} partitions exist", reconciling=True
        )
    if led == len(partitions):
        return Verdict(Reason.ALL_LED, f"all {led} partitions are led", ready=True)
    stalled = _count(partitions, PartitionState.STALLED)
    first = min(
        (each for each in partitions if each.state is not PartitionState.LED), key=lambda each: _SEVERITY[each.state]
    )
    cause = next((each.message for each in first.conditions if each.type == ConditionType.READY), first.reason)
    return Verdict(
        Reason.PARTITIONS_LEADERLESS,
        f"{led} of {expected} partitions are led; first cause: {cause}",
        reconciling=not stalled,
        stalled=stalled > 0,
    )


def verdict_of_topic(
    topic: OffsetsTopic, expected: int, partitions: Sequence[OffsetsPartitionStatus], too_few_pods: str
) -> Verdict:
    """The verdict on a topic. While a re-shard is under way, its progress comes before all but a stalled partition."""
    verdict = verdict_of_partitions(expected, partitions, too_few_pods)
    reshard = topic.status.reshard
    if reshard is None or reshard.phase not in REASONS or verdict.stalled:
        return verdict
    serves = reshard.phase is ReshardPhase.PREPARING and verdict.reason is not Reason.PARTITIONS_LEADERLESS
    message = f"re-shard to {reshard.partitions} partitions: {reshard.message}"
    return Verdict(REASONS[reshard.phase], message, ready=serves, reconciling=True)


_SEVERITY = {
    PartitionState.STALLED: 0,
    PartitionState.LEADERLESS: 1,
    PartitionState.PENDING: 2,
    PartitionState.ELECTING: 3,
}


def topic_status(
    topic: OffsetsTopic, partitions: Sequence[OffsetsPartitionStatus], verdict: Verdict, now: str
) -> OffsetsTopicStatus:
    led = _count(partitions, PartitionState.LED)
    generation = topic.metadata.generation
    return replace(
        topic.status,
        observed_generation=generation,
        conditions=conditions_of(topic.status.conditions, verdict, generation, now),
        partitions=len(partitions),
        led=led,
        leaderless=len(partitions) - led,
    )


def cluster_status(
    seen: Observation,
    partitions: Sequence[OffsetsPartitionStatus],
    of_topic: Verdict | None,
    identity: Identity,
    now: str,
) -> CoordinatorClusterStatus:
    assert seen.cluster is not None
    before, generation = seen.cluster.status, seen.cluster.metadata.generation
    led = _count(partitions, PartitionState.LED)
    verdict = _verdict_of_cluster(seen, of_topic, identity)
    if verdict.reason is Reason.PODS_NOT_READY and before.observed_generation == generation and _is_asking(seen):
        # The operator has just started: that pods have not answered yet is no reason to change the status.
        return replace(before, pods=len(seen.pods), bootstrap=seen.bootstrap)
    return replace(
        before,
        observed_generation=generation,
        conditions=conditions_of(before.conditions, verdict, generation, now),
        pods=len(seen.pods),
        ready_pods=_ready_pods(seen),
        partitions=len(partitions),
        led=led,
        leaderless=len(partitions) - led,
        bootstrap=seen.bootstrap,
        selector=f"{GROUP}/cluster={seen.name}",
        cluster_id=identity.cluster_id or before.cluster_id,
        last_failovers=_merged(before.last_failovers, seen.failovers),
    )


def _verdict_of_cluster(seen: Observation, of_topic: Verdict | None, identity: Identity) -> Verdict:
    assert seen.cluster is not None
    declared = seen.cluster.spec.pods
    if seen.cluster.spec.suspend:
        return Verdict(Reason.SUSPENDED, "spec.suspend is set: the operator changes nothing")
    if identity.trouble:
        return Verdict(Reason.FOREIGN_CLUSTER, identity.trouble, stalled=True)
    if len(seen.pods) < declared:
        return Verdict(Reason.CREATING_PODS, f"{len(seen.pods)} of {declared} pods exist", reconciling=True)
    if of_topic is None:
        return Verdict(Reason.NO_TOPIC, "no OffsetsTopic refers to this cluster: there is nothing to lead")
    ready = _ready_pods(seen)
    if of_topic.ready and ready < declared:
        return Verdict(Reason.PODS_NOT_READY, f"{ready} of {declared} pods are ready", reconciling=True)
    return of_topic


def _is_asking(seen: Observation) -> bool:
    return any(pod.connection is Connection.UNSURE for pod in seen.pods)


def _ready_pods(seen: Observation) -> int:
    return sum(pod.ready and pod.connection is Connection.UP for pod in seen.pods)


def _merged(recorded: tuple[FailoverRecord, ...], new: tuple[FailoverRecord, ...]) -> tuple[FailoverRecord, ...]:
    """All failovers once, newest first. Partition and epoch identify a failover."""
    known = {(each.partition, each.epoch) for each in recorded}
    fresh = [each for each in new if (each.partition, each.epoch) not in known]
    if not fresh:
        return recorded
    return tuple(sorted((*fresh, *recorded), key=lambda each: each.time, reverse=True)[:LAST_FAILOVERS])


def _count(partitions: Sequence[OffsetsPartitionStatus], state: PartitionState) -> int:
    return sum(each.state is state for each in partitions)
