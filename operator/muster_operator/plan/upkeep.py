"""A partition that is led: what its log says is recorded, its set is repaired, its leader moved where it belongs.

One thing at a time per partition, the most urgent first. Every one of them is an election in a higher epoch, with force
because a leader lives, of a replica that has caught up: clients see a pause of milliseconds. A change of the set names
both sets in the record until the log says that the new one is final (replication specification, "Sets and their
change"), and so do all calls until then, after any crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.states import FailureReason, ShardState
from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan.failover import (
    Decision,
    elect,
    leaderless,
    message_of,
    preferred_pod,
    stalled,
    without_leader,
    without_logs,
)
from muster_operator.plan.observation import Attempt, PodView
from muster_operator.plan.placement import choose_pods
from muster_operator.plan.standing import Member, Scene, Standing, is_caught_up, log_ids

__all__ = ["decide", "removable"]


def decide(partition: OffsetsPartition, scene: Scene, attempt: Attempt | None) -> Decision:
    """For a partition that has its places (`status.replicas` is not empty)."""
    if not all(each.log_id for each in partition.status.replicas):
        return without_logs(partition, scene)
    standing = Standing(partition, scene)
    if standing.doubled:
        text = f"pods {standing.doubled} have a log with the same id: remove the volume that is a copy"
        return stalled(partition.status, Reason.DUPLICATE_LOG, text)
    led = standing.leader()
    if led is None or led[1].leader_epoch < partition.status.epoch:
        conflict = attempt.sets if attempt is not None and not attempt.in_flight else None
        found = _sets(standing, *conflict, committed=True) if conflict is not None else None
        if found is not None and found != (partition.status.replicas, partition.status.previous_replicas):
            adopted = replace(partition.status, replicas=found[0], previous_replicas=found[1], learners=())
            return leaderless(adopted, Reason.SET_CONFLICT, "its log names other replicas than the record: taken over")
        return without_leader(standing, attempt)
    pod, view = led
    if not view.is_active:
        before = partition.status
        if (before.leader, before.epoch, before.state) == (pod.name, view.epoch, PartitionState.ELECTING):
            return Decision(before, message_of(partition))
        status = replace(partition.status, leader=pod.name, epoch=view.epoch, state=PartitionState.ELECTING)
        return Decision(replace(status, reason=Reason.LOADING), f"pod {pod.name} loads the log for epoch {view.epoch}")
    return _keep(standing, pod, view, attempt)


def _keep(standing: Standing, pod: PodView, view: ReplicaStatus, attempt: Attempt | None) -> Decision:
    """Also in an epoch that nobody recorded: it was promised, so it is the truth, and is recorded."""
    before = standing.status
    replicas, previous = _sets(standing, view.replicas, view.previous_replicas, committed=view.sets_committed)
    standing = _restated(standing, replace(before, replicas=replicas, previous_replicas=previous))
    following = sum(_follows(each, view) for each in standing.replicas)
    led = replace(
        standing.status,
        leader=pod.name,
        epoch=view.epoch,
        led_epoch=max(before.led_epoch, view.epoch),
        following=following,
        left=_left(standing, before),
        state=PartitionState.LED,
        reason=Reason.LED,
    )
    if before.state is not PartitionState.LED or (before.leader, before.epoch) != (led.leader, led.epoch):
        led = replace(led, high_watermark=view.high_watermark)  # once: it moves with every commit, the record must not
    text = f"pod {pod.name} leads in epoch {view.epoch}"
    if len(replicas) > 1:
        text += f", {following} of {len(replicas)} replicas follow"
    idle = Decision(led, text)
    if attempt is not None and (attempt.in_flight or attempt.held_back):
        return idle
    refused = attempt.refused if attempt is not None else frozenset()
    return _next(_restated(standing, led), pod, view, idle, refused)


def _restated(standing: Standing, status: OffsetsPartitionStatus) -> Standing:
    """With this status in the place of the recorded one."""
    if status == standing.status:
        return standing
    return Standing(replace(standing.partition, status=status), standing.scene)


def _next(standing: Standing, pod: PodView, view: ReplicaStatus, idle: Decision, refused: frozenset[str]) -> Decision:
    own = next((each for each in standing.members if each.log_id == view.log_id), None)
    if own is None:
        return idle  # the log says otherwise than the record, and has not said yet what
    if view.needs_higher_epoch and not standing.scene.is_leaving(pod):
        return _elect(standing, own, Reason.NEEDS_HIGHER_EPOCH, idle)
    if standing.scene.shall_leave(pod) and (moved := _hand_over(standing, pod, view, idle, refused)) is not idle:
        return moved
    if standing.scene.is_leaving(pod):
        return idle
    if standing.previous:
        called = not view.replicas or set(view.replicas) == set(log_ids(standing.status.replicas))
        return idle if called else _elect(standing, own, Reason.CHANGING_REPLICAS, idle)
    if view.previous_replicas or (view.replicas and not view.sets_committed):
        return idle  # the next change is refused before this one is final
    if standing.lacks_majority():
        return idle  # a change needs majorities of both sets, and would never end
    change = _change(standing, own, view, idle)
    if change is not None:
        return change
    return idle if preferred_pod(standing.partition) in refused else _rebalance(standing, pod, view, idle)


# What the log says


def _sets(
    standing: Standing, log_replicas: tuple[str, ...], log_previous: tuple[str, ...], *, committed: bool
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """(replicas, previous replicas) to record, when the log names these log ids."""
    status = standing.status
    mine, before = set(log_ids(status.replicas)), set(log_ids(status.previous_replicas))
    theirs, their_previous = set(log_replicas), set(log_previous)
    located = tuple(each.replica for each in standing.replicas), tuple(each.replica for each in standing.previous)
    if not theirs or (theirs, their_previous) == (mine, before):
        return located
    if not their_previous and theirs == mine:
        return (located[0], ()) if committed else located
    if not their_previous and theirs == before:
        return located  # the change is recorded, and its election still to come
    known = {each.log_id: each.replica for each in standing.members}

    def named(log_id: str) -> Replica:
        recorded = known.get(log_id, Replica("", log_id))
        return standing.member(recorded).replica

    return tuple(map(named, log_replicas)), tuple(map(named, log_previous))


def _left(standing: Standing, before: OffsetsPartitionStatus) -> tuple[Replica, ...]:
    """Replicas whose logs are to be deleted, as far as they are not known to be gone: their set was changed to one
    without them, and that is final. What an accepted loss left behind is not among them: nobody else may have it.
    """
    status = standing.status
    ended = before.previous_replicas if not status.previous_replicas else ()
    counted = {*log_ids((*status.replicas, *status.previous_replicas, *status.learners))}
    left = dict.fromkeys(each for each in (*before.left, *ended) if each.log_id and each.log_id not in counted)
    return tuple(each for each in left if not standing.member(each).is_lost)


def removable(status: OffsetsPartitionStatus, pod: str, view: ReplicaStatus) -> bool:
    """Whether the log on that pod may be deleted now. A damaged one is for people; one that promised a higher epoch
    than that of the present leader waits for the next one.
    """
    if status.state is not PartitionState.LED or status.previous_replicas or view.log_id in log_ids(status.learners):
        return False
    if view.epoch > status.led_epoch or view.reason == FailureReason.LOG_DAMAGED:
        return False
    return Replica(pod, view.log_id) in status.left


def _follows(member: Member, leader: ReplicaStatus) -> bool:
    view = member.view
    if view is None or member.pod is None or not member.pod.is_up or view.rebuilding:
        return False
    return leader.log_id in (view.log_id, view.follows)


# Moves


def _hand_over(
    standing: Standing, pod: PodView, view: ReplicaStatus, idle: Decision, refused: frozenset[str]
) -> Decision:
    """The leader's pod is about to end, or its node; `idle` if nobody else can lead. From a pod that ends, one whose
    node is about to be emptied too takes over when there is no other: a whole cluster is drained.
    """
    ends = standing.scene.is_leaving(pod)
    followers = [each for each in standing.replicas if _may_take_over(standing, each, view, cordoned=ends)]
    candidates = [each for each in followers if each.replica.pod not in refused]
    candidates = [each for each in candidates if each.pod is not None and not each.pod.cordoned] or candidates
    if not candidates:
        return idle
    ready = [each for each in candidates if is_caught_up(view, each.log_id)]
    if not ready:
        return Decision(idle.status, idle.message, refresh=pod.name)
    return _move(standing, pod, ready, idle)


def _rebalance(standing: Standing, pod: PodView, view: ReplicaStatus, idle: Decision) -> Decision:
    """To the preferred leader, if it is not that. Not while pods come and go: each such move would cost its groups a
    part of what the pods need for that, and the next pod that goes may undo it.
    """
    scene = standing.scene
    wanted = preferred_pod(standing.partition)
    if wanted == pod.name or scene.is_restless or not scene.rebalance_after_s:
        return idle
    target = next((each for each in standing.replicas if each.replica.pod == wanted), None)
    if target is None or target.pod is None or not _may_take_over(standing, target, view):
        return idle
    if not is_caught_up(view, target.log_id):
        return Decision(idle.status, idle.message, refresh=pod.name)
    return _move(standing, pod, [target], idle)


def _may_take_over(standing: Standing, member: Member, leader: ReplicaStatus, *, cordoned: bool = False) -> bool:
    """`cordoned`: also if the node of its pod is about to be emptied."""
    pod, view = member.pod, member.view
    if pod is None or view is None or not member.counts or standing.scene.is_leaving(pod):
        return False
    if pod.cordoned and not cordoned:
        return False
    return view.follows == leader.log_id and view.state is not ShardState.FAILED


def _move(standing: Standing, pod: PodView, targets: Sequence[Member], idle: Decision) -> Decision:
    scene = standing.scene
    wanted, led = preferred_pod(standing.partition), scene.tally.led
    target = min(
        targets, key=lambda each: (scene.is_young(each.pod), each.replica.pod != wanted, led[each.replica.pod])
    )
    decision = _elect(standing, target, Reason.MOVING, idle, resign=pod.name)
    if decision is not idle:
        led[pod.name] -= 1
    return decision


def _elect(standing: Standing, chosen: Member, reason: Reason, idle: Decision, *, resign: str = "") -> Decision:
    """An election that interrupts a leader that lives: `idle` while enough of them are under way. The end of one is the
    occasion of the next plan.
    """
    if standing.scene.tally.moves <= 0:
        return idle
    standing.scene.tally.moves -= 1
    return elect(standing, chosen, reason, force=True, resign=resign)


# Changes of the set


def _change(standing: Standing, own: Member, view: ReplicaStatus, idle: Decision) -> Decision | None:
    """The next step towards the replicas that there should be; None if they are there."""
    status, scene = idle.status, standing.scene
    staying = [each.replica for each in standing.replicas if not _is_to_go(standing, each)]
    staying = staying[: scene.replication_factor]
    lacking = scene.replication_factor - len(staying)
    learners = [standing.member(each) for each in status.learners]
    useful = [each for each in learners if not _is_hopeless(each, scene)]
    # What a pod that is away has lost is not seen: no copy is given up meanwhile.
    if all(each.pod is not None and each.pod.is_up for each in standing.replicas):
        useful = useful[:lacking]
    if tuple(each.replica for each in useful) != status.learners:
        given_up = (each.replica for each in learners if each not in useful and each.log_id)
        found = replace(status, learners=tuple(each.replica for each in useful), left=(*status.left, *given_up))
        return Decision(found, idle.message)
    if len(useful) > lacking:
        return None
    if len(useful) < lacking:
        added = _add(standing, staying, useful, lacking - len(useful))
        if added:
            if scene.tally.changes <= 0 and not useful:
                return idle
            scene.tally.changes -= 1
            return _with_learners(standing, status, [*(each.replica for each in useful), *added], idle)
        return None  # no pods to put them on: the set stays as it is
    if any(each.view is None or not each.log_id for each in useful):
        return _with_learners(standing, status, [each.replica for each in useful], idle)
    before = [each.replica for each in standing.replicas]
    wanted = _in_place(before, staying, [each.replica for each in useful])
    if set(log_ids(wanted)) == set(log_ids(status.replicas)):
        return None
    if not all(is_caught_up(view, each.log_id) for each in useful):
        return Decision(status, f"{idle.message}; {len(useful)} new ones are catching up", refresh=own.replica.pod)
    changing = replace(status, replicas=wanted, previous_replicas=status.replicas, learners=())
    changed = _restated(standing, changing)
    chosen = next((each for each in changed.replicas if each.log_id == own.log_id), None)
    if chosen is None:  # the leader's own replica is to go: one that stays takes over
        ready = [each for each in changed.replicas if each.view is not None and _may_take_over(changed, each, view)]
        if not ready:
            return idle
        chosen = ready[0]
    return _elect(changed, chosen, Reason.CHANGING_REPLICAS, idle)


def _in_place(before: Sequence[Replica], staying: Sequence[Replica], new: Sequence[Replica]) -> tuple[Replica, ...]:
    """`new` ones take the places of those that go, on the same pod if they can: the first of a set is its preferred
    leader, and a pod that lost its volume would be that of no partition any more.
    """
    left = list(new)
    wanted: list[Replica] = []
    for each in before:
        if each in staying:
            wanted.append(each)
        elif left:
            heir = next((one for one in left if one.pod == each.pod), left[0])
            left.remove(heir)
            wanted.append(heir)
    return (*wanted, *left)


def _is_to_go(standing: Standing, member: Member) -> bool:
    """Lost for good, away for too long, or not where the partition shall be."""
    scene, pod = standing.scene, member.pod
    asked = standing.partition.spec.replicas
    if asked and member.replica.pod not in asked:
        return True
    if member.is_lost or (pod is not None and pod.is_up and member.is_damaged):
        return True
    if pod is None:
        return _ordinal(member.replica.pod) >= scene.declared
    return scene.is_away_for_long(pod)


def _ordinal(pod: str) -> int:
    digits = pod.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _is_hopeless(learner: Member, scene: Scene) -> bool:
    """The log that was there is not, or its pod has been away for too long: another one is begun."""
    pod = learner.pod
    if pod is None:
        return True
    if pod.is_up:
        return bool(learner.log_id) and learner.view is None
    return scene.is_away_for_long(pod)


def _add(standing: Standing, staying: Sequence[Replica], learners: Sequence[Member], count: int) -> list[Replica]:
    """Places for new replicas: pods that are up and have none of the partition, best those whose replica is lost."""
    scene = standing.scene
    taken = {each.pod for each in staying} | {each.replica.pod for each in learners}
    asked = standing.partition.spec.replicas
    free = [
        pod
        for pod in scene.pods.values()
        if pod.is_up
        and not scene.shall_leave(pod)
        and pod.name not in taken
        and (not asked or pod.name in asked)
        and pod.node_id < scene.declared
        and not _has_log_in_the_way(standing, pod)
    ]
    lost = {each.replica.pod for each in standing.replicas if each.is_lost}
    there = [scene.pods[name] for name in taken if name in scene.pods]
    chosen = choose_pods(free, count, there, scene.tally.held, first=lost)
    for pod in chosen:
        scene.tally.held[pod.name] += 1
    return [Replica(pod.name) for pod in chosen]


def _has_log_in_the_way(standing: Standing, pod: PodView) -> bool:
    """A log of the present set (damaged, or it would stay), one that has no readable id, or one that is to be deleted:
    a call that deletes it may be on its way.
    """
    view = pod.replicas.get(standing.index)
    if view is None:
        return False
    of_the_set = not view.log_id or view.log_id in log_ids(standing.status.replicas)
    return of_the_set or removable(standing.status, pod.name, view)


def _with_learners(
    standing: Standing, status: OffsetsPartitionStatus, learners: Sequence[Replica], idle: Decision
) -> Decision:
    """Record the places, then have the logs created, then record their ids: a crash between any two is gone on from."""
    found: list[Replica] = []
    missing: list[str] = []
    for each in learners:
        pod = standing.scene.pods.get(each.pod)
        view = pod.replicas.get(standing.index) if pod is not None and pod.is_up else None
        if view is not None and view.log_id and view.log_id not in log_ids(status.replicas):
            found.append(Replica(each.pod, view.log_id))
        else:
            found.append(Replica(each.pod))
            missing.append(each.pod)
    pods = ", ".join(each.pod for each in learners)
    recorded = replace(status, learners=tuple(found))
    placed = status.learners == recorded.learners
    create_on = tuple(name for name in missing if name in standing.scene.pods) if placed else ()
    return Decision(recorded, f"{idle.message}; pod {pods} gets a replica", create_on=create_on)
