"""Decides about one partition: elect a leader, or record what its leader says, repair its set and move its leader.

A plan does one thing at a time per partition, the most urgent first. A repair or a move is an election in a higher
epoch of a replica that has caught up, with force because a leader lives: clients see a pause of milliseconds. During a
change of the set the record, and every call, names both sets until the log says that the new one is final (replication
specification, "Sets and their change"), also after a crash.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan.cluster_facts import ClusterFacts
from muster_operator.plan.decision import Decision, leaderless, preferred_pod, unchanged
from muster_operator.plan.failover import copied, without_leader, without_logs
from muster_operator.plan.moves import hand_over, interrupt, rebalance
from muster_operator.plan.observation import Attempt, PodView
from muster_operator.plan.partition_view import Member, PartitionView, log_ids
from muster_operator.plan.set_change import change_set


def decide(record: OffsetsPartition, facts: ClusterFacts, attempt: Attempt | None) -> Decision:
    """Decide about a partition whose pods are chosen (`status.replicas` is not empty)."""
    if not all(each.log_id for each in record.status.replicas):
        return without_logs(record, facts)
    partition = PartitionView(record, facts)
    if partition.doubled:
        return copied(record.status, partition.doubled)
    partition = partition.on_present_pods()
    led = partition.leader()
    if led is None or led[1].leader_epoch < partition.status.epoch:
        return _adopt_sets(partition, attempt) or without_leader(partition, attempt)
    pod, view = led
    if not view.is_active:
        return _loading(partition.record, pod, view)
    return _keep(partition, pod, view, attempt)


def _adopt_sets(partition: PartitionView, attempt: Attempt | None) -> Decision | None:
    """Record the sets that the answer to the last election found in the log, if the record names others."""
    conflict = attempt.sets if attempt is not None and not attempt.in_flight else None
    if conflict is None:
        return None
    status = partition.status
    replicas, previous = _sets(partition, *conflict, committed=True)
    if (replicas, previous) == (status.replicas, status.previous_replicas):
        return None
    adopted = replace(status, replicas=replicas, previous_replicas=previous, learners=())
    return leaderless(adopted, Reason.SET_CONFLICT, "its log names other replicas than the record: taken over")


def _loading(record: OffsetsPartition, pod: PodView, view: ReplicaStatus) -> Decision:
    """The elected pod has promised the epoch and does not serve yet."""
    before = record.status
    if (before.leader, before.epoch, before.state) == (pod.name, view.epoch, PartitionState.ELECTING):
        return unchanged(record)
    status = replace(before, leader=pod.name, epoch=view.epoch, state=PartitionState.ELECTING, reason=Reason.LOADING)
    return Decision(status, f"pod {pod.name} loads the log for epoch {view.epoch}")


def _keep(partition: PartitionView, pod: PodView, view: ReplicaStatus, attempt: Attempt | None) -> Decision:
    """Record what the leader says, also in an epoch that no operator issued: the epoch was promised, so it is valid."""
    before = partition.status
    replicas, previous = _sets(partition, view.replicas, view.previous_replicas, committed=view.sets_committed)
    partition = partition.with_status(replace(before, replicas=replicas, previous_replicas=previous))
    partition = partition.with_status(replace(partition.status, learners=_still_learning(partition)))
    following = sum(_follows(each, view) for each in partition.replicas)
    led = replace(
        partition.status,
        leader=pod.name,
        epoch=view.epoch,
        led_epoch=max(before.led_epoch, view.epoch),
        following=following,
        left=_left(partition, before),
        state=PartitionState.LED,
        reason=Reason.LED,
    )
    if before.state is not PartitionState.LED or (before.leader, before.epoch) != (led.leader, led.epoch):
        # Only once per leader: the high watermark moves with every commit, and the record must not.
        led = replace(led, high_watermark=view.high_watermark)
    text = f"pod {pod.name} leads in epoch {view.epoch}"
    if len(replicas) > 1:
        text += f", {following} of {len(replicas)} replicas follow"
    idle = Decision(led, text)
    if attempt is not None and (attempt.in_flight or attempt.held_back):
        return idle
    refused = attempt.refused if attempt is not None else frozenset()
    return _improve(partition.with_status(led), pod, view, idle, refused)


def _improve(
    partition: PartitionView, pod: PodView, view: ReplicaStatus, idle: Decision, refused: frozenset[str]
) -> Decision:
    """The most urgent election that the partition needs although it is led; `idle` if it needs none."""
    own = next((each for each in partition.members if each.log_id == view.log_id), None)
    if own is None:
        return idle  # the log contradicts the record, and has not said yet what it names
    facts = partition.facts
    too_low = view.leader_epoch <= facts.epoch_above(partition.index)
    if (view.needs_higher_epoch or too_low) and not facts.is_leaving(pod):
        return interrupt(partition, own, Reason.NEEDS_HIGHER_EPOCH, idle)
    if facts.shall_leave(pod) and (moved := hand_over(partition, pod, view, idle, refused)) is not idle:
        return moved
    if facts.is_leaving(pod):
        return idle
    if partition.previous:
        called = not view.replicas or set(view.replicas) == set(log_ids(partition.status.replicas))
        return idle if called else interrupt(partition, own, Reason.CHANGING_REPLICAS, idle)
    if view.previous_replicas or (view.replicas and not view.sets_committed):
        return idle  # pods refuse the next change before this one is final
    if partition.lacks_majority():
        return idle  # a change needs majorities of both sets, and would never end
    change = change_set(partition, own, view, idle)
    if change is not None:
        return change
    return idle if preferred_pod(partition.record) in refused else rebalance(partition, pod, view, idle)


def _sets(
    partition: PartitionView, log_replicas: tuple[str, ...], log_previous: tuple[str, ...], *, committed: bool
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """(replicas, previous replicas) to record when the log names these log ids."""
    status = partition.status
    recorded, before = set(log_ids(status.replicas)), set(log_ids(status.previous_replicas))
    in_log, previous_in_log = set(log_replicas), set(log_previous)
    located = tuple(each.replica for each in partition.replicas), tuple(each.replica for each in partition.previous)
    if not in_log or (in_log, previous_in_log) == (recorded, before):
        return located
    if not previous_in_log and in_log == recorded:
        return (located[0], ()) if committed else located
    if not previous_in_log and in_log == before:
        return located  # the change is recorded, and its election is still to come
    return tuple(map(partition.located, log_replicas)), tuple(map(partition.located, log_previous))


def _still_learning(partition: PartitionView) -> tuple[Replica, ...]:
    """The learners without those that are in the sets: a record that was restored from before their change still has
    them.
    """
    named = {each.log_id for each in partition.members}
    there = {each.replica.pod for each in partition.members if each.view is not None}
    learners = partition.status.learners
    return tuple(each for each in learners if (each.log_id not in named if each.log_id else each.pod not in there))


def _left(partition: PartitionView, before: OffsetsPartitionStatus) -> tuple[Replica, ...]:
    """Replicas whose logs are to be deleted because a final change of the set left them out, until they are gone.

    Replicas that an allowed loss left out are not among them: they may have the only copy of what was lost.
    """
    status = partition.status
    ended = before.previous_replicas if not status.previous_replicas else ()
    counted = {*log_ids((*status.replicas, *status.previous_replicas, *status.learners))}
    left = dict.fromkeys(each for each in (*before.left, *ended) if each.log_id and each.log_id not in counted)
    found = {each: partition.member(each) for each in left}
    return tuple(each for each, member in found.items() if member.replica.pod and not member.is_lost)


def _follows(member: Member, leader: ReplicaStatus) -> bool:
    view = member.view
    if view is None or member.pod is None or not member.pod.is_up or view.rebuilding:
        return False
    return leader.log_id in (view.log_id, view.follows)
