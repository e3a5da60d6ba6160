"""`plan`: all actions for one cluster, the most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields

from msgspec.structs import replace

from muster_operator.api.conditions import PLANNED, Reason
from muster_operator.api.durations import format_time, parse_duration
from muster_operator.api.models import (
    CoordinatorCluster,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    PartitionState,
)
from muster_operator.plan.actions import (
    Action,
    RecordLeadership,
    RecordReshard,
    WriteClusterStatus,
    WritePartitionStatus,
    WriteTopicStatus,
)
from muster_operator.plan.adopt import Found, read_logs
from muster_operator.plan.backups import plan_backups
from muster_operator.plan.cluster_facts import ClusterFacts, Tally
from muster_operator.plan.decide import decide
from muster_operator.plan.decision import Decision
from muster_operator.plan.groups import ask_resets, start_moves, tell_groups
from muster_operator.plan.hibernate import hibernate
from muster_operator.plan.identity import Identity, identify, lost_layout, without_strangers
from muster_operator.plan.metadata import publish
from muster_operator.plan.objects import Objects, refuse_partitions, refuse_topics, sort_objects, used_topics
from muster_operator.plan.observation import Observation, PodView
from muster_operator.plan.placement import absent_pods, place_new, too_few_pods
from muster_operator.plan.record import next_record
from muster_operator.plan.replicas import missing_partitions, new_replicas, refreshes, removals
from muster_operator.plan.reshard import (
    dropped,
    epochs_above,
    hindrance,
    indexes,
    is_retired,
    is_under_way,
    next_phase,
    set_fences,
)
from muster_operator.plan.restore import restoring
from muster_operator.plan.rollout import lets_restart, next_to_restart, restart, verdict_of_rollout
from muster_operator.plan.scale import emptying_surplus, scale_down
from muster_operator.plan.set_change import copies_of
from muster_operator.plan.spread import Share, firsts, shares, verdict_of_moves
from muster_operator.plan.status import (
    cluster_status,
    damage_of,
    incomplete_sets,
    partition_status,
    topic_status,
    verdict_of_topic,
)
from muster_operator.plan.stranded import replace_volume, verdict_of_volumes
from muster_operator.plan.users import give_access, tell_users
from muster_operator.plan.verdict import Verdict

MOVES_AT_ONCE = 1
"""The number of elections that may interrupt live leaders at the same time. They share the CPUs of the same pods, so a
group waits for all elections that run together with its own."""
PARTITIONS_PER_MOVE = 100
"""A large cluster runs one such election per this number of partitions at the same time, so that a drain takes some
dozen rounds at most."""
CHANGES_AT_ONCE = 5
"""The number of partitions that change their sets at the same time: each change copies a log."""


@dataclass(frozen=True, slots=True)
class _TopicPlan:
    """The decisions about one topic, over its own partitions and its own record."""

    topic: OffsetsTopic
    statuses: Mapping[int, OffsetsPartitionStatus]
    record: RecordLeadership | None
    resharded: OffsetsTopicStatus | None
    verdict: Verdict


def plan(seen: Observation, now: float) -> tuple[Action, ...]:
    """The actions that the observation asks for. `now`: seconds since 1970, only for the times in status."""
    time = format_time(now)
    actions = _plan(seen, time)
    if seen.cluster is not None and seen.cluster.spec.suspend:
        return actions
    told: tuple[Action, ...] = (*tell_users(seen, time), *tell_groups(seen, time))
    found = restoring(seen)
    asked: tuple[Action, ...] = (*give_access(seen), *start_moves(seen), *ask_resets(seen))
    restores = found.actions if found is not None else ()
    return (*actions, *asked, *told, *plan_backups(seen, time), *restores)


def _plan(seen: Observation, time: str) -> tuple[Action, ...]:
    cluster = seen.cluster
    topics = used_topics(seen)
    objects = sort_objects(seen, topics)
    if cluster is not None and cluster.spec.suspend:
        recorded = [each.status for each in objects.recorded.values()]
        return tuple(_cluster(seen, cluster, recorded, None, time, identify(seen)))
    if cluster is not None and cluster.spec.hibernate:
        return tuple(hibernate(seen, cluster, topics, objects, time))
    refusals = tuple(refuse_partitions(objects, time))
    others = tuple(refuse_topics(seen, topics, time))
    if cluster is None:
        return (*refusals, *others)
    identity = identify(seen)
    seen = without_strangers(seen, identity.cluster_id)
    if not topics:
        return (
            *restart(seen, _next_without_topic(seen, cluster), (), {}),
            *refusals,
            *others,
            *_cluster(seen, cluster, [], None, time, identity),
        )
    for topic in topics:
        layout, conflict = lost_layout(seen, topic)
        if layout is not None:  # nothing is decided about partitions that may be the wrong ones
            return (RecordReshard(topic, replace(topic.status, layout=layout)), *refusals, *others)
        if conflict:
            verdict = Verdict(Reason.LAYOUT_CONFLICT, conflict, stalled=True)
            return (
                *refusals,
                *_topic(topic, (), verdict, time),
                *others,
                *_cluster(seen, cluster, [], verdict, time, identity),
            )

    seen = emptying_surplus(seen, topics)
    found = read_logs(seen, objects.recorded)
    objects = with_fields(objects, recorded={**objects.recorded, **found.adopted})
    tally = _count(seen, objects)  # one for all topics: what goes on at once goes on in the same pods
    expected = {index for topic in topics for index in indexes(topic)}
    rebalance_after_s = parse_duration(cluster.spec.failover.rebalance_after)
    emptying = next_to_restart(seen, rebalance_after_s) if _is_settled(seen, expected, objects) else ""
    facts = [_facts(seen, topic, tally, emptying) for topic in topics]
    calm = _is_calm(seen, topics, facts[0])
    moving = _shares(seen, topics, objects, begin=calm)
    told_of_moves = verdict_of_moves(
        moving, {} if calm else _shares(seen, topics, objects, begin=True), objects.recorded
    )
    facts = [with_fields(each, shares=moving) for each in facts]
    if calm and not moving:
        objects = _with_shares_of_leaders(objects, seen.pods)
    decisions = {
        index: decision
        for topic, those in zip(topics, facts, strict=True)
        for index, decision in _decide(seen, topic, objects, those, found, time).items()
    }
    plans = [_plan_topic(seen, topic, topics, objects, decisions, moving, time) for topic in topics]
    statuses = {index: decision.status for index, decision in decisions.items()}
    shown = [
        WritePartitionStatus(objects.shown[index], status)
        for index, status in statuses.items()
        if status != objects.shown[index].status
    ]
    elections = [decision.elect for decision in decisions.values() if decision.elect is not None]
    image = publish(seen, topics, statuses, identity.cluster_id) if identity.cluster_id else None
    ordered = list(statuses.values())
    stranded = verdict_of_volumes(seen, topics, statuses)
    return (
        *(each.record for each in plans if each.record),
        *elections,
        *((image,) if image else ()),
        *shown,
        *(RecordReshard(each.topic, each.resharded) for each in plans if each.resharded and not each.record),
        *(fence for topic in topics for fence in set_fences(seen, topic)),
        *(removal for topic in topics for removal in dropped(seen, topic)),
        *(action for topic in topics for action in missing_partitions(topic, objects)),
        *(action for topic in topics for action in new_replicas(seen, topic, decisions)),
        *removals(seen, objects, decisions),
        *refreshes(seen, decisions),
        *restart(seen, emptying, expected, statuses),
        *(() if any(each.record for each in plans) else replace_volume(seen, topics, statuses)),
        *refusals,
        *(write for each in plans for write in _told(each, time)),
        *others,
        *_cluster(seen, cluster, ordered, _of_cluster(seen, plans, statuses, stranded), time, identity, told_of_moves),
    )


def _next_without_topic(seen: Observation, cluster: CoordinatorCluster) -> str:
    """The pod that a rollout replaces next. None that has partitions: nobody moves their leaders."""
    if any(pod.replicas for pod in seen.pods):
        return ""
    return next_to_restart(seen, parse_duration(cluster.spec.failover.rebalance_after))


def _plan_topic(
    seen: Observation,
    topic: OffsetsTopic,
    topics: Sequence[OffsetsTopic],
    objects: Objects,
    decisions: Mapping[int, Decision],
    moving: Collection[int],
    time: str,
) -> _TopicPlan:
    statuses = {index: decision.status for index, decision in decisions.items() if index in topic.numbers}
    incomplete = incomplete_sets(topic, objects.recorded, statuses, moving)
    ordered = list(statuses.values())
    too_few = too_few_pods(seen, topic) or absent_pods(seen)
    verdict = verdict_of_topic(topic, len(indexes(topic)), ordered, too_few, incomplete)
    waits = hindrance(topic, topics)
    resharded = next_phase(seen, topic, topics, time) if not waits else None
    if waits and topic.spec.reshard is not None and topic.spec.reshard.partitions != topic.layout.partitions:
        verdict = with_fields(verdict, message=f"{verdict.message}; {waits}")
    return _TopicPlan(topic, statuses, _record(topic, objects, statuses), resharded, verdict)


def _told(planned: _TopicPlan, time: str) -> tuple[WriteTopicStatus, ...]:
    """A topic's status has three kinds of compare-and-swap writes. A plan has only the most urgent one of them."""
    if planned.resharded or planned.record:
        return ()
    return _topic(planned.topic, list(planned.statuses.values()), planned.verdict, time)


def _of_cluster(
    seen: Observation,
    plans: Sequence[_TopicPlan],
    statuses: Mapping[int, OffsetsPartitionStatus],
    stranded: Verdict | None,
) -> Verdict:
    """The verdict of the topic that is worst off, or what goes on with the pods, unless partitions have no leader and
    get none. What a person has to do comes before what goes on by itself, and may be what that waits for.
    """
    verdicts, partitions = [each.verdict for each in plans], list(statuses.values())
    worst = min(verdicts, key=lambda each: (not each.stalled, each.ready))
    if worst.reason is Reason.ALL_LED:
        worst = Verdict(Reason.ALL_LED, f"all {len(partitions)} partitions are led", ready=True)
    if any(each.state in (PartitionState.LEADERLESS, PartitionState.STALLED) for each in partitions):
        return worst if stranded is None else with_fields(worst, message=f"{worst.message}; {stranded.message}")
    scaling = scale_down(seen, [each.topic for each in plans], partitions)
    told = (scaling, verdict_of_rollout(seen), stranded, worst)
    found = [each for each in told if each is not None]
    return next((each for each in found if each.stalled), found[0])


def _topic(
    topic: OffsetsTopic, partitions: Sequence[OffsetsPartitionStatus], verdict: Verdict, time: str
) -> tuple[WriteTopicStatus, ...]:
    after = topic_status(topic, partitions, verdict, time)
    return (WriteTopicStatus(topic, after),) if after != topic.status else ()


def _record(
    topic: OffsetsTopic, objects: Objects, statuses: Mapping[int, OffsetsPartitionStatus]
) -> RecordLeadership | None:
    before = topic.status.leaderships
    retired = {index for index in before if is_retired(topic, int(index))}
    shown = {index: each for index, each in objects.shown.items() if index in topic.numbers}
    after = next_record(before, shown, statuses, retired)
    return RecordLeadership(topic, after) if after != before else None


def _facts(seen: Observation, topic: OffsetsTopic, tally: Tally, emptying: str) -> ClusterFacts:
    assert seen.cluster is not None
    spec = seen.cluster.spec
    return ClusterFacts(
        pods={pod.name: pod for pod in seen.pods},
        replication_factor=topic.spec.replication_factor,
        declared=spec.pods,
        rebalance_after_s=parse_duration(spec.failover.rebalance_after),
        replace_after_s=parse_duration(spec.failover.replace_after),
        emptying=emptying,
        tally=tally,
        epochs_above=epochs_above(topic),
    )


def _shares(seen: Observation, topics: Sequence[OffsetsTopic], objects: Objects, *, begin: bool) -> Mapping[int, Share]:
    """The replicas that move to pods that hold less. What has begun goes on while pods come and go."""
    assert seen.cluster is not None
    if seen.cluster.spec.rebalance != "Auto":
        return {}
    staying = [pod for pod in seen.pods if pod.is_up and not pod.cordoned and pod.node_id < seen.cluster.spec.pods]
    factors = {index: topic.spec.replication_factor for topic in topics for index in topic.numbers}
    known = {index: each for index, each in objects.recorded.items() if index in factors}
    copies = {index: copies_of(each, factors[index]) for index, each in known.items()}
    return shares(known, staying, copies, begin=begin)


def _is_calm(seen: Observation, topics: Sequence[OffsetsTopic], facts: ClusterFacts) -> bool:
    """True if replicas and leaders may be spread anew: nothing else goes on."""
    assert seen.cluster is not None
    there = len(seen.pods) == seen.cluster.spec.pods and all(pod.is_up and not pod.cordoned for pod in seen.pods)
    auto = seen.cluster.spec.rebalance == "Auto" and facts.rebalance_after_s > 0
    return auto and there and not facts.is_restless and not any(map(is_under_way, topics))


def _with_shares_of_leaders(objects: Objects, pods: Sequence[PodView]) -> Objects:
    """The objects in which the first replica, which is to lead, is another one where a pod would lead too many."""
    recorded = {**objects.recorded}
    for index, pod in firsts(objects.recorded, pods).items():
        status = recorded[index].status
        first = [each for each in status.replicas if each.pod == pod]
        rest = [each for each in status.replicas if each.pod != pod]
        recorded[index] = replace(recorded[index], status=replace(status, replicas=(*first, *rest)))
    return with_fields(objects, recorded=recorded)


def _is_settled(seen: Observation, expected: Collection[int], objects: Objects) -> bool:
    """True if a rollout may go on. A partition that lacks a leader or a copy may need the pod that would go next."""
    statuses = {index: each.status for index, each in objects.recorded.items()}
    moving = (each for each in statuses.values() if each.state is not PartitionState.ELECTING)
    return statuses.keys() >= {*expected} and all(lets_restart(seen, each) for each in moving)


def _count(seen: Observation, objects: Objects) -> Tally:
    """The counts before the first decision of the plan."""
    partitions = objects.recorded.values()
    statuses = [each.status for each in partitions]
    moves = max(MOVES_AT_ONCE, len(statuses) // PARTITIONS_PER_MOVE)
    if any(pod.gone for pod in seen.pods):
        moves = len(statuses)  # a partition that is not moved in time waits until the failure detector notices the end
    return Tally(
        moves=moves - sum(_is_moving(seen, each) for each in partitions),
        changes=CHANGES_AT_ONCE - sum(bool(status.learners or status.previous_replicas) for status in statuses),
        led=Counter(status.leader for status in statuses if status.leader is not None),
        held=Counter(replica.pod for status in statuses for replica in status.replicas),
    )


def _is_moving(seen: Observation, partition: OffsetsPartition) -> bool:
    """True if a planned election is under way and its pod does not lead yet.

    Any answer ends it: a pod answers within a second even if its election takes longer, and a pod that does not answer
    is given up after `electionTimeout`. A new operator knows of no calls, so nothing is under way for it.
    """
    status, attempt = partition.status, seen.attempts.get(partition.metadata.name)
    if attempt is None or not attempt.in_flight or attempt.reason not in PLANNED:
        return False
    view = next((pod.replicas.get(partition.spec.index) for pod in seen.pods if pod.name == attempt.pod), None)
    return view is None or not view.is_active or view.leader_epoch < status.epoch


def _decide(
    seen: Observation, topic: OffsetsTopic, objects: Objects, facts: ClusterFacts, found: Found, time: str
) -> Mapping[int, Decision]:
    """One decision per partition of the topic, by index, each with the status as it is to be recorded."""
    all_clear = {index: each for index, each in objects.recorded.items() if index not in found.unclear}
    clear = {index: each for index, each in all_clear.items() if index in topic.numbers}
    placed = {index: each for index, each in clear.items() if each.status.replicas}
    decisions = {index: decide(each, facts, seen.attempts.get(each.metadata.name)) for index, each in placed.items()}
    decisions |= {index: decision for index, decision in found.unclear.items() if index in topic.numbers}
    if len(placed) < len(clear):
        decisions |= place_new(seen, topic, all_clear)
    return {
        index: _with_conditions(seen, objects.recorded[index], decision, time)
        for index, decision in sorted(decisions.items())
    }


def _with_conditions(seen: Observation, record: OffsetsPartition, decided: Decision, time: str) -> Decision:
    damage = damage_of(record.spec.index, seen.pods)
    return with_fields(decided, status=partition_status(record, decided.status, decided.message, time, damage))


def _cluster(
    seen: Observation,
    cluster: CoordinatorCluster,
    partitions: Sequence[OffsetsPartitionStatus],
    of_topic: Verdict | None,
    time: str,
    identity: Identity,
    rebalance: Verdict | None = None,
) -> Iterator[Action]:
    status = cluster_status(seen, partitions, of_topic, identity, time, rebalance)
    if status != cluster.status:
        yield WriteClusterStatus(cluster, status)
