"""Backups: when one begins, what is said of each MusterBackup, and of the backups of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from muster_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    with_condition,
    without_condition,
)
from muster_operator.api.durations import format_time, parse_duration, parse_time
from muster_operator.api.models import (
    BackupPhase,
    Backups,
    BackupsStatus,
    CoordinatorCluster,
    MusterBackup,
    MusterBackupStatus,
    PartitionState,
)
from muster_operator.plan.actions import StartBackup, WriteBackupStatus
from muster_operator.plan.observation import BackupJob, BackupsDue, Observation
from muster_operator.plan.verdict import flag

ENDED = (BackupPhase.COMPLETED, BackupPhase.FAILED)
GOOD_FOR_MINUTES = 15
"""Time that a Job may take to begin: the addresses of pods that it was given count for nothing then, and it has failed.
"""
NOT_READ = "the Job has left no result: its pod is gone"


# --- By the clock


def backups_due(cluster: CoordinatorCluster, now: float) -> BackupsDue:
    """`now`: seconds since 1970."""
    declared, status = cluster.spec.backup, cluster.status.backups or BackupsStatus()
    if declared is None:
        return BackupsDue()
    slot, trouble = _last_slot(declared, now)
    since = status.last_taken or cluster.metadata.creation_timestamp
    verify_s = parse_duration(declared.verify_every)
    return BackupsDue(
        slot=slot,
        trouble=trouble,
        too_old=not cluster.spec.hibernate and _is_over(since, parse_duration(declared.max_age), now),
        verify=verify_s > 0 and (not status.last_verified or _is_over(status.last_verified, verify_s, now)),
    )


def _is_over(since: str, duration_s: float, now: float) -> bool:
    return duration_s > 0 and bool(since) and now - parse_time(since) > duration_s


def _last_slot(declared: Backups, now: float) -> tuple[str, str]:
    """(the last time of the schedule that is not after `now`, what is wrong with the schedule)."""
    if declared.schedule is None:
        return "", ""
    try:
        zone = ZoneInfo(declared.time_zone)
        # From the next second back: a time is due in the second in which it is.
        slot = next(CronSim(declared.schedule, datetime.fromtimestamp(int(now) + 1, zone), reverse=True))
    except (CronSimError, ZoneInfoNotFoundError, ValueError) as error:
        return "", f"spec.backup.schedule {declared.schedule!r} ({declared.time_zone}): {error}"
    except StopIteration:
        return "", f"spec.backup.schedule {declared.schedule!r} has no time in the last 50 years"
    return format_time(slot.astimezone(UTC).timestamp()), ""


# --- What begins, and what MusterBackups show


def plan_backups(seen: Observation, time: str) -> Iterator[StartBackup | WriteBackupStatus]:
    """One backup at a time; those that people ask for come first, the oldest of them first."""
    cluster, jobs = seen.cluster, seen.backup_jobs
    if jobs is None and cluster is not None:
        return
    declared = cluster.spec.backup if cluster is not None else None
    begins: StartBackup | None = None
    waits = _waits(seen, time)
    for backup in seen.backups:
        job = next((each for each in jobs or () if each.asked == backup.metadata.uid), None)
        if backup.status.phase in ENDED:
            continue
        if job is None and backup.status.phase is BackupPhase.PENDING and declared is not None and not waits:
            begins = begins or StartBackup(backup, "", backup.spec.verify)
        after = _status_of(seen, backup, job, waits, time)
        if after != backup.status:
            yield WriteBackupStatus(backup, after)
    if begins is None and not waits and _is_due(seen):
        begins = StartBackup(None, seen.backups_due.slot, seen.backups_due.verify)
    if begins is not None:
        yield begins


def _is_due(seen: Observation) -> bool:
    """True if there is a time of the schedule for which no backup was begun."""
    assert seen.cluster is not None
    slots = [job.slot for job in seen.backup_jobs or ()]
    status = seen.cluster.status.backups
    return seen.backups_due.slot > max((*slots, status.last_scheduled if status is not None else ""))


def _waits(seen: Observation, time: str) -> str:
    """The reason why no backup begins now; "" if one may. All pods hold markers back while the logs are cut, so all
    have to be there."""
    cluster = seen.cluster
    if cluster is None or cluster.spec.backup is None:
        return "there is no spec.backup"
    running = next((job for job in seen.backup_jobs or () if not job.finished and not _is_late(job, time)), None)
    if running is not None:
        return _runs(running)
    if cluster.spec.suspend or cluster.spec.hibernate:
        return "the cluster is suspended or hibernated"
    away = [pod.name for pod in seen.pods if not pod.is_up or pod.draining]
    if away or len(seen.pods) < cluster.spec.pods:
        return f"not all pods are up: {', '.join(away) or f'{len(seen.pods)} of {cluster.spec.pods} are there'}"
    shown = [each for each in seen.partitions if each.status.state is not PartitionState.RETIRED]
    unled = [each.metadata.name for each in shown if each.status.state is not PartitionState.LED]
    if unled or not shown:
        return f"no pod leads {unled[0] if unled else 'a partition: there is none'}"
    return ""


def _runs(job: BackupJob) -> str:
    if not job.trouble:
        return f"Job {job.name} runs"
    return f"the pod of Job {job.name} does not begin: {job.trouble}"


def _is_late(job: BackupJob, time: str) -> bool:
    """True if a Job has not begun, and can make no backup any more: another one need not wait for it."""
    return not job.finished and bool(job.trouble) and _is_over(job.started, 60 * GOOD_FOR_MINUTES, parse_time(time))


def _late(job: BackupJob) -> str:
    return f"{_runs(job)}. It had {GOOD_FOR_MINUTES} minutes: mend what it lacks, or spec.backup"


def _held_up(seen: Observation, shown: BackupsStatus, time: str) -> str:
    """Names the Job that did not begin in its time, and the reason; "" if there is none, or a backup was made since."""
    late = (each for each in seen.backup_jobs or () if _is_late(each, time) and each.started > shown.last_taken)
    return next(map(_late, late), "")


def _status_of(
    seen: Observation, backup: MusterBackup, job: BackupJob | None, waits: str, time: str
) -> MusterBackupStatus:
    before, name = backup.status, backup.spec.cluster_ref.name
    if job is not None and job.finished:
        return _ended(backup, job, time)
    if job is not None and _is_late(job, time):
        after = replace(before, phase=BackupPhase.FAILED, job=job.name, started=job.started, finished=time)
        return _told(after, backup, Reason.BACKUP_FAILED, f"{_late(job)}, and make another MusterBackup", time)
    if job is not None:
        after = replace(before, phase=BackupPhase.RUNNING, job=job.name, started=job.started)
        return _told(after, backup, Reason.BACKING_UP, _runs(job), time)
    if before.phase is BackupPhase.RUNNING:
        after = replace(before, phase=BackupPhase.FAILED, finished=time)
        return _told(after, backup, Reason.BACKUP_FAILED, f"Job {before.job} is gone. Make another MusterBackup", time)
    if seen.cluster is None:
        return _told(before, backup, Reason.CLUSTER_NOT_FOUND, f"there is no CoordinatorCluster {name}", time)
    if seen.cluster.spec.backup is None:
        text = f"CoordinatorCluster {name} has no spec.backup, which says where backups are kept"
        return _told(before, backup, Reason.NO_BACKUP_STORE, text, time)
    return _told(before, backup, Reason.BACKUP_WAITS, waits or "its Job is made next", time)


def _ended(backup: MusterBackup, job: BackupJob, time: str) -> MusterBackupStatus:
    result = job.result
    made = result is not None and bool(result.backup)
    after = replace(
        backup.status,
        phase=BackupPhase.COMPLETED if made else BackupPhase.FAILED,
        job=job.name,
        started=job.started,
        finished=job.finished,
    )
    if result is None or not made:
        trouble = (result.error if result is not None else "") or job.trouble or NOT_READ
        return _told(after, backup, Reason.BACKUP_FAILED, f"{trouble}. Make another MusterBackup", time)
    after = replace(
        after,
        backup=result.backup,
        taken=format_time(result.taken_at_ms / 1000),
        bytes=result.bytes,
        sent=result.sent,
        verified=result.verified and not result.problems,
    )
    if result.problems:
        return _told(after, backup, Reason.BACKUP_DAMAGED, result.problems, time)
    if result.error:
        text = f"{result.backup} is made; what was to be done after it failed: {result.error}"
        return _told(after, backup, Reason.BACKUP_FAILED, text, time)
    text = f"{result.backup} is made, with {result.bytes} bytes{' and read again' if result.verified else ''}"
    return _told(after, backup, Reason.BACKED_UP, text, time)


def _told(
    status: MusterBackupStatus, backup: MusterBackup, reason: Reason, message: str, time: str
) -> MusterBackupStatus:
    ready: ConditionStatus = "True" if reason is Reason.BACKED_UP else "False"
    generation = backup.metadata.generation
    condition = Condition(ConditionType.READY, ready, reason, message, observed_generation=generation)
    # Stalled was written of an object that did not decode.
    conditions = without_condition(with_condition(status.conditions, condition, time), ConditionType.STALLED)
    return replace(status, observed_generation=generation, conditions=conditions)


# --- What the cluster shows


def backups_status(seen: Observation) -> BackupsStatus | None:
    """The state that was known before, and what Jobs have added since. None if nothing is declared."""
    assert seen.cluster is not None
    before = seen.cluster.status.backups or BackupsStatus()
    if seen.cluster.spec.backup is None:
        return None
    jobs = seen.backup_jobs or ()
    scheduled = max((before.last_scheduled, *(job.slot for job in jobs)))
    after = replace(before, last_scheduled=scheduled)
    ended = [job for job in jobs if job.finished > before.last_finished]
    for job in sorted(ended, key=lambda each: (each.finished, each.name)):
        after = _with_result(after, job)
    return after


def _with_result(status: BackupsStatus, job: BackupJob) -> BackupsStatus:
    result = job.result
    error = job.trouble or NOT_READ if result is None else result.error
    status = replace(status, last_error=error, last_finished=job.finished)
    if result is None:
        return status
    taken = format_time(result.taken_at_ms / 1000)
    if result.backup and taken > status.last_taken:
        status = replace(status, last_backup=result.backup, last_taken=taken, last_bytes=result.bytes)
    if result.verified or result.problems:
        status = replace(status, last_verified=job.finished, verify_problem=result.problems)
    return status


def with_backups(
    seen: Observation, status: BackupsStatus | None, conditions: tuple[Condition, ...], time: str
) -> tuple[Condition, ...]:
    """BackupTooOld, BackupFailed, VerifyFailed: each as long as it is so."""
    assert seen.cluster is not None
    meta, due = seen.cluster.metadata, seen.backups_due
    shown = status or BackupsStatus()
    newest = f"the newest backup is of {shown.last_taken}" if shown.last_taken else "there is no backup"
    why = due.trouble or shown.last_error or (_waits(seen, time) if seen.backup_jobs is not None else "")
    failed = Reason.INVALID_SCHEDULE if due.trouble else Reason.BACKUP_FAILED
    failure = due.trouble or _held_up(seen, shown, time) or shown.last_error
    flags = (
        (ConditionType.BACKUP_TOO_OLD, due.too_old, Reason.BACKUP_TOO_OLD, newest + (f"; {why}" if why else "")),
        (ConditionType.BACKUP_FAILED, bool(failure), failed, failure),
        (ConditionType.VERIFY_FAILED, bool(shown.verify_problem), Reason.BACKUP_DAMAGED, shown.verify_problem),
    )
    for kind, value, reason, text in flags:
        conditions = flag(
            conditions, kind, value and status is not None, reason, text, meta.generation, time, only_if_true=True
        )
    return conditions
