"""Who leads a partition, in which epoch: first election, failover, what is adopted from the log, and why there is none.

The rules (replication specification, "The operator"): leader and epoch are recorded before a pod is called; an epoch is
never lowered and never issued to a second pod; an epoch seen on a pod that is higher than the recorded one is recorded,
and the next election goes above both; one election per partition at a time; a replica is its log id. The log holds the
set: what an active leader says of it is recorded, never the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.states import ShardState
from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan.actions import Elect
from muster_operator.plan.observation import Attempt, Connection
from muster_operator.plan.standing import CAUGHT_UP_RECORDS, Member, Scene, Standing, log_ids

__all__ = [
    "Decision",
    "elect",
    "leaderless",
    "message_of",
    "preferred_pod",
    "stalled",
    "without_leader",
    "without_logs",
]

_FAILURES = {"CannotWrite": Reason.CANNOT_WRITE, "LoadFailed": Reason.LOAD_FAILED}


@dataclass(frozen=True, slots=True)
class Decision:
    """What shall be recorded of a partition (without conditions and times), and what follows once it is recorded.

    `create_on`: pods that shall create a log; `refresh`: the pod that is asked how far its followers are.
    """

    status: OffsetsPartitionStatus
    message: str
    elect: Elect | None = None
    create_on: tuple[str, ...] = ()
    refresh: str = ""


# The first election


def without_logs(partition: OffsetsPartition, scene: Scene) -> Decision:
    """Places are chosen, log ids are not recorded: create the logs, or record those that an earlier try created.

    All ids are recorded in one piece with the first election, so no other set can ever be opened as the first.
    """
    status, index = partition.status, partition.spec.index
    missing: list[str] = []
    replicas: list[Replica] = []
    for each in status.replicas:
        pod = scene.pods.get(each.pod)
        if pod is not None and pod.connection is Connection.UNSURE:
            return Decision(status, message_of(partition))
        if pod is None or not pod.is_up:
            why = pod.detail if pod is not None else "it does not exist"
            return leaderless(status, Reason.POD_DOWN, f"its log is on pod {each.pod}, which is down: {why}")
        view = pod.replicas.get(index)
        if view is None:
            missing.append(pod.name)
        elif view.used and pod.name not in partition.spec.replicas:
            # Somebody's acknowledged offsets: neither dropped nor taken for this partition's without being told so.
            text = f"pod {pod.name} holds log {view.log_id} with data and no record names it; spec.replicas can"
            return stalled(status, Reason.UNKNOWN_LOG, text)
        else:
            replicas.append(Replica(pod.name, view.log_id))
    if missing:
        pending = replace(status, state=PartitionState.PENDING, reason=Reason.PLACING)
        named = ", ".join(missing)
        return Decision(pending, f"pod {named} creates its log", create_on=tuple(missing))
    named_logs = replace(partition, status=replace(status, replicas=tuple(replicas)))
    return without_leader(Standing(named_logs, scene), None)


# A partition that nobody leads


def without_leader(standing: Standing, attempt: Attempt | None) -> Decision:
    """Wait, elect, or say why neither helps."""
    status, scene = standing.status, standing.scene
    if attempt is not None and attempt.in_flight and not standing.is_gone(attempt.pod):
        return Decision(status, message_of(standing.partition))
    doubtful = status.leader is not None and status.leader in scene.pods and not standing.is_gone(status.leader)
    if doubtful and not scene.pods[status.leader or ""].is_up:
        return Decision(status, message_of(standing.partition))
    seen = replace(status, epoch=standing.highest_epoch())
    if len(standing.members) == 1 and (alone := _alone(standing)) is not None:
        return alone
    loss = False
    if standing.lacks_majority():
        if not standing.lacks_majority(hoped=True):
            return Decision(status, message_of(standing.partition))
        loss = _loss_is_allowed(standing)
        if not loss:
            return _taken_back(standing, seen) or _no_majority(standing, seen)
    elif _loss_is_begun(standing):
        loss = True
    candidates = [each for each in _left(standing, loss) if _may_lead(standing, each, loss)]
    willing = [each for each in candidates if attempt is None or each.replica.pod not in attempt.refused]
    if not candidates:
        return _no_candidate(standing, seen)
    another = bool(willing) and attempt is not None and all(each.replica.pod != attempt.pod for each in willing)
    if attempt is not None and attempt.held_back and not another:
        return _held_back(standing, attempt)
    chosen = _best(standing, willing or candidates, attempt)
    if loss:
        return _with_loss(standing, chosen)
    return elect(standing, chosen, Reason.ELECTING, force=_must_force(standing, chosen, attempt))


def _must_force(standing: Standing, chosen: Member, attempt: Attempt | None) -> bool:
    """Without force the pod first asks if a leader lives or a better log exists: the guard against a wrong suspicion.

    Not where the record itself ends a leader that is seen alive (a move, a change of the set), or where the better log
    cannot be elected: the seal takes it from there in any case.
    """
    if attempt is not None and attempt.better and attempt.better != chosen.log_id:
        return True
    led = standing.leader()
    return led is not None and led[1].is_active


def _may_lead(standing: Standing, member: Member, loss: bool = False) -> bool:
    view, pod = member.view, member.pod
    if view is None or pod is None or standing.scene.is_leaving(pod):
        return False
    if not (member.is_there if loss else member.counts):
        return False
    return view.used or _is_first(standing)


def _is_first(standing: Standing) -> bool:
    """No leader ever was: no record says so, and no log has a record.

    An election that died between its promise and its first record leaves promises and empty logs behind. The set in
    the call is the recorded one, and the only one that any bootstrap of this partition ever names.
    """
    status = standing.status
    if status.high_watermark is not None or status.led_epoch >= 0:
        return False
    return all(each.view is None or each.view.log_end_offset == 0 for each in standing.members)


def _best(standing: Standing, candidates: Sequence[Member], attempt: Attempt | None) -> Member:
    """The best log that is known, then who is wanted, then balance.

    Positions come with events, not with every commit, so small differences between them say nothing; if another log is
    better after all, the pod that is called says so.
    """
    status, led = standing.status, standing.scene.tally.led
    better = attempt.better if attempt is not None else ""
    ends = [each.view.log_end_offset for each in candidates if each.view is not None]
    nearly = max(ends) - CAUGHT_UP_RECORDS
    wanted = preferred_pod(standing.partition)
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
            standing.scene.is_young(member.pod),
            pod != wanted,
            led[pod],
            place,
        )

    return candidates[min(range(len(candidates)), key=rank)]


def _names_others(view: ReplicaStatus) -> bool:
    """The replica's own log names sets, and not this replica: a change of the set was recorded, and its election is
    still to come. A candidate in no set of its chosen log refuses: only one of the sets before can begin the change.
    """
    return bool(view.replicas) and view.log_id not in (*view.replicas, *view.previous_replicas)


def preferred_pod(partition: OffsetsPartition) -> str:
    """The pod that shall lead: the declared one if it has a replica, else the first replica, as in Kafka."""
    replicas = [each.pod for each in partition.status.replicas]
    wanted = partition.spec.preferred_leader
    return wanted if wanted is not None and wanted in replicas else next(iter(replicas), "")


def elect(standing: Standing, chosen: Member, reason: Reason, *, force: bool = False, resign: str = "") -> Decision:
    """Issue an epoch to the pod, or repeat the one that is issued and that nobody has promised yet."""
    status, view = standing.status, chosen.view
    assert view is not None
    pod = chosen.replica.pod
    highest = standing.highest_epoch()
    others = [each.view.epoch for each in standing.members if each.view is not None]
    issued = pod == status.leader and max(others) < status.epoch == highest
    epoch = highest if issued else highest + 1
    standing.scene.tally.led[pod] += 1
    electing = replace(status, leader=pod, epoch=epoch, state=PartitionState.ELECTING, reason=reason)
    call = Elect(
        partition=standing.partition.metadata.name,
        index=standing.index,
        pod=pod,
        epoch=epoch,
        replicas=log_ids(electing.replicas),
        previous_replicas=log_ids(electing.previous_replicas),
        bootstrap=_is_first(standing),
        force=force,
        resign=resign,
    )
    return Decision(electing, f"pod {pod} is elected in epoch {epoch}", elect=call)


# Why nobody can be elected


def _alone(standing: Standing) -> Decision | None:
    """With one replica there is one candidate. Its log is the partition: no other pod can take over."""
    (member,) = standing.members
    status, pod, view, name = standing.status, member.pod, member.view, member.replica.pod
    if pod is None:
        return leaderless(status, Reason.POD_DOWN, f"its log is on pod {name}, which does not exist")
    if pod.connection is Connection.UNSURE:
        return Decision(status, message_of(standing.partition))
    if not pod.is_up:
        return leaderless(status, Reason.POD_DOWN, f"its log is on pod {name}, which is down: {pod.detail}")
    if view is None:
        other = pod.replicas.get(standing.index)
        there = f"has log {other.log_id}" if other is not None else "has none"
        text = f"log {member.log_id} is not on pod {name} any more, which {there}: volume lost?"
        return stalled(status, Reason.LOG_LOST, text)
    if not view.used and not _is_first(standing):
        return stalled(status, Reason.LOG_LOST, f"log {member.log_id} on pod {name} was led before and is now empty")
    if member.is_damaged:
        seen = replace(status, epoch=standing.highest_epoch())
        return stalled(seen, Reason.LOG_DAMAGED, f"pod {name} refuses to serve its log: {view.message}")
    if pod.draining:
        return leaderless(status, Reason.POD_DOWN, f"its log is on pod {name}, which is about to end")
    return None


def _taken_back(standing: Standing, seen: OffsetsPartitionStatus) -> Decision | None:
    """A change of the set that is recorded, that cannot be made because its new replicas are lost for good, and that no
    log of a majority of the set before names. If one does, the election is refused with what it names, as ever.
    """
    counted = [each for each in standing.previous if each.counts]
    if 2 * len(counted) <= len(standing.previous):
        return None
    if 2 * sum(each.is_lost or each.is_damaged for each in standing.replicas) < len(standing.replicas):
        return None
    before = set(log_ids(seen.previous_replicas))
    named = [(set(each.view.replicas), each.view.previous_replicas) for each in counted if each.view is not None]
    if any(sets != (before, ()) for sets in named):
        return None
    back = replace(seen, replicas=seen.previous_replicas, previous_replicas=(), learners=())
    return leaderless(back, Reason.CHANGING_REPLICAS, "a change of the set is taken back: its new replicas are lost")


def _no_majority(standing: Standing, seen: OffsetsPartitionStatus) -> Decision:
    troubles = [each.trouble for each in standing.members if each.trouble]
    counted = sum(each.counts for each in standing.members)
    text = f"{counted} of {len(standing.members)} replicas can be counted: {'; '.join(troubles)}"
    sets = [each for each in (standing.replicas, standing.previous) if each]
    if any(2 * sum(m.is_lost or m.is_damaged for m in each) >= len(each) for each in sets):
        hint = f"; spec.allowDataLoss: {seen.led_epoch} would lead it from what is left"
        return stalled(seen, Reason.NO_MAJORITY, text + hint)
    return leaderless(seen, Reason.NO_MAJORITY, text)


def _no_candidate(standing: Standing, seen: OffsetsPartitionStatus) -> Decision:
    text = "no replica that can be counted may lead now: "
    text += "; ".join(_why_not(standing, each) for each in standing.members)
    return leaderless(seen, Reason.POD_DOWN, text)


def _why_not(standing: Standing, member: Member) -> str:
    if member.trouble:
        return member.trouble
    leaving = member.pod is not None and standing.scene.is_leaving(member.pod)
    return f"pod {member.replica.pod} {'is about to end' if leaving else 'has an empty log'}"


def _held_back(standing: Standing, attempt: Attempt) -> Decision:
    seen = replace(standing.status, epoch=standing.highest_epoch())
    view = next((each.view for each in standing.members if each.replica.pod == attempt.pod), None)
    if view is not None and view.state is ShardState.FAILED:
        return leaderless(seen, _FAILURES.get(view.reason, Reason.LOAD_FAILED), f"pod {attempt.pod}: {view.message}")
    text = attempt.message or f"pod {attempt.pod} does not lead yet"
    return leaderless(seen, attempt.reason or Reason.ELECTING, text)


# A person accepts the loss


def _loss_is_allowed(standing: Standing) -> bool:
    """The word is about the loss that it names: what was led since is not meant."""
    allowed, status = standing.partition.spec.allow_data_loss, standing.status
    if allowed is None or status.led_epoch > allowed:
        return False
    return any(_may_lead(standing, each, loss=True) for each in _left(standing, loss=True))


def _loss_is_begun(standing: Standing) -> bool:
    """The record names only what is left already, and the election by which the log says so too is still to come."""
    named = {each.log_id for each in standing.members}
    views = [each.view for each in standing.members if each.view is not None]
    return _loss_is_allowed(standing) and any(not named.issuperset(view.replicas) for view in views)


def _left(standing: Standing, loss: bool) -> Sequence[Member]:
    """Of the members, those that an election may name: with loss, those that count; those that are being rebuilt as
    well only if none of these may lead.
    """
    if not loss:
        return standing.members
    counted = [each for each in standing.members if each.counts]
    if any(_may_lead(standing, each) for each in counted):
        return counted
    return [each for each in standing.members if each.is_there]


def _with_loss(standing: Standing, chosen: Member) -> Decision:
    """The set becomes what is left of it; the others come back as new replicas.

    The record keeps the old set until the log names the new one: an election that fails is repeated in the same way.
    """
    left = tuple(each.replica for each in _left(standing, loss=True))
    ordered = (chosen.replica, *(each for each in left if each != chosen.replica))
    decision = elect(standing, chosen, Reason.DATA_LOSS_ALLOWED, force=True)
    assert decision.elect is not None
    pods = ", ".join(each.pod for each in ordered)
    text = (
        f"by spec.allowDataLoss, pod {chosen.replica.pod} is elected in epoch {decision.elect.epoch} from the logs on"
    )
    text += f" {pods}, without a majority: what only the others had is lost"
    call = with_fields(
        decision.elect, replicas=log_ids(ordered), previous_replicas=(), bootstrap=False, allow_data_loss=True
    )
    return Decision(replace(decision.status, learners=()), text, elect=call)


def leaderless(status: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    return Decision(replace(status, state=PartitionState.LEADERLESS, reason=reason, following=0), message)


def stalled(status: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    return Decision(replace(status, state=PartitionState.STALLED, reason=reason, following=0), message)


def message_of(partition: OffsetsPartition) -> str:
    """What was said last: for a decision that changes nothing."""
    return next((each.message for each in partition.status.conditions if each.type == "Ready"), "")
