"""Elections that interrupt a live leader: away from a pod that ends, and back to the preferred leader."""

from __future__ import annotations

from collections.abc import Sequence

from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.states import ShardState
from muster_operator.api.conditions import Reason
from muster_operator.plan.decision import Decision, elect, preferred_pod
from muster_operator.plan.observation import PodView
from muster_operator.plan.partition_view import Member, PartitionView, is_caught_up


def hand_over(
    partition: PartitionView, pod: PodView, view: ReplicaStatus, idle: Decision, refused: frozenset[str]
) -> Decision:
    """Move the leadership away from a pod that ends or whose node is cordoned; `idle` if no other pod can lead.

    From a pod that ends, a pod on a cordoned node takes over if there is no other: the whole cluster may be drained.
    """
    ends = partition.facts.is_leaving(pod)
    followers = [each for each in partition.replicas if may_take_over(partition, each, view, cordoned=ends)]
    candidates = [each for each in followers if each.replica.pod not in refused]
    candidates = [each for each in candidates if each.pod is not None and not each.pod.cordoned] or candidates
    if not candidates:
        return idle
    ready = [each for each in candidates if is_caught_up(view, each.log_id)]
    if not ready:
        return Decision(idle.status, idle.message, refresh=pod.name)
    return _move(partition, pod, ready, idle)


def rebalance(partition: PartitionView, pod: PodView, view: ReplicaStatus, idle: Decision) -> Decision:
    """Move the leadership to the preferred leader, unless it is there or pods come and go.

    While pods come and go, a move takes CPU that the pods need for that, and the next change may undo it.
    """
    facts = partition.facts
    wanted = preferred_pod(partition.record)
    if wanted == pod.name or facts.is_restless or not facts.rebalance_after_s:
        return idle
    target = next((each for each in partition.replicas if each.replica.pod == wanted), None)
    if target is None or target.pod is None or not may_take_over(partition, target, view):
        return idle
    if not is_caught_up(view, target.log_id):
        return Decision(idle.status, idle.message, refresh=pod.name)
    return _move(partition, pod, [target], idle)


def may_take_over(partition: PartitionView, member: Member, leader: ReplicaStatus, *, cordoned: bool = False) -> bool:
    """True if the member follows the leader and can be elected. `cordoned`: also if the node of its pod is cordoned."""
    pod, view = member.pod, member.view
    if pod is None or view is None or not member.counts or partition.facts.is_leaving(pod):
        return False
    if pod.cordoned and not cordoned:
        return False
    return view.follows == leader.log_id and view.state is not ShardState.FAILED


def _move(partition: PartitionView, pod: PodView, targets: Sequence[Member], idle: Decision) -> Decision:
    facts = partition.facts
    wanted, led = preferred_pod(partition.record), facts.tally.led
    target = min(
        targets, key=lambda each: (facts.is_young(each.pod), each.replica.pod != wanted, led[each.replica.pod])
    )
    decision = interrupt(partition, target, Reason.MOVING, idle, resign=pod.name)
    if decision is not idle:
        led[pod.name] -= 1
    return decision


def interrupt(
    partition: PartitionView, chosen: Member, reason: Reason, idle: Decision, *, resign: str = ""
) -> Decision:
    """Elect `chosen` although a leader lives; `idle` while enough such elections are under way.

    When one of them ends, the next plan begins the next one.
    """
    tally = partition.facts.tally
    if tally.moves <= 0:
        return idle
    tally.moves -= 1
    return elect(partition, chosen, reason, force=True, resign=resign)
