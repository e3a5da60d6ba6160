"""A table of what a GitOps tool has to say of an object, by the operator's word for its state. The checks of
examples/gitops are held beside it.
"""

from __future__ import annotations

from tests.support.gitops import Health, Json

BEING_DELETED, NOT_SEEN = "being deleted", "declared anew"
PROGRESS_OF_CLUSTER = """
    CreatingPods PodsNotReady AwaitingAddresses GatewayNotReady GrowingVolumes RollingOut RolloutWaits
    CreatingPartitions UnderReplicated PartitionsLeaderless ScalingDown Restoring RestoreWaits Restored VolumeStranded
    ReshardPreparing ReshardFencing ReshardCopying ReshardOpening ReshardAborting
"""
FAULTS_OF_CLUSTER = """
    NameConflict PodsRefused ForeignCluster InvalidSettings GrowthRefused GatewayRefused RolloutHalted ScaleDownBlocked
    RestoreRefused RestoreFailed RestoredLogMissing TooFewPods LayoutConflict InvalidSpec
"""
TABLE: dict[str, dict[Health, str]] = {
    "CoordinatorCluster": {
        "Healthy": "AllPartitionsLed NoTopic",
        "Progressing": PROGRESS_OF_CLUSTER,
        "Suspended": "Suspended Hibernated RolloutPaused",
        "Degraded": FAULTS_OF_CLUSTER,
    },
    "OffsetsTopic": {
        "Healthy": "AllPartitionsLed",
        "Progressing": PROGRESS_OF_CLUSTER + "ClusterNotFound NoTopic WaitsForReshard",
        "Suspended": "Suspended Hibernated",
        "Degraded": "DuplicateTopic TooFewPods LayoutConflict ScaleDownBlocked RestoredLogMissing InvalidSpec",
    },
    "OffsetsPartition": {
        "Healthy": "Led Retired",
        "Progressing": "Pending Electing TopicNotFound ClusterNotFound",
        "Suspended": "Hibernated",
        "Degraded": "Leaderless Stalled",
    },
    "MusterUser": {
        "Healthy": "InForce",
        "Progressing": "Giving ClusterNotFound PasswordNotKept",
        "Degraded": "UsersFromFiles NameTaken InvalidAcls InvalidSpec",
    },
    "ConsumerGroup": {
        "Healthy": "AtMuster AtKafka",
        "Progressing": "ClusterNotFound GroupMoving MoveWaits MoveRefused MoveGivenUp",
        "Degraded": "GroupDeclaredTwice NoWayBack GroupNotMovable InvalidSpec",
    },
    "MusterBackup": {
        "Healthy": "BackedUp",
        "Progressing": "ClusterNotFound BackupWaits BackingUp",
        "Degraded": "BackupFailed BackupDamaged NoBackupStore InvalidSpec",
    },
}
"""The expected health by `Ready.reason`; of a partition by `status.state`, or by the reason where that is a word here.
"""
FOR_A_PERSON = {"Stalled", "Damaged", "CrdOutdated"}
COMES_WITH_THE_SYNC = {"ClusterNotFound", "TopicNotFound", "PasswordNotKept"}
NOT_ALL = {"Reconciling", "Degraded", "not Mirrored"}


def state_and_health(shown: Json) -> tuple[str, Health]:
    """The state's name, and what has to be said of it. Raises LookupError for a reason that the table does not have."""
    kind, status = shown["kind"], shown.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    if "deletionTimestamp" in shown["metadata"]:
        return f"{kind}: {BEING_DELETED}", "Progressing"
    if ready.get("observedGeneration", 0) != shown["metadata"]["generation"]:
        return f"{kind}: {NOT_SEEN}", "Progressing"
    reason = ready["reason"]
    health = _in_table(kind, reason)
    leaderless = status.get("state") == "Leaderless" and reason != "Hibernated"  # by any reason, Electing among them
    if kind == "OffsetsPartition" and (health is None or reason == "Led" or leaderless):
        reason = status.get("state", "Pending")  # the default, which the operator does not write
        health = _in_table(kind, reason)
    if health is None:
        raise LookupError(f"{kind} with the reason {reason}, which {__name__} does not have")
    marks = {each for each in FOR_A_PERSON | {"Reconciling", "Degraded", "CertificatesDue"} if _is(conditions, each)}
    if conditions.get("Mirrored", {}).get("status") == "False":
        marks.add("not Mirrored")
    name = f"{kind}: {', '.join((reason, *sorted(marks - {'Reconciling'})))}"
    return name, _with_marks(shown, reason, health, marks)


def _with_marks(shown: Json, reason: str, health: Health, marks: set[str]) -> Health:
    if reason in COMES_WITH_THE_SYNC or (shown["kind"], reason) == ("OffsetsTopic", "NoTopic"):
        return "Progressing"
    if marks & FOR_A_PERSON:
        return "Degraded"
    if (shown["kind"], reason) == ("CoordinatorCluster", "NoTopic"):
        return "Healthy" if shown["status"].get("readyPods", 0) >= shown["spec"]["pods"] else "Progressing"
    if health != "Healthy" or reason == "Retired":
        return health
    if "CertificatesDue" in marks:
        return "Degraded"
    return "Progressing" if marks & NOT_ALL else "Healthy"


def _in_table(kind: str, reason: str) -> Health | None:
    return next((health for health, reasons in TABLE[kind].items() if reason in reasons.split()), None)


def _is(conditions: Json, name: str) -> bool:
    return bool(conditions.get(name, {}).get("status") == "True")


def contradiction(shown: Json, health: Health) -> str:
    """The objection of a cluster's numbers and spec to its health; "" if there is none."""
    if shown["kind"] != "CoordinatorCluster":
        return ""
    spec, status = shown["spec"], shown.get("status", {})
    if health == "Healthy" and (status.get("readyPods", 0) < spec["pods"] or status.get("leaderless", 0)):
        return f"healthy, with {status.get('readyPods')} of {spec['pods']} pods, {status.get('leaderless')} leaderless"
    declared = spec.get("suspend") or spec.get("hibernate") or spec.get("rollout", {}).get("paused")
    return "suspended, and nobody has asked for that" if health == "Suspended" and not declared else ""
