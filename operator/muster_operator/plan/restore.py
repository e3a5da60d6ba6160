"""A cluster that is to begin from a backup: what is done next, and what is said. No pod starts before it is over.

First a Job chooses the backup and reads all of it. Then each pod gets its claim, noted with what is restored, and a Job
that makes its volume. A claim whose volume is made is noted so. When the last one is, all are noted: the restore is
over then, whatever happens to objects. So the claims alone say how far it is. Status shows it, and nothing is decided
by it but that the restore is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_operator.api.conditions import Condition, ConditionType, Reason, without_condition
from muster_operator.api.durations import format_time
from muster_operator.api.models import CoordinatorCluster, OffsetsTopic, RestorePhase, RestorePlan, RestoreStatus
from muster_operator.api.restore import LATEST
from muster_operator.plan.actions import MakeClaim, MarkClaims, StartRestoreJob
from muster_operator.plan.observation import Observation
from muster_operator.plan.restore_facts import OTHERS, OWN, READS, Made, RestoreClaim, RestoreFacts, RestoreJob
from muster_operator.plan.verdict import Verdict, flag

RestoreAction = StartRestoreJob | MakeClaim | MarkClaims


@dataclass(frozen=True, slots=True)
class Restoring:
    """A restore that is to be done, or is done. `verdict`: what is to be said. `actions`: what is done next."""

    status: RestoreStatus
    verdict: Verdict
    actions: tuple[RestoreAction, ...] = ()


def awaits_restore(cluster: CoordinatorCluster) -> bool:
    """True if no pod may start: a cluster that should be restored never begins empty."""
    done = cluster.status.restore is not None and cluster.status.restore.phase is RestorePhase.COMPLETED
    return cluster.spec.restore_from is not None and not done


def restoring(seen: Observation) -> Restoring | None:
    """The next actions of a restore, and its status. None: nothing is restored here, or all is done and known."""
    cluster = seen.cluster
    if cluster is None or not awaits_restore(cluster):
        return None
    facts = seen.restore
    before = cluster.status.restore or RestoreStatus(RestorePhase.READING)
    if facts is None:
        return Restoring(
            before, Verdict(Reason.RESTORING, "claims and Jobs are still to be looked at", reconciling=True)
        )
    plans = {each.plan for each in facts.claims if each.plan is not None}
    going = [each.name for each in facts.claims if each.going]
    if going and facts.stateful_set != OWN:
        text = f"waits until claim {', '.join(going)} is gone: it is being deleted"
        return Restoring(before, Verdict(Reason.RESTORING, text, reconciling=True))
    if facts.stateful_set == OTHERS:
        text = f"waits until StatefulSet {cluster.metadata.name} is gone: it is of an earlier cluster of this name"
        return Restoring(before, Verdict(Reason.RESTORING, text, reconciling=True))
    if done := next((each.plan for each in facts.claims if each.made is Made.ALL), None):
        return _over(before, done)
    if refusal := _refusal(seen, cluster, facts, plans):
        return Restoring(before, Verdict(Reason.RESTORE_REFUSED, refusal, stalled=True))
    if cluster.spec.suspend or cluster.spec.hibernate:
        return Restoring(before, Verdict(Reason.RESTORE_WAITS, "spec.suspend or spec.hibernate is set"))
    return _making(before, facts, plans.pop()) if plans else _reading(seen, cluster, facts, before)


def _over(before: RestoreStatus, plan: RestorePlan) -> Restoring:
    status = replace(_planned(before, plan), phase=RestorePhase.COMPLETED, volumes=plan.pods, last_error="")
    return Restoring(status, Verdict(Reason.RESTORED, _told(plan), reconciling=True))


def _told(plan: RestorePlan) -> str:
    return f"{_source(plan)} is on the volumes of {plan.pods} pods"


def _source(plan: RestorePlan) -> str:
    numbers = [str(layout.partitions) for layout in (plan.offsets, plan.transactions) if layout is not None]
    resharded = f", re-sharded to {' and '.join(numbers)} partitions," if plan.resharded else ""
    if plan.at is not None:
        return f"the moment {plan.at} between two backups ({plan.backup}){resharded}"
    return f"backup {plan.backup} of {format_time(plan.taken_at_ms / 1000)}{resharded}"


def _planned(before: RestoreStatus, plan: RestorePlan) -> RestoreStatus:
    return replace(
        before,
        phase=RestorePhase.RESTORING,
        backup=plan.backup,
        taken=format_time(plan.taken_at_ms / 1000),
        bytes=plan.bytes,
        pods=plan.pods,
        offsets=plan.offsets,
        transactions=plan.transactions,
    )


# --- What stands in the way


def _refusal(seen: Observation, cluster: CoordinatorCluster, facts: RestoreFacts, plans: set[RestorePlan]) -> str:
    """The reason why nothing is restored, with the way out; "" if nothing stands in the way."""
    meta, asked = cluster.metadata, cluster.spec.restore_from
    assert asked is not None
    kubectl = f"kubectl -n {meta.namespace}"
    if foreign := [each.name for each in facts.claims if each.plan is None]:
        return (
            f"claim {', '.join(foreign)} is there, and was not made by a restore: nothing is overwritten. To go on from"
            f" these volumes, create the cluster without spec.restoreFrom; to restore: {kubectl} delete pvc"
            f" {' '.join(foreign)}"
        )
    if facts.stateful_set == OWN:
        return f"pods may use the volumes: {kubectl} delete statefulset {meta.name}"
    if not plans:
        return ""
    names = " ".join(each.name for each in facts.claims)
    anew = f"To begin anew: {kubectl} delete pvc {names}"
    if len(plans) > 1:
        return f"claims {names} were made for different backups. {anew}"
    [plan] = plans
    if asked.at != plan.at:
        declared, made = (each or "absent" for each in (asked.at, plan.at))
        return f"spec.restoreFrom.at is {declared}, and claims {names} were made with it {made}. {anew}"
    if asked.backup not in (LATEST, plan.backup):
        return f"spec.restoreFrom.backup is {asked.backup}, and claims {names} were made for {plan.backup}. {anew}"
    if cluster.spec.pods != plan.pods:
        return (
            f"spec.pods is {cluster.spec.pods}, and volumes of {plan.pods} pods are being made: set it to {plan.pods}"
            f" until they are. {anew}"
        )
    return _conflict(cluster, plan) or _other_number(seen, plan, anew)


def _conflict(cluster: CoordinatorCluster, plan: RestorePlan) -> str:
    """The declaration that contradicts the backup; "" if none does."""
    declared = cluster.spec.cluster_id
    if declared is not None and declared != plan.cluster_id:
        return (
            f"spec.clusterId is {declared}, and backup {plan.backup} is of Kafka cluster {plan.cluster_id}: create the"
            " cluster without it"
        )
    return ""


def _other_number(seen: Observation, plan: RestorePlan, anew: str) -> str:
    """A topic that came, or came again, when its number of partitions was decided."""
    layouts = {OFFSETS.name: plan.offsets, TRANSACTIONS.name: plan.transactions}
    for topic in _oldest(seen):
        layout, declared = layouts[topic.spec.topic], _declared(topic)
        if layout is not None and declared != layout.partitions:
            return (
                f"OffsetsTopic {topic.metadata.name} declares {declared} partitions, and volumes with"
                f" {layout.partitions} are being made: create it with {layout.partitions}, and re-shard it afterwards"
                f" (muster reshard). {anew}"
            )
    return ""


def _oldest(seen: Observation) -> list[OffsetsTopic]:
    """The topics that the cluster uses."""
    return [*{each.spec.topic: each for each in reversed(seen.topics)}.values()]


def _declared(topic: OffsetsTopic) -> int:
    """The number of partitions that the topic shall have."""
    return topic.spec.partitions if topic.spec.reshard is None else topic.spec.reshard.partitions


# --- What is done


def _reading(seen: Observation, cluster: CoordinatorCluster, facts: RestoreFacts, before: RestoreStatus) -> Restoring:
    """Choose the backup. Nothing is made before all of it was read and fits what is declared."""
    job = next((each for each in facts.jobs if each.pod == READS), None)
    status = replace(before, phase=RestorePhase.READING)
    if job is None:
        return _going_on(status, facts, "the backup is read next", (StartRestoreJob(READS),))
    if job.error:
        return _failed(replace(status, last_error=job.error), job)
    if not job.finished or job.result is None:
        return _going_on(status, facts, _runs(job))
    assert cluster.spec.restore_from is not None
    declared: dict[str, int] = {each.spec.topic: _declared(each) for each in _oldest(seen)}
    plan = RestorePlan.of(
        job.result,
        cluster.spec.pods,
        cluster.spec.restore_from.at,
        partitions=declared.get(OFFSETS.name, 0),
        transaction_partitions=declared.get(TRANSACTIONS.name, 0),
    )
    if conflict := _conflict(cluster, plan):
        return Restoring(_planned(status, plan), Verdict(Reason.RESTORE_REFUSED, conflict, stalled=True))
    return _making(replace(before, last_error=""), facts, plan)


def _making(before: RestoreStatus, facts: RestoreFacts, plan: RestorePlan) -> Restoring:
    """Each volume by its Job. A Job counts for the claim that it was made for, not for a later one of its name."""
    claims = {each.pod: each for each in facts.claims}
    made = [each for each in facts.claims if each.made is not Made.NOT_YET]
    jobs = {(each.pod, each.claim): each for each in facts.jobs}
    status = replace(_planned(before, plan), volumes=len(made))
    if len(made) > before.volumes:
        status = replace(status, last_error="")
    if len(made) == plan.pods:
        return _going_on(status, facts, "all volumes are made", (MarkClaims(tuple(made), Made.ALL),))
    actions: list[RestoreAction] = []
    failed: RestoreJob | None = None
    for pod in range(plan.pods):
        claim = claims.get(pod)
        if claim is None:
            actions.append(MakeClaim(pod, plan))
        elif claim.made is Made.NOT_YET:
            job = jobs.get((pod, claim.uid))
            actions += _next_of(claim, job, plan)
            failed = failed or (job if job is not None and job.error else None)
    if failed is not None:
        status = replace(status, last_error=failed.error)
        return _failed(status, failed, tuple(actions))
    waits = next((f"; {_runs(each)}" for each in facts.jobs if each.trouble and not each.finished), "")
    text = f"{_source(plan)} is restored: {len(made)} of {plan.pods} volumes are made{waits}"
    return _going_on(status, facts, text, tuple(actions))


def _next_of(claim: RestoreClaim, job: RestoreJob | None, plan: RestorePlan) -> Iterator[RestoreAction]:
    if job is None:
        yield StartRestoreJob(claim.pod, claim.uid, plan)
    elif job.finished and not job.error:
        yield MarkClaims((claim,), Made.VOLUME)


def _runs(job: RestoreJob) -> str:
    return f"Job {job.name} runs{f': {job.trouble}' if job.trouble else ''}"


def _going_on(
    status: RestoreStatus, facts: RestoreFacts, text: str, actions: tuple[RestoreAction, ...] = ()
) -> Restoring:
    """The refusal of the API server comes first: it says why nothing goes on. It is asked again all the same."""
    if facts.refusal:
        return Restoring(status, Verdict(Reason.RESTORE_FAILED, facts.refusal, stalled=True), actions)
    again = f"; before: {status.last_error}" if status.last_error else ""
    reason = Reason.RESTORE_FAILED if status.last_error else Reason.RESTORING
    verdict = Verdict(reason, text + again, reconciling=not status.last_error, stalled=bool(status.last_error))
    return Restoring(status, verdict, actions)


def _failed(status: RestoreStatus, job: RestoreJob, actions: tuple[RestoreAction, ...] = ()) -> Restoring:
    text = f"Job {job.name}: {job.error}. It is made again in some minutes, or as soon as it is deleted"
    return Restoring(status, Verdict(Reason.RESTORE_FAILED, text, stalled=True), actions)


# --- What is said


def with_restore(
    seen: Observation, found: Restoring | None, conditions: tuple[Condition, ...], now: str
) -> tuple[Condition, ...]:
    """Restored: of a cluster that begins, or has begun, from a backup; of others there is no such condition."""
    cluster = seen.cluster
    assert cluster is not None
    kind, generation, known = ConditionType.RESTORED, cluster.metadata.generation, cluster.status.restore
    if found is not None:
        done = found.verdict.reason is Reason.RESTORED
        return flag(conditions, kind, done, found.verdict.reason, found.verdict.message, generation, now)
    if known is None:
        return without_condition(conditions, kind)
    return conditions  # as it was written when the restore was over
