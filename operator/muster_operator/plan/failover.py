"""The next leader of a partition that has none, and its epoch, or why none of the replicas can lead.

The rules (replication specification, "The operator"): leader and epoch are recorded before a pod is called; an epoch is
never lowered and never issued to a second pod; an epoch on a pod that is higher than the recorded one is recorded, and
the next election goes above both; one election per partition at a time; a log id identifies a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.states import FailureReason, ShardState
from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan.cluster_facts import ClusterFacts
from muster_operator.plan.decision import Decision, elect, leaderless, preferred_pod, same_log, stalled, unchanged
from muster_operator.plan.hints import patch
from muster_operator.plan.observation import Attempt, Connection
from muster_operator.plan.partition_view import CAUGHT_UP_RECORDS, Member, PartitionView, log_ids

_FAILURES: dict[str, Reason] = {
    FailureReason.CANNOT_WRITE: Reason.CANNOT_WRITE,
    FailureReason.LOAD_FAILED: Reason.LOAD_FAILED,
}


# The first election


def without_logs(record: OffsetsPartition, facts: ClusterFacts) -> Decision:
    """The pods are chosen, and log ids are not recorded: create the logs, or record those that an earlier try created.

    The first election records all ids at once, so no other set can ever be opened as the first one.
    """
    status, index = record.status, record.spec.index
    missing: list[str] = []
    replicas: list[Replica] = []
    for each in status.replicas:
        pod = facts.pods.get(each.pod)
        if pod is not None and pod.connection is Connection.UNSURE:
            return unchanged(record)
        if pod is None or not pod.is_up:
            why = pod.detail if pod is not None else "it does not exist"
            return leaderless(status, Reason.POD_DOWN, f"its log is on pod {each.pod}, which is down: {why}")
        view = pod.replicas.get(index)
        if view is None:
            missing.append(pod.name)
        elif view.used and pod.name not in record.spec.replicas:
            # The log may hold acknowledged offsets. The operator neither deletes nor adopts it before a person says so.
            command = patch("offsetspartition", record.metadata, {"replicas": [each.pod for each in status.replicas]})
            text = f"pod {pod.name} holds log {view.log_id} with data and no record names it; to use it: {command}"
            return stalled(status, Reason.UNKNOWN_LOG, text)
        else:
            replicas.append(Replica(pod.name, view.log_id))
    if missing:
        pending = replace(status, state=PartitionState.PENDING, reason=Reason.PLACING)
        named = ", ".join(missing)
        return Decision(pending, f"pod {named} creates its log", create_on=tuple(missing))
    partition = PartitionView(replace(record, status=replace(status, replicas=tuple(replicas))), facts)
    return copied(status, partition.doubled) if partition.doubled else without_leader(partition, None)


def copied(status: OffsetsPartitionStatus, pods: str) -> Decision:
    """`pods` have one log: which of them holds all that was acknowledged is not known."""
    return stalled(status, Reason.DUPLICATE_LOG, same_log(pods))


# A partition without a leader


def without_leader(partition: PartitionView, attempt: Attempt | None) -> Decision:
    """Wait, elect, or say why neither helps."""
    status, scene = partition.status, partition.facts
    if attempt is not None and attempt.in_flight and not partition.is_gone(attempt.pod):
        called = replace(status, state=PartitionState.ELECTING, reason=attempt.reason or Reason.ELECTING)
        return Decision(called, attempt.message)
    doubtful = status.leader is not None and status.leader in scene.pods and not partition.is_gone(status.leader)
    if doubtful and not scene.pods[status.leader or ""].is_up:
        return unchanged(partition.record)
    seen = replace(status, epoch=partition.highest_epoch())
    if len(partition.members) == 1 and (alone := _alone(partition)) is not None:
        return alone
    loss = False
    if partition.lacks_majority() or _only_rebuilt_have_records(partition):
        if partition.lacks_majority() and not partition.lacks_majority(hoped=True):
            return unchanged(partition.record)
        if (adopted := _named_by_log(partition, seen)) is not None:
            return adopted
        loss = _loss_is_allowed(partition)
        if not loss:
            return _taken_back(partition, seen) or _no_majority(partition, seen)
    elif _loss_is_begun(partition):
        loss = True
    candidates = [each for each in _left(partition, loss) if _may_lead(partition, each, loss)]
    willing = [each for each in candidates if attempt is None or each.replica.pod not in attempt.refused]
    if not candidates:
        return _no_candidate(partition, seen)
    another = bool(willing) and attempt is not None and all(each.replica.pod != attempt.pod for each in willing)
    if attempt is not None and attempt.held_back and not another:
        return _held_back(partition, attempt)
    chosen = _best(partition, willing or candidates, attempt)
    if loss:
        return _with_loss(partition, chosen)
    return elect(partition, chosen, Reason.ELECTING, force=_must_force(partition, chosen, attempt))


def _must_force(partition: PartitionView, chosen: Member, attempt: Attempt | None) -> bool:
    """True if the call carries force. Without force the pod first asks whether a leader lives or a better log exists,
    which guards against a wrong suspicion.

    Force is right where the record itself ends a leader that is alive (a move, a change of the set), and where the
    better log cannot be elected: the seal fetches what that log has more in any case.
    """
    if attempt is not None and attempt.better and attempt.better != chosen.log_id:
        return True
    led = partition.leader()
    return led is not None and led[1].is_active


def _may_lead(partition: PartitionView, member: Member, loss: bool = False) -> bool:
    view, pod = member.view, member.pod
    if view is None or pod is None or partition.facts.is_leaving(pod):
        return False
    if not (member.is_there if loss else member.counts):
        return False
    return view.used or partition.was_never_led


def _best(partition: PartitionView, candidates: Sequence[Member], attempt: Attempt | None) -> Member:
    """The candidate with the best known log, then the preferred leader, then the pod that leads least.

    Positions come with events, not with every commit, so small differences between them say nothing. If another log is
    better after all, the pod answers the call with its log id.
    """
    status, led = partition.status, partition.facts.tally.led
    better = attempt.better if attempt is not None else ""
    ends = [each.view.log_end_offset for each in candidates if each.view is not None]
    nearly = max(ends) - CAUGHT_UP_RECORDS
    wanted = preferred_pod(partition.record)
    in_new_set = set(log_ids(status.replicas))

    def rank(place: int) -> tuple[bool | int, ...]:
        member = candidates[place]
        view = member.view
        assert view is not None
        pod = member.replica.pod
        issued = pod == status.leader and view.epoch < status.epoch
        return (
            _names_others(view),
            member.log_id != better,
            not issued,
            not view.is_active,
            member.log_id not in in_new_set,
            pod == status.leader and status.state is PartitionState.LED and len(candidates) > 1,  # it just failed
            view.state is ShardState.FAILED,
            view.epoch < status.led_epoch or view.log_end_offset < nearly,
            member.pod is not None and member.pod.cordoned,
            partition.facts.is_young(member.pod),
            pod != wanted,
            led[pod],
            place,
        )

    return candidates[min(range(len(candidates)), key=rank)]


def _names_others(view: ReplicaStatus) -> bool:
    """True if the replica's own log names sets without this replica: the election that begins a recorded change of the
    set is still to come. A replica outside all sets of its log refuses; only a member of the previous set can begin
    the change.
    """
    return bool(view.replicas) and view.log_id not in (*view.replicas, *view.previous_replicas)


# Why no replica can be elected


def _alone(partition: PartitionView) -> Decision | None:
    """Says why the only replica cannot be elected; None if it can. No other pod has the log and could take over."""
    (member,) = partition.members
    status, pod, view, name = partition.status, member.pod, member.view, member.replica.pod
    if pod is None:
        where = f"is on pod {name}, which does not exist" if name else f"{member.log_id} is on no pod that answers"
        return leaderless(status, Reason.POD_DOWN, f"its log {where}")
    if pod.connection is Connection.UNSURE:
        return unchanged(partition.record)
    if not pod.is_up:
        return leaderless(status, Reason.POD_DOWN, f"its log is on pod {name}, which is down: {pod.detail}")
    if view is None:
        other = pod.replicas.get(partition.index)
        there = f"has log {other.log_id}" if other is not None else "has none"
        text = f"log {member.log_id} is not on pod {name} any more, which {there}: volume lost?"
        return stalled(status, Reason.LOG_LOST, text)
    if not view.used and not partition.was_never_led:
        return stalled(status, Reason.LOG_LOST, f"log {member.log_id} on pod {name} was led before and is now empty")
    if member.is_damaged:
        seen = replace(status, epoch=partition.highest_epoch())
        return stalled(seen, Reason.LOG_DAMAGED, f"pod {name} refuses to serve its log: {view.message}")
    if pod.draining:
        return leaderless(status, Reason.POD_DOWN, f"its log is on pod {name}, which is about to end")
    return None


def _taken_back(partition: PartitionView, seen: OffsetsPartitionStatus) -> Decision | None:
    """Return to the previous set if the recorded change cannot be completed: its new replicas are lost for good, and no
    log of a majority of the previous set names it. If a log does name it, the pod refuses the election and answers
    with the sets that the log names.
    """
    counted = [each for each in partition.previous if each.counts]
    if 2 * len(counted) <= len(partition.previous):
        return None
    if 2 * sum(each.is_lost or each.is_damaged for each in partition.replicas) < len(partition.replicas):
        return None
    before = set(log_ids(seen.previous_replicas))
    named = [(set(each.view.replicas), each.view.previous_replicas) for each in counted if each.view is not None]
    if any(sets != (before, ()) for sets in named):
        return None
    back = replace(seen, replicas=seen.previous_replicas, previous_replicas=(), learners=())
    return leaderless(back, Reason.CHANGING_REPLICAS, "a change of the set is taken back: its new replicas are lost")


def _no_majority(partition: PartitionView, seen: OffsetsPartitionStatus) -> Decision:
    troubles = [each.trouble for each in partition.members if each.trouble]
    counted = sum(each.counts for each in partition.members)
    text = f"{counted} of {len(partition.members)} replicas can be counted: {'; '.join(troubles)}"
    sets = [each for each in (partition.replicas, partition.previous) if each]
    is_lost = any(2 * sum(m.has_lost_data for m in each) >= len(each) for each in sets)
    if not is_lost and not _only_rebuilt_have_records(partition):
        return leaderless(seen, Reason.NO_MAJORITY, text)
    if partition.is_opening:
        return leaderless(seen, Reason.NO_MAJORITY, f"{text}; not all of the other logs are open yet")
    return stalled(seen, Reason.NO_MAJORITY, f"{text}; {_what_helps(partition)}")


def _what_helps(partition: PartitionView) -> str:
    """Tells a person what to do for a partition whose majority is lost."""
    there = [(each.replica.pod, each.view) for each in partition.members if each.is_there and each.view is not None]
    left = [view for _, view in there]
    command = patch("offsetspartition", partition.record.metadata, {"allowDataLoss": partition.last_led_epoch})
    if any(view.log_end_offset > 0 for view in left):
        logs = ", ".join(f"{pod} up to offset {view.log_end_offset} of epoch {view.last_epoch}" for pod, view in there)
        known = partition.status.high_watermark
        point = "" if known is None else f"; commits reached offset {known} or more"
        return f"left are logs on {logs}{point}; to lead it from these, and lose what only the others had: {command}"
    if any(view.used for view in left):  # emptied by a power loss under flush os
        return f"no log with records is left: bring back a volume or repair a damaged log; or to begin empty: {command}"
    return (
        "no log with records is left: bring back a volume or repair a damaged log, or delete the OffsetsPartition to"
        " begin empty"
    )


def _only_rebuilt_have_records(partition: PartitionView) -> bool:
    """True if all replicas that count are empty, and others that lost data have records: no pod may lead then."""
    counted = [each.view for each in partition.members if each.counts and each.view is not None]
    there = [each.view for each in partition.members if each.is_there and each.view is not None]
    return all(not view.used for view in counted) and any(view.log_end_offset > 0 for view in there)


def _named_by_log(partition: PartitionView, seen: OffsetsPartitionStatus) -> Decision | None:
    """Record the set that the latest log names, if that set has a majority and the recorded one does not.

    So an election by allowDataLoss goes on that failed after its first record, and a record that was restored with etcd
    finds the replicas of today. No data is given up: the pods count majorities of the sets that their logs name.
    """
    views = [each.view for each in partition.members if each.counts and each.view is not None and each.view.replicas]
    latest = max(views, key=lambda view: (view.last_epoch, view.log_end_offset), default=None)
    if latest is None or latest.last_epoch <= seen.led_epoch:
        return None
    replicas = tuple(map(partition.located, latest.replicas))
    previous = tuple(map(partition.located, latest.previous_replicas))
    adopted = replace(seen, replicas=replicas, previous_replicas=previous, learners=())
    if partition.with_status(adopted).lacks_majority():
        return None
    return leaderless(adopted, Reason.SET_CONFLICT, "its log names other replicas than the record: taken over")


def _no_candidate(partition: PartitionView, seen: OffsetsPartitionStatus) -> Decision:
    """A load that failed stays the reason while a rollout empties the pod: the rollout goes on for that reason."""
    views = [(each.pod, each.view) for each in partition.members if each.counts]
    failed = [(pod, view) for pod, view in views if pod and view and view.state is ShardState.FAILED]
    if failed and len(failed) == len(views) and not any(pod.fenced for pod, _ in failed):
        pod, view = failed[0]
        return _failed(seen, pod.name, view)
    text = "no replica that can be counted may lead now: "
    text += "; ".join(_why_not(partition, each) for each in partition.members)
    return leaderless(seen, Reason.POD_DOWN, text)


def _why_not(partition: PartitionView, member: Member) -> str:
    if member.trouble:
        return member.trouble
    pod = member.pod
    if pod is not None and pod.fenced:
        return f"pod {pod.name} is fenced by spec.maintenance"
    leaving = pod is not None and partition.facts.is_leaving(pod)
    return f"pod {member.replica.pod} {'is about to end' if leaving else 'has an empty log'}"


def _failed(seen: OffsetsPartitionStatus, pod: str, view: ReplicaStatus) -> Decision:
    return leaderless(seen, _FAILURES.get(view.reason, Reason.LOAD_FAILED), f"pod {pod}: {view.message}")


def _held_back(partition: PartitionView, attempt: Attempt) -> Decision:
    seen = replace(partition.status, epoch=partition.highest_epoch())
    view = next((each.view for each in partition.members if each.replica.pod == attempt.pod), None)
    if view is not None and view.state is ShardState.FAILED:
        return _failed(seen, attempt.pod, view)
    text = attempt.message or f"pod {attempt.pod} does not lead yet"
    return leaderless(seen, attempt.reason or Reason.ELECTING, text)


# A person allows a loss of data


def _loss_is_allowed(partition: PartitionView) -> bool:
    """True if spec.allowDataLoss covers this loss: it names the epoch of the latest history, and covers no later and no
    earlier one. A log that is not open yet may hold a later one.
    """
    if partition.record.spec.allow_data_loss != partition.last_led_epoch or partition.is_opening:
        return False
    return any(_may_lead(partition, each, loss=True) for each in _left(partition, loss=True))


def _loss_is_begun(partition: PartitionView) -> bool:
    """True if an allowed loss is under way: the record names only the remaining replicas, and the log does not yet."""
    named = {each.log_id for each in partition.members}
    views = [each.view for each in partition.members if each.view is not None]
    return _loss_is_allowed(partition) and any(not named.issuperset(view.replicas) for view in views)


def _left(partition: PartitionView, loss: bool) -> Sequence[Member]:
    """The members that the election may name. With `loss` those that count, or, if none of these may lead, also those
    that rebuild their logs.
    """
    if not loss:
        return partition.members
    counted = [each for each in partition.members if each.counts]
    if any(_may_lead(partition, each) for each in counted):
        return counted
    return [each for each in partition.members if each.is_there]


def _with_loss(partition: PartitionView, chosen: Member) -> Decision:
    """Elect `chosen` with the remaining replicas as the set; the others come back as new replicas.

    The record keeps the old set until the log names the new one, so an election that fails is repeated in the same way.
    """
    left = tuple(each.replica for each in _left(partition, loss=True))
    ordered = (chosen.replica, *(each for each in left if each != chosen.replica))
    decision = elect(partition, chosen, Reason.DATA_LOSS_ALLOWED, force=True)
    assert decision.elect is not None
    pods = ", ".join(each.pod for each in ordered)
    text = (
        f"by spec.allowDataLoss, pod {chosen.replica.pod} is elected in epoch {decision.elect.epoch} from the logs on"
    )
    text += f" {pods}, without a majority: what only the others had is lost"
    call = with_fields(
        decision.elect,
        replicas=log_ids(ordered),
        previous_replicas=(),
        bootstrap=False,
        allow_data_loss=True,
        message=text,
    )
    return Decision(replace(decision.status, learners=()), text, elect=call)
