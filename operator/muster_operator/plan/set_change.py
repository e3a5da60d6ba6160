"""Changes of a partition's replica set: which replicas go, which pods get new ones, and when the new set is elected."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan.decision import Decision, same_log
from muster_operator.plan.moves import interrupt, may_take_over
from muster_operator.plan.observation import PodView, ordinal_of
from muster_operator.plan.partition_view import Member, PartitionView, is_caught_up, log_ids
from muster_operator.plan.placement import choose_pods


def change_set(partition: PartitionView, own: Member, view: ReplicaStatus, idle: Decision) -> Decision | None:
    """The next step towards the replicas that the partition shall have; None if it has them.

    `own`: the leader's replica, `view` as its pod reports it. `idle`: what is decided if no step can begin now.
    """
    status = idle.status
    copies = copies_of(partition.record, partition.facts.replication_factor)
    staying = [each.replica for each in partition.replicas if not _is_to_go(partition, each)][:copies]
    lacking = copies - len(staying)
    learners = [partition.member(each) for each in status.learners]
    useful = _useful(partition, learners, lacking)
    if tuple(each.replica for each in useful) != status.learners:
        kept = log_ids(each.replica for each in useful)
        given_up = (each.replica for each in learners if each.log_id and each.log_id not in kept)
        found = replace(status, learners=tuple(each.replica for each in useful), left=(*status.left, *given_up))
        return Decision(found, idle.message)
    if len(useful) > lacking:
        return None
    if pods := partition.on_several_pods(_log_on_its_pod(partition, each) for each in useful):
        return Decision(status, f"{idle.message}; {same_log(pods)}")
    if len(useful) < lacking:
        return _add_learners(partition, staying, useful, lacking - len(useful), idle)
    if any(each.view is None or not each.log_id for each in useful):
        return _with_learners(partition, status, [each.replica for each in useful], idle)
    before = [each.replica for each in partition.replicas]
    wanted = _in_place(before, staying, [each.replica for each in useful])
    if set(log_ids(wanted)) == set(log_ids(status.replicas)):
        return None
    if not all(is_caught_up(view, each.log_id) for each in useful):
        return Decision(status, f"{idle.message}; {len(useful)} new ones are catching up", refresh=own.replica.pod)
    return _elect_new_set(partition, own, view, replace(status, replicas=wanted), idle)


def copies_of(partition: OffsetsPartition, replication_factor: int) -> int:
    """The number of copies that a partition shall have: as its topic declares, and no more than the pods that it
    names."""
    return min(replication_factor, len(partition.spec.replicas) or replication_factor)


def _useful(partition: PartitionView, learners: Sequence[Member], lacking: int) -> Sequence[Member]:
    """The learners to keep. While a pod is away the operator cannot see what it lost, and gives no copy up."""
    facts = partition.facts
    useful = _distinct([each for each in learners if not _is_hopeless(partition, each)])
    all_up = all(
        each.pod.is_up if each.pod is not None else not each.replica.pod and facts.all_answer
        for each in partition.replicas
    )
    return useful[:lacking] if all_up else useful


def _distinct(learners: Sequence[Member]) -> Sequence[Member]:
    """One for each pod: while a pod is away, a copy of its volume is taken for it, and is on the pod of another one."""
    return [
        each
        for place, each in enumerate(learners)
        if not each.replica.pod or each.replica.pod not in {one.replica.pod for one in learners[:place]}
    ]


def _log_on_its_pod(partition: PartitionView, learner: Member) -> str:
    """Its log id, also one that is not recorded yet; "" if its pod has no log."""
    view = learner.pod.replicas.get(partition.index) if learner.pod is not None else None
    return learner.log_id or (view.log_id if view is not None else "")


def _add_learners(
    partition: PartitionView, staying: Sequence[Replica], useful: Sequence[Member], count: int, idle: Decision
) -> Decision | None:
    """Give the partition `count` more learners; None if there are no pods for them, so the set stays as it is."""
    added = _add(partition, staying, useful, count)
    if not added:
        return None
    tally = partition.facts.tally
    if tally.changes <= 0 and not useful:
        return idle
    tally.changes -= 1
    return _with_learners(partition, idle.status, [*(each.replica for each in useful), *added], idle)


def _elect_new_set(
    partition: PartitionView, own: Member, view: ReplicaStatus, status: OffsetsPartitionStatus, idle: Decision
) -> Decision:
    """Elect the leader again with the new set, or a staying replica if the leader's own replica is to go."""
    changing = replace(status, previous_replicas=partition.status.replicas, learners=())
    changed = partition.with_status(changing)
    chosen = next((each for each in changed.replicas if each.log_id == own.log_id), None)
    if chosen is None:
        ready = [each for each in changed.replicas if may_take_over(changed, each, view)]
        if not ready:
            return idle
        chosen = ready[0]
    return interrupt(changed, chosen, Reason.CHANGING_REPLICAS, idle)


def _in_place(before: Sequence[Replica], staying: Sequence[Replica], new: Sequence[Replica]) -> tuple[Replica, ...]:
    """The new set: each of `new` takes the position of a replica that goes, on the same pod if possible.

    Position matters: the first replica of a set is its preferred leader, and a pod that lost its volume would otherwise
    never be a preferred leader again.
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


def _is_to_go(partition: PartitionView, member: Member) -> bool:
    """True if the replica leaves: lost for good, away for too long, making room for one on a pod that holds less, or on
    a pod that spec.replicas does not name or that is above spec.pods.
    """
    facts, pod = partition.facts, member.pod
    asked, share = partition.record.spec.replicas, partition.facts.shares.get(partition.index)
    if share is not None and member.replica.pod == share.leaves:
        return True
    if asked and member.replica.pod not in asked:
        return True
    if not asked and ordinal_of(member.replica.pod) >= facts.declared:
        return True
    if member.is_lost or (pod is not None and pod.is_up and member.is_damaged):
        return True
    if not member.replica.pod and facts.all_answer:
        return True  # its record was lost, and then its volume: no pod is known for it, and none has its log
    return pod is not None and facts.is_away_for_long(pod)


def _is_hopeless(partition: PartitionView, learner: Member) -> bool:
    """True if the learner's log is gone, its pod is away for too long, or its pod is above spec.pods and to be emptied:
    another learner takes its place.
    """
    facts, pod = partition.facts, learner.pod
    if pod is None:
        return True
    if pod.cordoned and pod.node_id >= facts.declared and not partition.record.spec.replicas:
        return True
    if pod.is_up:
        return bool(learner.log_id) and learner.view is None
    return facts.is_away_for_long(pod)


def _add(partition: PartitionView, staying: Sequence[Replica], learners: Sequence[Member], count: int) -> list[Replica]:
    """Choose pods for new replicas: pods that are up and have no replica, first those whose replica is lost.

    A pod that a rollout replaces next is one of them: the rollout waits until the set is whole.
    """
    facts = partition.facts
    taken = {each.pod for each in staying} | {each.replica.pod for each in learners}
    asked, share = partition.record.spec.replicas, facts.shares.get(partition.index)
    free = [
        pod
        for pod in facts.pods.values()
        if pod.is_up
        and not pod.cordoned
        and not pod.draining
        and pod.name not in taken
        and (not asked or pod.name in asked)
        and (share is None or pod.name == share.joins)
        and pod.node_id < facts.declared
        and not _has_log_in_the_way(partition, pod)
    ]
    lost = {each.replica.pod for each in partition.replicas if each.is_lost}
    there = [facts.pods[name] for name in taken if name in facts.pods]
    chosen = choose_pods(free, count, there, facts.tally.held, first=lost)
    for pod in chosen:
        facts.tally.held[pod.name] += 1
    return [Replica(pod.name) for pod in chosen]


def _has_log_in_the_way(partition: PartitionView, pod: PodView) -> bool:
    """True if the pod has a damaged log of the present set, the copy of a learner's, a log without a readable id, or a
    log that is to be deleted: the call that deletes it may be under way.
    """
    view = pod.replicas.get(partition.index)
    if view is None:
        return False
    of_the_set = not view.log_id or view.log_id in log_ids((*partition.status.replicas, *partition.status.learners))
    is_to_go = view.log_id in log_ids(partition.status.left) and not view.is_damaged
    return of_the_set or is_to_go


def _with_learners(
    partition: PartitionView, status: OffsetsPartitionStatus, learners: Sequence[Replica], idle: Decision
) -> Decision:
    """Record the pods, then have the logs created, then record their ids.

    A crash between two of these steps is harmless: the next plan continues from what it finds.
    """
    found: list[Replica] = []
    missing: list[str] = []
    for each in learners:
        pod = partition.facts.pods.get(each.pod)
        view = pod.replicas.get(partition.index) if pod is not None and pod.is_up else None
        if view is not None and view.log_id and view.log_id not in log_ids(status.replicas):
            found.append(Replica(each.pod, view.log_id))
        else:
            found.append(Replica(each.pod))
            missing.append(each.pod)
    pods = ", ".join(each.pod for each in learners)
    recorded = replace(status, learners=tuple(found))
    placed = status.learners == recorded.learners
    create_on = tuple(name for name in missing if name in partition.facts.pods) if placed else ()
    return Decision(recorded, f"{idle.message}; pod {pods} gets a replica", create_on=create_on)


def removable(status: OffsetsPartitionStatus, pod: str, view: ReplicaStatus) -> bool:
    """True if the log `view` on `pod` may be deleted now.

    A damaged log stays for people to look at. A log that promised a higher epoch than the present leader's waits for
    the next leader. A used one has to prove that it does not count: the leader feeds it until it can.
    """
    if status.state is not PartitionState.LED or status.previous_replicas or view.log_id in log_ids(status.learners):
        return False
    if view.epoch > status.led_epoch or view.is_damaged:
        return False
    return Replica(pod, view.log_id) in status.left and (view.has_left or not view.used)
