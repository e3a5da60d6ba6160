"""Backups: when one begins, and what is said of MusterBackups and of the cluster."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster_operator.api.backup_result import BackupResult
from muster_operator.api.conditions import Condition, ConditionType, Reason, find_condition
from muster_operator.api.durations import format_time, parse_time
from muster_operator.api.models import (
    BackupPhase,
    BackupsStatus,
    CoordinatorCluster,
    MusterBackup,
    MusterBackupStatus,
    OffsetsPartition,
)
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.actions import StartBackup, WriteBackupStatus, WriteClusterStatus
from muster_operator.plan.backups import backups_due, plan_backups
from muster_operator.plan.observation import BackupJob, Connection, Observation, PodView
from muster_operator.plan.planner import plan

NOW = parse_time("2026-11-28T09:20:30Z")
TIME = format_time(NOW)
SLOT = "2026-11-28T09:17:00Z"
GOOD = BackupResult("20261128T091702Z-abcdef", int(NOW * 1000), "id", 1000, 10)


def cluster(status: BackupsStatus | None = None, **backup: Any) -> CoordinatorCluster:
    declared = {"store": {"claim": "backups"}, "schedule": "17 * * * *", **backup}
    meta = {"name": "c", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-11-01T00:00:00Z"}
    found = msgspec.convert({"metadata": meta, "spec": {"pods": 2, "backup": declared}}, CoordinatorCluster)
    return replace(found, status=replace(found.status, backups=status))


def asked(name: str = "now", phase: BackupPhase = BackupPhase.PENDING, **spec: Any) -> MusterBackup:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    found = msgspec.convert({"metadata": meta, "spec": {"clusterRef": {"name": "c"}, **spec}}, MusterBackup)
    return replace(found, status=MusterBackupStatus(phase=phase, job="j"))


def partition(state: str = "Led") -> OffsetsPartition:
    spec = {"topicRef": {"name": "t"}, "index": 0}
    raw = {"metadata": {"name": "t-0", "namespace": "ns"}, "spec": spec, "status": {"state": state}}
    return msgspec.convert(raw, OffsetsPartition)


def seen(subject: CoordinatorCluster | None = None, *backups: MusterBackup, **more: Any) -> Observation:
    subject = subject or cluster()
    pods = tuple(PodView(f"c-{number}", number, Connection.UP) for number in range(2))
    found = Observation("ns", "c", subject, pods=pods, partitions=(partition(),), backups=backups, backup_jobs=())
    return with_fields(found, backups_due=backups_due(subject, NOW), **more)


def begun(observation: Observation) -> list[StartBackup]:
    return [each for each in plan_backups(observation, TIME) if isinstance(each, StartBackup)]


def status_of(observation: Observation) -> MusterBackupStatus:
    [written] = [each for each in plan_backups(observation, TIME) if isinstance(each, WriteBackupStatus)]
    return written.status


def ready(status: MusterBackupStatus) -> Condition:
    found = find_condition(status.conditions, ConditionType.READY)
    assert found is not None
    return found


def shown(observation: Observation) -> tuple[BackupsStatus, dict[str, Condition]]:
    """What the cluster shows of backups, with the conditions that are there."""
    [written] = [each for each in plan(observation, NOW) if isinstance(each, WriteClusterStatus)]
    assert written.status.backups is not None
    return written.status.backups, {each.type: each for each in written.status.conditions}


# -- by the clock -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "zone", "now", "slot"),
    [
        ("17 * * * *", "UTC", "2026-11-28T09:17:00Z", "2026-11-28T09:17:00Z"),
        ("17 * * * *", "UTC", "2026-11-28T09:16:59Z", "2026-11-28T08:17:00Z"),
        ("0 3 * * 1-5", "Europe/Berlin", "2026-11-28T09:00:00Z", "2026-11-27T02:00:00Z"),  # a Saturday
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z"),  # there is no 02:30: at 03:00
        ("*/15 1 1 * *", "UTC", "2026-11-28T09:00:00Z", "2026-11-01T01:45:00Z"),
    ],
)
def test_slot_is_the_last_time_of_the_schedule(schedule: str, zone: str, now: str, slot: str) -> None:
    due = backups_due(cluster(schedule=schedule, timeZone=zone), parse_time(now))
    assert (due.slot, due.trouble) == (slot, "")


@pytest.mark.parametrize("schedule", ["61 * * * *", "a b c d e", "0 0 30 2 *"])
def test_schedule_that_is_none_is_said_and_begins_nothing(schedule: str) -> None:
    observation = seen(cluster(schedule=schedule))
    assert begun(observation) == []
    failed = shown(observation)[1][ConditionType.BACKUP_FAILED]
    assert failed.reason == Reason.INVALID_SCHEDULE
    assert schedule in failed.message


def test_without_a_schedule_only_musterbackups_are_carried_out() -> None:
    declared = {"store": {"claim": "b"}, "schedule": None}
    assert begun(seen(cluster(**declared))) == []
    [start] = begun(seen(cluster(**declared), asked(verify=True)))
    assert (start.asked, start.slot, start.verify) == (asked(verify=True), "", True)


# -- what begins ------------------------------------------------------------------------------------------------------


def test_each_time_of_the_schedule_begins_one_backup() -> None:
    assert begun(seen()) == [StartBackup(None, SLOT, verify=True)]
    again = seen(backup_jobs=(BackupJob("j", "", SLOT, TIME, TIME, GOOD),))
    assert begun(again) == []
    assert begun(seen(cluster(BackupsStatus(last_scheduled=SLOT)))) == []  # its Job is gone long since
    late = seen(cluster(BackupsStatus(last_scheduled="2026-11-28T04:17:00Z")))
    assert [each.slot for each in begun(late)] == [SLOT]  # once for all that were missed


def test_backup_is_verified_when_the_last_time_was_long_ago() -> None:
    def verifies(last: str, every: str = "24h") -> bool:
        [start] = begun(seen(cluster(BackupsStatus(last_verified=last), verifyEvery=every)))
        return start.verify

    assert not verifies("2026-11-28T01:00:00Z")
    assert verifies("2026-11-27T01:00:00Z")
    assert not verifies("", every="0s")


def test_one_backup_at_a_time_and_those_that_people_ask_for_first() -> None:
    running = BackupJob("j", "", "2026-11-28T08:17:00Z", TIME)
    assert begun(seen(None, asked(), backup_jobs=(running,))) == []
    assert [each.asked for each in begun(seen(None, asked("first"), asked("second")))] == [asked("first")]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"pods": (PodView("c-0", 0, Connection.UP),)}, "1 of 2 are there"),
        ({"pods": (PodView("c-0", 0, Connection.UP), PodView("c-1", 1, Connection.DOWN))}, "c-1"),
        ({"pods": (PodView("c-0", 0, Connection.UP), PodView("c-1", 1, Connection.UP, draining=True))}, "c-1"),
        ({"partitions": ()}, "there is none"),
        ({"partitions": (partition("Leaderless"),)}, "t-0"),
    ],
)
def test_backup_waits_for_all_pods_and_leaders(more: dict[str, Any], why: str) -> None:
    observation = seen(None, asked(), **more)
    assert begun(observation) == []
    waits = ready(status_of(observation))
    assert waits.reason == Reason.BACKUP_WAITS
    assert why in waits.message


def test_nothing_is_decided_before_it_is_known_which_jobs_there_are() -> None:
    assert list(plan_backups(seen(None, asked(), backup_jobs=None), TIME)) == []


# -- what a MusterBackup shows ----------------------------------------------------------------------------------------


def test_musterbackup_shows_its_job_and_then_the_backup() -> None:
    job = BackupJob("now-muster-backup", "uid-now", "", "2026-11-28T09:20:00Z")
    running = status_of(seen(None, asked(), backup_jobs=(job,)))
    assert (running.phase, running.job, running.started) == (BackupPhase.RUNNING, job.name, job.started)
    assert ready(running).reason == Reason.BACKING_UP
    done = with_fields(job, finished=TIME, result=replace(GOOD, verified=True))
    after = status_of(seen(None, replace(asked(), status=running), backup_jobs=(done,)))
    assert (after.phase, after.backup, after.taken, after.bytes) == (BackupPhase.COMPLETED, GOOD.backup, TIME, 1000)
    assert (after.finished, after.verified) == (TIME, True)
    assert ready(after).reason == Reason.BACKED_UP
    assert list(plan_backups(seen(None, replace(asked(), status=after), backup_jobs=()), TIME))[:1] == [
        StartBackup(None, SLOT, verify=True)
    ]  # it is over, whatever becomes of its Job


@pytest.mark.parametrize(
    ("result", "phase", "reason", "says"),
    [
        (BackupResult(error="the bucket is away"), BackupPhase.FAILED, Reason.BACKUP_FAILED, "the bucket is away"),
        (None, BackupPhase.FAILED, Reason.BACKUP_FAILED, "DeadlineExceeded"),
        (replace(GOOD, problems="segments/x: missing"), BackupPhase.COMPLETED, Reason.BACKUP_DAMAGED, "segments/x"),
        (replace(GOOD, error="no right to delete"), BackupPhase.COMPLETED, Reason.BACKUP_FAILED, "no right to delete"),
    ],
)
def test_musterbackup_says_what_failed(
    result: BackupResult | None, phase: BackupPhase, reason: Reason, says: str
) -> None:
    job = BackupJob("j", "uid-now", "", TIME, TIME, result, "DeadlineExceeded: it took too long")
    after = status_of(seen(None, asked(), backup_jobs=(job,)))
    assert (after.phase, ready(after).reason, ready(after).status) == (phase, reason, "False")
    assert says in ready(after).message


def test_job_whose_pod_does_not_begin_says_why_and_is_a_failure_after_a_while() -> None:
    waits = BackupJob("j", "uid-now", "", "2026-11-28T09:19:30Z", trouble='CreateContainerConfigError: secret "keys"')
    running = status_of(seen(None, asked(), backup_jobs=(waits,)))
    assert running.phase is BackupPhase.RUNNING
    assert 'secret "keys"' in ready(running).message
    assert "BackupFailed" not in shown(seen(backup_jobs=(waits,)))[1]
    long = with_fields(waits, started="2026-11-28T09:05:00Z")
    status, conditions = shown(seen(backup_jobs=(long,)))
    assert 'secret "keys"' in conditions["BackupFailed"].message
    assert status.last_error == ""
    assert "BackupFailed" not in shown(seen(cluster(status), backup_jobs=(with_fields(long, trouble=""),)))[1]


def test_job_that_did_not_begin_in_its_time_holds_up_no_other_backup() -> None:
    late = BackupJob("j", "uid-now", "", "2026-11-28T09:05:00Z", trouble='CreateContainerConfigError: secret "keys"')
    soon = with_fields(late, started="2026-11-28T09:06:00Z")
    assert begun(seen(backup_jobs=(soon,))) == []
    assert [each.slot for each in begun(seen(backup_jobs=(late,)))] == [SLOT]
    assert begun(seen(backup_jobs=(with_fields(late, trouble=""),))) == [], "one that runs may take long"
    after = status_of(seen(None, asked(phase=BackupPhase.RUNNING), backup_jobs=(late,)))
    assert (after.phase, ready(after).reason, after.finished) == (BackupPhase.FAILED, Reason.BACKUP_FAILED, TIME)
    assert 'secret "keys"' in ready(after).message
    made = BackupsStatus(last_taken="2026-11-28T09:18:00Z", last_scheduled=SLOT)
    assert "BackupFailed" not in shown(seen(cluster(made), backup_jobs=(late,)))[1], "a later one was made"


def test_musterbackup_whose_job_is_gone_has_failed() -> None:
    after = status_of(seen(None, asked(phase=BackupPhase.RUNNING)))
    assert after.phase is BackupPhase.FAILED
    assert "Job j is gone" in ready(after).message


def test_musterbackup_without_a_cluster_or_a_store_says_so() -> None:
    nowhere = Observation("ns", "c", backups=(asked(),))
    assert ready(status_of(nowhere)).reason == Reason.CLUSTER_NOT_FOUND
    without = replace(cluster(), spec=replace(cluster().spec, backup=None))
    observation = seen(without, asked())
    assert ready(status_of(observation)).reason == Reason.NO_BACKUP_STORE
    assert begun(observation) == []


# -- what the cluster shows -------------------------------------------------------------------------------------------


def test_cluster_shows_the_newest_backup_and_forgets_it_not_with_its_job() -> None:
    job = BackupJob("j", "", SLOT, SLOT, TIME, replace(GOOD, verified=True))
    status, conditions = shown(seen(backup_jobs=(job,)))
    assert status == BackupsStatus(SLOT, GOOD.backup, TIME, 1000, TIME, "", "", TIME)
    assert conditions.keys() & {"BackupFailed", "VerifyFailed"} == set()
    assert shown(seen(cluster(status)))[0] == status


def test_failure_and_damage_are_conditions_until_a_later_backup_is_good() -> None:
    failed = BackupJob("a", "", SLOT, SLOT, "2026-11-28T09:18:00Z", BackupResult(error="no room"))
    damaged = BackupJob("b", "u", "", SLOT, "2026-11-28T09:19:00Z", replace(GOOD, problems="segments/x: changed"))
    good = BackupJob("c", "v", "", SLOT, TIME, replace(GOOD, verified=True))
    status, conditions = shown(seen(backup_jobs=(failed,)))
    assert (conditions["BackupFailed"].reason, conditions["BackupFailed"].message) == (Reason.BACKUP_FAILED, "no room")
    status, conditions = shown(seen(cluster(status), backup_jobs=(failed, damaged)))
    assert (conditions["VerifyFailed"].reason, "BackupFailed" in conditions) == (Reason.BACKUP_DAMAGED, False)
    later = with_fields(good, finished="2026-11-28T09:20:00Z", result=GOOD)  # is not read again, so it proves nothing
    assert "VerifyFailed" in shown(seen(cluster(status), backup_jobs=(failed, damaged, later)))[1]
    assert "VerifyFailed" not in shown(seen(cluster(status), backup_jobs=(failed, damaged, later, good)))[1]


@pytest.mark.parametrize(
    ("taken", "backup", "old"),
    [
        ("2026-11-27T08:20:00Z", {}, True),
        ("2026-11-27T08:21:00Z", {}, False),
        ("", {}, True),  # the cluster is older
        ("", {"maxAge": "0s"}, False),
        ("2026-11-28T09:00:00Z", {"maxAge": "20m"}, True),
    ],
)
def test_backup_that_is_too_old_is_a_condition_and_a_metric(taken: str, backup: dict[str, str], old: bool) -> None:
    subject = cluster(BackupsStatus(last_taken=taken, last_scheduled=SLOT, last_error="no room"), **backup)
    conditions = shown(seen(subject))[1]
    assert ("BackupTooOld" in conditions) is old
    if old:
        assert conditions["BackupTooOld"].reason == Reason.BACKUP_TOO_OLD
        assert "no room" in conditions["BackupTooOld"].message
    metrics = OperatorMetrics()
    metrics.show_backups(replace(subject, status=replace(subject.status, conditions=tuple(conditions.values()))))
    line = f'muster_operator_backup_troubles{{cluster="c",condition="BackupTooOld",namespace="ns"}} {float(old)}'
    assert line in metrics.render().decode()
    metrics.show_backups(replace(subject, spec=replace(subject.spec, backup=None)))
    assert 'condition="BackupTooOld"' not in metrics.render().decode()
