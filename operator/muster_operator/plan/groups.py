"""The groups that are to move now, and what is said of each ConsumerGroup (docs/adr/0048)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from muster_coordinator.records.partitioner import partition_for
from muster_operator.api.conditions import Condition, ConditionType, Reason, without_condition
from muster_operator.api.consumer_group import KAFKA, MUSTER, GroupMove
from muster_operator.api.models import ConsumerGroup, CoordinatorCluster, OffsetsTopic
from muster_operator.plan.actions import AskedMove, AskResets, StartMoves, WriteGroupStatus
from muster_operator.plan.group_facts import GIVEN_UP, MOVED, GroupFacts
from muster_operator.plan.observation import CallKind, Observation
from muster_operator.plan.reset_facts import ResetFacts
from muster_operator.plan.resets import is_to_ask, key_of, with_reset
from muster_operator.plan.verdict import Verdict, conditions_of, flag

AT_ONCE = 5
"""Groups of a cluster that move at the same time."""
SHOWN = 1_000
"""Characters of what stands in the way."""


def leaders_of_groups(seen: Observation) -> dict[str, str]:
    """The pod that leads its partition, by id of each declared group; groups without one are left out."""
    topic = _topic_of_groups(seen)
    if topic is None or not seen.groups:
        return {}
    active = {
        index: pod.name
        for pod in seen.pods
        if pod.is_up
        for index, replica in pod.replicas.items()
        if replica.is_active
    }
    found = {}
    for group in seen.groups:
        index = topic.layout.base + _partition(topic, group)
        if index in active:
            found[group.spec.group] = active[index]
    return found


def start_moves(seen: Observation) -> Iterator[StartMoves]:
    """Ask the leaders of groups that are elsewhere; of `AT_ONCE` groups at most, those that move included."""
    cluster = seen.cluster
    if cluster is None or not seen.groups or _hold(seen, cluster):
        return
    room = AT_ONCE - sum(each.is_moving for each in seen.group_facts.values())
    leaders = leaders_of_groups(seen)
    by_pod: dict[str, list[AskedMove]] = {}
    for group in counting(seen.groups).values():
        name = group.spec.group
        pod = leaders.get(name, "")
        if room > 0 and pod and (CallKind.MOVE, pod) not in seen.busy and _is_to_move(seen, cluster, group):
            asked = AskedMove(name, group.spec.coordinator == KAFKA, group.metadata.generation)
            by_pod.setdefault(pod, []).append(asked)
            room -= 1
    for pod, names in by_pod.items():
        yield StartMoves(pod, tuple(names))


def ask_resets(seen: Observation) -> Iterator[AskResets]:
    """Ask the leaders of groups that are here about their declared resets."""
    leaders = leaders_of_groups(seen)
    by_pod: dict[str, list[ConsumerGroup]] = {}
    for group in counting(seen.groups or ()).values():
        pod = leaders.get(group.spec.group, "")
        can_be_asked = pod and (CallKind.RESET, pod) not in seen.busy and not _reset_waits(seen, group, pod)
        if can_be_asked and is_to_ask(group, reset_facts(seen, group)):
            by_pod.setdefault(pod, []).append(group)
    for pod, groups in by_pod.items():
        yield AskResets(pod, tuple(groups))


def reset_facts(seen: Observation, group: ConsumerGroup) -> ResetFacts:
    """The facts about its declared reset, as pods tell them."""
    key = key_of(group)
    return seen.reset_facts.get(key, ResetFacts()) if key is not None else ResetFacts()


def _reset_waits(seen: Observation, group: ConsumerGroup, leader: str) -> str:
    """The reason why no pod can be asked about resets of the group."""
    facts = seen.group_facts.get(group.spec.group, GroupFacts())
    if seen.cluster is None or _side(seen.cluster, group, facts) != MUSTER:
        return "the group is not at Muster"
    if facts.is_moving:
        return "the group is moving"
    return "" if leader else "no pod leads its offsets partition"


def _is_to_move(seen: Observation, cluster: CoordinatorCluster, group: ConsumerGroup) -> bool:
    """Now."""
    name = group.spec.group
    facts = seen.group_facts.get(name, GroupFacts())
    side = _side(cluster, group, facts)
    elsewhere = bool(side) and side != group.spec.coordinator
    movable = _can_move(cluster, name) and not _is_here_for_good(cluster, name)
    return elsewhere and movable and facts.is_due and not facts.is_moving


def tell_groups(seen: Observation, time: str) -> Iterator[WriteGroupStatus]:
    """The statuses that differ from those that are there."""
    groups = seen.groups or ()
    oldest, leaders, topic = counting(groups), leaders_of_groups(seen), _topic_of_groups(seen)
    for group in groups:
        name, status = group.spec.group, group.status
        facts = seen.group_facts.get(name, GroupFacts())
        counts = oldest[name] is group
        verdict = _verdict(seen, group, facts, leaders.get(name, ""), oldest[name])
        move = facts.move if counts else None
        side = _side(seen.cluster, group, facts) if seen.cluster is not None else ""
        after = replace(
            status,
            observed_generation=group.metadata.generation,
            conditions=_with_write_back(
                conditions_of(status.conditions, verdict, group.metadata.generation, time),
                facts if counts else GroupFacts(),
                group.metadata.generation,
                time,
            ),
            coordinator=side or status.coordinator,
            partition=_partition(topic, group) if topic is not None else status.partition,
            step=move.step if move is not None and facts.is_moving else "",
            last_move=_last_move(group, facts, time) if counts else status.last_move,
        )
        if counts:
            waits = _reset_waits(seen, group, leaders.get(name, ""))
            after = with_reset(after, group, reset_facts(seen, group), waits, time)
        if after != status:
            yield WriteGroupStatus(group, after)


def _topic_of_groups(seen: Observation) -> OffsetsTopic | None:
    return next((each for each in seen.topics if each.spec.topic == "__consumer_offsets"), None)


def _partition(topic: OffsetsTopic, group: ConsumerGroup) -> int:
    return partition_for(group.spec.group, topic.layout.partitions)


def counting(groups: Iterable[ConsumerGroup]) -> Mapping[str, ConsumerGroup]:
    """The resource that counts, by id of the group: the oldest."""
    ordered = sorted(groups, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name), reverse=True)
    return {each.spec.group: each for each in ordered}


def _can_move(cluster: CoordinatorCluster, group: str) -> bool:
    upstream = cluster.spec.upstream
    return upstream is not None and upstream.lets_move(group)


def _is_here_for_good(cluster: CoordinatorCluster, group: str) -> bool:
    upstream = cluster.spec.upstream
    return upstream is None or upstream.serves(group)


def _side(cluster: CoordinatorCluster, group: ConsumerGroup, facts: GroupFacts) -> str:
    """The side that has the group; "": not known. A group without a route is Kafka's."""
    name = group.spec.group
    if facts.at_muster or _is_here_for_good(cluster, name):
        return MUSTER
    if facts.is_known:
        return KAFKA
    if not _can_move(cluster, name):  # it may have moved when it was named
        return group.status.coordinator or KAFKA
    return ""


def _hold(seen: Observation, cluster: CoordinatorCluster) -> str:
    """The reason why no group is moved now. A gateway of an older template would not wait for a fence."""
    if cluster.spec.hibernate:
        return "spec.hibernate of the CoordinatorCluster is set"
    if seen.gateway_waits or seen.gateway_trouble:
        return seen.gateway_trouble or seen.gateway_waits
    return ""


def _verdict(seen: Observation, group: ConsumerGroup, facts: GroupFacts, leader: str, counts: ConsumerGroup) -> Verdict:
    cluster, name, wanted = seen.cluster, group.spec.group, group.spec.coordinator
    if cluster is None:
        text = f"there is no CoordinatorCluster {group.spec.cluster_ref.name}"
        return Verdict(Reason.CLUSTER_NOT_FOUND, text)
    if counts is not group:
        text = f"ConsumerGroup {counts.metadata.name} is older and has the same group: delete one of them"
        return Verdict(Reason.GROUP_DECLARED_TWICE, text, stalled=True)
    side = _side(cluster, group, facts)
    if side == wanted:
        reason, who = (Reason.AT_MUSTER, "this cluster") if side == MUSTER else (Reason.AT_KAFKA, "Kafka")
        return Verdict(reason, f"{who} coordinates group {name}", ready=True)
    if _is_here_for_good(cluster, name):
        text = f"spec.upstream gives {name} to this cluster for good: declare coordinator: Muster"
        return Verdict(Reason.NO_WAY_BACK, text, stalled=True)
    if not _can_move(cluster, name):
        text = f"add the beginning of {name} to spec.upstream.movableGroups of CoordinatorCluster {seen.name}"
        return Verdict(Reason.GROUP_NOT_MOVABLE, text, stalled=True)
    return _on_the_way(seen, cluster, facts, leader)


def _on_the_way(seen: Observation, cluster: CoordinatorCluster, facts: GroupFacts, leader: str) -> Verdict:
    move = facts.move
    if move is not None and facts.is_moving:
        return Verdict(Reason.GROUP_MOVING, f"its move is {move.step}", reconciling=True)
    if hold := _hold(seen, cluster):
        return Verdict(Reason.MOVE_WAITS, hold, reconciling=True)
    if not leader:
        return Verdict(Reason.MOVE_WAITS, "no pod leads its offsets partition", reconciling=True)
    if facts.obstacles:
        text = f"{'; '.join(facts.obstacles)[:SHOWN]}. It is tried again by itself"
        return Verdict(Reason.MOVE_REFUSED, text, reconciling=True)
    if move is not None and move.step == GIVEN_UP:
        text = f"it stays where it is: {move.reason[:SHOWN]}. It is tried again by itself"
        return Verdict(Reason.MOVE_GIVEN_UP, text, reconciling=True)
    return Verdict(Reason.MOVE_WAITS, "the pod that leads its partition has not said how far it is", reconciling=True)


def _with_write_back(
    conditions: tuple[Condition, ...], facts: GroupFacts, generation: int, time: str
) -> tuple[Condition, ...]:
    """The status with the condition about write-back: the last one stays until pods say otherwise, and a group that is
    not at Muster has none."""
    if not facts.at_muster:
        return without_condition(conditions, ConditionType.WRITTEN_BACK)
    if facts.write_problem is None:
        return conditions
    reason = Reason.OFFSETS_NOT_WRITTEN if facts.write_problem else Reason.OFFSETS_WRITTEN
    text = facts.write_problem[:SHOWN] or "Kafka gets its offsets; the last seconds would be lost with all pods"
    return flag(conditions, ConditionType.WRITTEN_BACK, not facts.write_problem, reason, text, generation, time)


def _last_move(group: ConsumerGroup, facts: GroupFacts, time: str) -> GroupMove | None:
    move, last = facts.move, group.status.last_move
    if move is None or move.step not in (MOVED, GIVEN_UP):
        return last
    now = GroupMove(KAFKA if move.back else MUSTER, move.step == MOVED, time, move.fenced_ms, move.reason[:SHOWN])
    return last if last is not None and replace(now, time=last.time) == last else now
