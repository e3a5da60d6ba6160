"""The status of partitions, topics and clusters: counts, and conditions with a reason for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace as with_fields

from msgspec.structs import replace

from muster_coordinator.states import FailureReason
from muster_operator.api.conditions import (
    Condition,
    ConditionType,
    Reason,
    find_condition,
    with_condition,
    without_condition,
)
from muster_operator.api.models import (
    GROUP,
    CoordinatorClusterStatus,
    FailoverRecord,
    ListenerStatus,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    PartitionState,
    ReshardPhase,
)
from muster_operator.plan.backups import backups_status, with_backups
from muster_operator.plan.before_kafka import with_upstream
from muster_operator.plan.hints import patch
from muster_operator.plan.identity import Identity
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.plan.reshard import REASONS
from muster_operator.plan.restore import restoring, with_restore
from muster_operator.plan.rollout import image_of, is_whole, verdict_of_rollout
from muster_operator.plan.set_change import copies_of
from muster_operator.plan.sites import with_site
from muster_operator.plan.verdict import Verdict, conditions_of, flag

LAST_FAILOVERS = 20
"""The most failovers that the status of a cluster lists (the limit of the schema)."""


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
    expected: int, partitions: Sequence[OffsetsPartitionStatus], too_few_pods: str = "", incomplete: str = ""
) -> Verdict:
    """The verdict on a topic from its partitions. It names the most serious cause. `incomplete`: which partitions have
    other copies than declared, "" if there are none.
    """
    led = _count(partitions, PartitionState.LED)
    if too_few_pods and (led < expected or incomplete):
        return Verdict(Reason.TOO_FEW_PODS, too_few_pods, stalled=True)
    if len(partitions) < expected:
        return Verdict(
            Reason.CREATING_PARTITIONS, f"{len(partitions)} of {expected} partitions exist", reconciling=True
        )
    if led == len(partitions) and incomplete:
        return Verdict(Reason.UNDER_REPLICATED, f"all {led} partitions are led, {incomplete}", reconciling=True)
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


def incomplete_sets(
    topic: OffsetsTopic,
    records: Mapping[int, OffsetsPartition],
    statuses: Mapping[int, OffsetsPartitionStatus],
    moving: Collection[int],
) -> str:
    """The number of partitions with other copies than declared, and the first of them, as text; "" if none has.
    `moving`: those that have all, and get one on another pod."""
    found = []
    for index, status in statuses.items():
        wanted, asked = copies_of(records[index], topic.spec.replication_factor), records[index].spec.replicas
        there = [each.pod for each in status.replicas if each.pod and (not asked or each.pod in asked)]
        changing = bool(status.previous_replicas or (status.learners and index not in moving))
        if (len(there), len(status.replicas)) != (wanted, wanted) or changing:
            found.append(f"{records[index].metadata.name} has {len(there)} of {wanted}")
    return f"{len(found)} have other copies than declared: {found[0]}" if found else ""


def verdict_of_topic(
    topic: OffsetsTopic,
    expected: int,
    partitions: Sequence[OffsetsPartitionStatus],
    too_few_pods: str,
    incomplete: str,
) -> Verdict:
    """The verdict on a topic. While a re-shard is under way, its progress comes before all but a stalled partition."""
    verdict = verdict_of_partitions(expected, partitions, too_few_pods, incomplete)
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
        conditions=_with_copies(
            conditions_of(topic.status.conditions, verdict, generation, now), partitions, generation, now
        ),
        partitions=len(partitions),
        led=led,
        leaderless=len(partitions) - led,
    )


def _with_copies(
    conditions: tuple[Condition, ...],
    partitions: Sequence[OffsetsPartitionStatus],
    generation: int,
    now: str,
    missing: str = "",
) -> tuple[Condition, ...]:
    """FullyReplicated: every copy follows its leader. Degraded: partitions are served by fewer copies than they have.

    Neither says anything about copies that are declared and do not exist yet: Ready does. `missing`: pods whose copies
    cannot follow.
    """
    whole = sum(is_whole(each) for each in partitions)
    full = bool(partitions) and whole == len(partitions)
    text = f"all copies of {whole} of {len(partitions)} partitions follow their leaders{'' if full else missing}"
    reason = Reason.FULLY_REPLICATED if full else Reason.UNDER_REPLICATED
    after = flag(conditions, ConditionType.FULLY_REPLICATED, full, reason, text, generation, now)
    led = any(each.state is PartitionState.LED and each.following < len(each.replicas) for each in partitions)
    return flag(after, ConditionType.DEGRADED, led, reason, text, generation, now, only_if_true=True)


def cluster_status(
    seen: Observation,
    partitions: Sequence[OffsetsPartitionStatus],
    of_topic: Verdict | None,
    identity: Identity,
    now: str,
    rebalance: Verdict | None = None,
) -> CoordinatorClusterStatus:
    """`rebalance`: what is to be said of replicas that move, or are to move, to pods that hold less."""
    assert seen.cluster is not None
    before, generation = seen.cluster.status, seen.cluster.metadata.generation
    led = _count(partitions, PartitionState.LED)
    verdict = _verdict_of_cluster(seen, of_topic, identity)
    unknown = (verdict.reason is Reason.PODS_NOT_READY and _is_asking(seen)) or (
        verdict.reason is Reason.ROLLING_OUT and not seen.applied
    )
    if unknown and before.observed_generation == generation and _was_ready(before):
        # The operator has just started: that pods have not answered yet is no reason to change the status.
        return replace(before, pods=len(seen.pods), bootstrap=seen.bootstrap)
    conditions = conditions_of(before.conditions, verdict, generation, now)
    conditions = _with_copies(conditions, partitions, generation, now, _missing(seen))
    conditions = _with_rebalance(conditions, rebalance, generation, now)
    conditions = with_site(seen, with_upstream(seen, conditions, now), now)
    backups = backups_status(seen)
    conditions = with_backups(seen, backups, conditions, now)
    restore = restoring(seen)
    conditions = with_restore(seen, restore, conditions, now)
    return replace(
        before,
        observed_generation=generation,
        conditions=_with_certificates(seen, _with_definitions(seen, _with_upgrade(seen, conditions, now), now), now),
        pods=len(seen.pods),
        ready_pods=_ready_pods(seen),
        updated_pods=sum(not pod.outdated for pod in seen.pods) if seen.applied else 0,
        partitions=len(partitions),
        led=led,
        leaderless=len(partitions) - led,
        bootstrap=seen.bootstrap,
        listeners=_listeners(seen),
        gateway=seen.gateway_bootstrap,
        selector=f"{GROUP}/cluster={seen.name}",
        image=image_of(seen),
        volume_size=seen.volume_size or before.volume_size,
        archive_size=seen.archive_size or before.archive_size,
        cluster_id=identity.cluster_id or before.cluster_id,
        backups=backups,
        restore=restore.status if restore is not None else before.restore,
        last_failovers=_merged(before.last_failovers, seen.failovers),
    )


def _was_ready(status: CoordinatorClusterStatus) -> bool:
    ready = find_condition(status.conditions, ConditionType.READY)
    return ready is not None and ready.status == "True"


def _with_upgrade(seen: Observation, conditions: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """UpgradeAvailable: the operator brings another image than the cluster, which names none, was created with."""
    assert seen.cluster is not None
    meta, image, newer = seen.cluster.metadata, image_of(seen), seen.default_image
    there_is = not seen.cluster.spec.image and bool(newer) and newer != image
    text = f"pods run {image}; to upgrade them, one at a time: " + patch("coordinatorcluster", meta, {"image": newer})
    kind, reason = ConditionType.UPGRADE_AVAILABLE, Reason.UPGRADE_AVAILABLE
    return flag(conditions, kind, there_is, reason, text, meta.generation, now, only_if_true=True)


def _with_rebalance(
    conditions: tuple[Condition, ...], rebalance: Verdict | None, generation: int, now: str
) -> tuple[Condition, ...]:
    if rebalance is None:
        return without_condition(conditions, ConditionType.REBALANCING)
    told = Condition(ConditionType.REBALANCING, "True", rebalance.reason, rebalance.message, "", generation)
    return with_condition(conditions, told, now)


def _with_definitions(seen: Observation, conditions: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """CrdOutdated: what the operator writes may be dropped, and what people declare ignored."""
    assert seen.cluster is not None
    text = (
        f"{seen.outdated_definitions} is not what this version of the operator was made with, so fields may be dropped;"
        " with the files of this version: kubectl apply --server-side -k crds"
    )
    kind, generation = ConditionType.CRD_OUTDATED, seen.cluster.metadata.generation
    there_is = bool(seen.outdated_definitions)
    return flag(conditions, kind, there_is, Reason.CRD_OUTDATED, text, generation, now, only_if_true=True)


def _with_certificates(seen: Observation, conditions: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """CertificatesDue: a person has time until the first one ends, which the metric says."""
    assert seen.cluster is not None
    kind, generation, why = ConditionType.CERTIFICATES_DUE, seen.cluster.metadata.generation, seen.certificates
    text = f"certificates cannot be kept, and are tried again: {why}"
    return flag(conditions, kind, bool(why), Reason.CERTIFICATES_NOT_KEPT, text, generation, now, only_if_true=True)


def _verdict_of_cluster(seen: Observation, of_topic: Verdict | None, identity: Identity) -> Verdict:
    """The most serious thing that is to be said. Ready is only what holds for the present generation on every pod."""
    assert seen.cluster is not None
    declared = seen.cluster.spec.pods
    if seen.cluster.spec.suspend:
        return Verdict(Reason.SUSPENDED, "spec.suspend is set: the operator changes nothing")
    if seen.cluster.spec.hibernate and of_topic is not None:
        return of_topic
    if found := restoring(seen):
        return found.verdict
    if seen.conflict:
        return Verdict(Reason.NAME_CONFLICT, seen.conflict, stalled=True)
    if seen.refusal:
        return Verdict(Reason.PODS_REFUSED, seen.refusal, stalled=True)
    if identity.trouble:
        return Verdict(Reason.FOREIGN_CLUSTER, identity.trouble, stalled=True)
    if seen.invalid_settings:
        text = f"spec.settings: {seen.invalid_settings}; pods keep the settings that they have"
        return Verdict(Reason.INVALID_SETTINGS, text, stalled=True)
    if seen.growth_refused:
        return Verdict(Reason.GROWTH_REFUSED, seen.growth_refused, stalled=True)
    if len(seen.pods) < declared:
        return Verdict(Reason.CREATING_PODS, f"{len(seen.pods)} of {declared} pods exist", reconciling=True)
    if of_topic is None:
        return _verdict_without_topic(seen)
    if not of_topic.ready:
        return with_fields(of_topic, message=_with_troubles(seen, of_topic.message))
    ready = _ready_pods(seen)
    if ready < declared:
        text = f"{ready} of {declared} pods are ready{_missing(seen)}"
        return Verdict(Reason.PODS_NOT_READY, _with_troubles(seen, text), reconciling=True)
    if waiting := _without_address(seen):
        return Verdict(Reason.AWAITING_ADDRESSES, waiting, reconciling=True)
    if seen.gateway_trouble:
        return Verdict(Reason.GATEWAY_REFUSED, seen.gateway_trouble, stalled=True)
    if seen.gateway_waits:
        return Verdict(Reason.GATEWAY_NOT_READY, seen.gateway_waits, reconciling=True)
    if seen.growing:
        return Verdict(Reason.GROWING_VOLUMES, seen.growing, reconciling=True)
    return of_topic


def _verdict_without_topic(seen: Observation) -> Verdict:
    rollout = verdict_of_rollout(seen)
    if rollout is None:
        return Verdict(Reason.NO_TOPIC, "no OffsetsTopic refers to this cluster: there is nothing to lead")
    if rollout.reason is Reason.ROLLING_OUT and seen.applied and any(pod.replicas for pod in seen.pods):
        text = "no OffsetsTopic refers to this cluster, so pods that serve keep an older template: create it again"
        return Verdict(Reason.NO_TOPIC, text, stalled=True)
    return rollout


def _with_troubles(seen: Observation, text: str) -> str:
    """The text, and why containers do not run, as far as it does not say so: that is what a person has to mend."""
    assert seen.cluster is not None
    troubled = [pod for pod in seen.pods if not pod.is_up and pod.trouble and pod.trouble not in text]
    text += "".join(f"; pod {pod.name}: {pod.trouble}" for pod in troubled)
    kept = ", ".join(pod.name for pod in troubled if pod.outdated)
    if kept and seen.cluster.spec.rollout.paused:
        text += f"; spec.rollout.paused keeps pod {kept} from the declared template"
    return text


def _without_address(seen: Observation) -> str:
    """Names the pods that clients of a declared listener do not reach yet; "" if there are none."""
    assert seen.cluster is not None
    for listener in seen.cluster.spec.external:
        lacking = [pod.name for pod in seen.pods if listener.name not in pod.endpoints]
        if lacking:
            return f"listener {listener.name} ({listener.type}) has no address yet for {', '.join(lacking)}"
    return ""


def _listeners(seen: Observation) -> tuple[ListenerStatus, ...]:
    assert seen.cluster is not None
    return tuple(
        ListenerStatus(each.name, ",".join(pod.endpoints[each.name] for pod in seen.pods if each.name in pod.endpoints))
        for each in seen.cluster.spec.external
    )


def _is_asking(seen: Observation) -> bool:
    return any(pod.connection is Connection.UNSURE for pod in seen.pods)


def _serves(pod: PodView) -> bool:
    return pod.ready and pod.is_up


def _ready_pods(seen: Observation) -> int:
    return sum(map(_serves, seen.pods))


def _missing(seen: Observation) -> str:
    """The end of a sentence: pods that are not ready, and nodes of theirs of which nothing is heard; "" if all are."""
    away = [pod for pod in seen.pods if not _serves(pod)]
    names = (f"{pod.name} (nothing is heard of its node {pod.node})" if pod.node_lost else pod.name for pod in away)
    return f"; not ready: {', '.join(names)}" if away else ""


def _merged(recorded: tuple[FailoverRecord, ...], new: tuple[FailoverRecord, ...]) -> tuple[FailoverRecord, ...]:
    """All failovers once, newest first. Partition and epoch identify a failover."""
    known = {(each.partition, each.epoch) for each in recorded}
    fresh = [each for each in new if (each.partition, each.epoch) not in known]
    if not fresh:
        return recorded
    return tuple(sorted((*fresh, *recorded), key=lambda each: each.time, reverse=True)[:LAST_FAILOVERS])


def _count(partitions: Sequence[OffsetsPartitionStatus], state: PartitionState) -> int:
    return sum(each.state is state for each in partitions)
