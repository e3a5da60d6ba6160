"""Condition types, reason codes and the rules by which conditions change (kstatus).

`Reconciling` and `Stalled` are there only while they are true, so a tool that waits for `Ready` (kubectl wait) and one
that follows kstatus (Argo CD, Flux) come to the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

ConditionStatus = Literal["True", "False", "Unknown"]


class ConditionType(StrEnum):
    """Types of conditions that the operator writes."""

    READY = "Ready"
    """All of the generation in observedGeneration is in force, on every pod and copy. Always there."""
    FULLY_REPLICATED = "FullyReplicated"
    """Every copy follows its leader. Always there."""
    DEGRADED = "Degraded"
    """Partitions are served by fewer copies than they have."""
    UPGRADE_AVAILABLE = "UpgradeAvailable"
    """The operator brings a newer image than status.image."""
    CRD_OUTDATED = "CrdOutdated"
    """The definitions are of another version, and may drop fields."""
    CERTIFICATES_DUE = "CertificatesDue"
    """Certificates cannot be renewed; those in force last a week or more."""
    MIRRORED = "Mirrored"
    """Pods can follow the groups of spec.upstream. It does not change Ready."""
    CLIENTS_SHARE_USER = "ClientsShareUser"
    """All clients of the gateway are one user for ACLs: set spec.gateway.muster.actForClients. It does not change
    Ready."""
    FENCED = "Fenced"
    """Pods answer no client, because of the claims of sites in their store. It does not change Ready."""
    BYPASSED = "Bypassed"
    """Clients use groups of this cluster's at the upstream itself. It does not change Ready."""
    WRITTEN_BACK = "WrittenBack"
    """Kafka gets the offsets of the group, which has moved here."""
    OFFSETS_RESET = "OffsetsReset"
    """The declared reset of the group was carried out."""
    BACKUP_TOO_OLD = "BackupTooOld"
    """The newest backup is older than spec.backup.maxAge."""
    BACKUP_FAILED = "BackupFailed"
    """The last backup was not made, or old ones could not be dropped."""
    VERIFY_FAILED = "VerifyFailed"
    """A backup is not as it was written."""
    RESTORED = "Restored"
    """The volumes were made from the backup of spec.restoreFrom."""
    REBALANCING = "Rebalancing"
    """Replicas move to pods with fewer, or wait for it."""
    RECONCILING = "Reconciling"
    """The operator gets there by itself. There only while it is true."""
    STALLED = "Stalled"
    """A person has to act; the message has the command. There only while it is true."""
    DAMAGED = "Damaged"
    """A pod found damage in the log of the partition, also if no client notices because another pod leads."""


class Reason(StrEnum):
    """Stable reason codes: condition reasons, events, log lines and metric labels all use these words."""

    NOT_SEEN = "NotSeen"
    """Schema default: no operator has looked at the object yet."""
    SUSPENDED = "Suspended"
    """spec.suspend is set: the operator observes, and changes nothing."""
    HIBERNATED = "Hibernated"
    """spec.hibernate is set: no pods run, and their volumes stay."""
    INVALID_SPEC = "InvalidSpec"
    """The stored object does not decode; an older schema let it in."""
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    """spec.clusterRef names a CoordinatorCluster that does not exist."""
    TOPIC_NOT_FOUND = "TopicNotFound"
    """spec.topicRef names an OffsetsTopic that does not exist."""
    DUPLICATE_TOPIC = "DuplicateTopic"
    """The cluster already has an older OffsetsTopic."""
    NO_TOPIC = "NoTopic"
    """A cluster without an OffsetsTopic: pods run, nothing to lead."""
    WAITS_FOR_RESHARD = "WaitsForReshard"
    """The topic was created during a re-shard of the other one, and is used when that is over."""
    CREATING_PODS = "CreatingPods"
    """The StatefulSet has not brought up every pod yet."""
    PODS_NOT_READY = "PodsNotReady"
    """Every partition is led, and a pod is not ready."""
    ROLLING_OUT = "RollingOut"
    """Pods run an older template than declared, and are replaced one at a time."""
    ROLLOUT_PAUSED = "RolloutPaused"
    """spec.rollout.paused is set: pods keep the template that they have. Failover goes on."""
    ROLLOUT_WAITS = "RolloutWaits"
    """spec.rollout.window is closed, or pods of another cluster are being replaced: pods keep the template that they
    have. Failover goes on."""
    ROLLOUT_HALTED = "RolloutHalted"
    """A pod of the declared template does not run, so no other pod is replaced."""
    INVALID_SETTINGS = "InvalidSettings"
    """spec.settings has what a pod would refuse: the template stays as it is."""
    NAME_CONFLICT = "NameConflict"
    """An object of the cluster's name belongs to somebody else, and is not touched."""
    CRD_OUTDATED = "CrdOutdated"
    """The API server has the definitions of another version of the operator, and drops fields that it lacks."""
    CERTIFICATES_NOT_KEPT = "CertificatesNotKept"
    """The operator cannot make, renew or read certificates; those in force are good until they end."""
    IN_FORCE = "InForce"
    """The user and its ACLs are in force on every pod that runs."""
    GIVING = "Giving"
    """The user is declared, and some pod does not have it yet."""
    USERS_FROM_FILES = "UsersFromFiles"
    """The cluster does not take users from MusterUsers: spec.access.musterUsers is not set."""
    NAME_TAKEN = "NameTaken"
    """An older MusterUser of the cluster has the same username."""
    INVALID_ACLS = "InvalidAcls"
    """A pod would refuse an ACL of the user; nothing of the user is in force."""
    PASSWORD_NOT_KEPT = "PasswordNotKept"
    """The Secret with the password cannot be read or written; a password that was in force before stays so."""
    PODS_REFUSED = "PodsRefused"
    """The API server does not take what the spec makes of the pods; those that run stay as they are."""
    AWAITING_ADDRESSES = "AwaitingAddresses"
    """Pods have no address yet for clients of a listener: a load balancer, or a node, is not there yet."""
    UPSTREAM_FOLLOWED = "UpstreamFollowed"
    """Every pod that answers can follow the upstream's groups."""
    UPSTREAM_NOT_FOLLOWED = "UpstreamNotFollowed"
    """A pod can follow nothing: the upstream does not answer, or has another number of partitions. Groups of Muster's
    are served all the same, but for offsets in transactions."""
    USED_AT_UPSTREAM = "UsedAtUpstream"
    """Clients use groups of this cluster's at the upstream itself: who comes here as well is served twice."""
    CLIENTS_SHARE_USER = "ClientsShareUser"
    """Clients of the gateway log in, and are all one user for the ACLs of this cluster: the gateway's own."""
    OTHER_SITE = "OtherSite"
    """Pods answer no client, because the claims in their store name another site, or could not be read for a lease."""
    GATEWAY_NOT_READY = "GatewayNotReady"
    """Every partition is led, and gateway pods are not ready: they start, or have found no broker of the upstream."""
    GATEWAY_REFUSED = "GatewayRefused"
    """An object of the gateway's name belongs to somebody else, or the API server does not take what the spec makes of
    the gateway. Pods serve on."""
    AT_KAFKA = "AtKafka"
    """The group is at Kafka, as declared."""
    AT_MUSTER = "AtMuster"
    """The group is at this cluster, as declared."""
    GROUP_MOVING = "GroupMoving"
    """The group is moving: its requests wait for some hundred milliseconds, its records do not."""
    MOVE_WAITS = "MoveWaits"
    """The group moves when gateways have their settings, and a pod leads its partition."""
    MOVE_REFUSED = "MoveRefused"
    """Something stands in the way of the move, and the message says what; the operator asks again."""
    MOVE_GIVEN_UP = "MoveGivenUp"
    """The move was in doubt, so the group is where it was; the operator tries again, later each time."""
    GROUP_NOT_MOVABLE = "GroupNotMovable"
    """spec.upstream.movableGroups of the cluster does not name the group."""
    NO_WAY_BACK = "NoWayBack"
    """The group is this cluster's for good (spec.upstream.servedGroups), and cannot go to Kafka."""
    GROUP_DECLARED_TWICE = "GroupDeclaredTwice"
    """An older ConsumerGroup of the cluster has the same group."""
    OFFSETS_WRITTEN = "OffsetsWritten"
    """Kafka gets the offsets of the group every few seconds, so that a cluster without Muster can start from them."""
    OFFSETS_NOT_WRITTEN = "OffsetsNotWritten"
    """Kafka does not get the offsets of the group now; the message says why. Its clients notice nothing."""
    RESET_WAITS = "ResetWaits"
    """A reset of the group's offsets is to be carried out. The message says what stands in the way; the operator asks
    again."""
    RESET_DONE = "ResetDone"
    """The reset was carried out; status.reset has the offsets of before and after. It is not carried out again."""
    RESET_SUPERSEDED = "ResetSuperseded"
    """Offsets were committed between the plan of the reset and its end, so that it may have been carried out or not.
    Nothing is written any more: another id has it done."""
    RESET_PAST = "ResetPast"
    """A reset with this id was dealt with before another one, and is not carried out again."""
    GROWING_VOLUMES = "GrowingVolumes"
    """Volumes get the declared size; the storage system, or a file system, is not there yet. Pods serve on."""
    GROWTH_REFUSED = "GrowthRefused"
    """The API server does not let a volume grow; pods serve on with the volumes that they have."""
    BACKUP_TOO_OLD = "BackupTooOld"
    """The newest backup is older than spec.backup.maxAge, or there is none for that time."""
    BACKUP_FAILED = "BackupFailed"
    """The last backup was not made or does not begin, or old ones could not be dropped; the message has the error."""
    BACKUP_DAMAGED = "BackupDamaged"
    """A backup was read again and is not as it was written; the message names the files."""
    INVALID_SCHEDULE = "InvalidSchedule"
    """spec.backup.schedule is none that cron knows."""
    NO_BACKUP_STORE = "NoBackupStore"
    """A MusterBackup of a cluster without spec.backup, which says where backups are kept."""
    BACKUP_WAITS = "BackupWaits"
    """The backup begins when all pods are up and lead their partitions, and no other backup runs."""
    BACKING_UP = "BackingUp"
    """The Job of the MusterBackup runs."""
    BACKED_UP = "BackedUp"
    """The backup is made."""
    RESTORING = "Restoring"
    """The volumes of a new cluster are made from a backup (spec.restoreFrom). Its pods start after that."""
    RESTORED = "Restored"
    """Every volume was made from the backup, and spec.restoreFrom does nothing any more."""
    RESTORE_WAITS = "RestoreWaits"
    """The restore begins, or goes on, when spec.suspend and spec.hibernate are taken back."""
    RESTORE_FAILED = "RestoreFailed"
    """A Job of the restore failed, with the error in the message, and is made again. No pod starts meanwhile."""
    RESTORE_REFUSED = "RestoreRefused"
    """The volumes cannot be made from the backup: something is there already, or the cluster is declared otherwise. No
    pod starts, and a person decides."""
    RESTORED_LOG_MISSING = "RestoredLogMissing"
    """A partition that the backup has, and no pod: it does not begin empty unless a person says so."""
    VOLUME_STRANDED = "VolumeStranded"
    """A pod waits for a volume that no node can use any more: it is given up, or a person has to decide."""
    UPGRADE_AVAILABLE = "UpgradeAvailable"
    """The operator brings another image than the one that the cluster was created with."""
    FULLY_REPLICATED = "FullyReplicated"
    """Every copy of every partition follows its leader."""
    UNDER_REPLICATED = "UnderReplicated"
    """Partitions have fewer or more copies than declared, or copies that do not follow their leader."""
    SCALING_DOWN = "ScalingDown"
    """Pods above spec.pods still hold replicas, which move first."""
    SCALE_DOWN_BLOCKED = "ScaleDownBlocked"
    """Pods above spec.pods hold replicas that can be nowhere else: a person has to change the one or the other."""
    MOVING_REPLICAS = "MovingReplicas"
    """spec.rebalance is Auto: replicas move from pods that hold more to pods that hold less."""
    REBALANCE_DEFERRED = "RebalanceDeferred"
    """spec.rebalance is Auto, and replicas are to move when nothing else goes on any more."""
    REBALANCED = "Rebalanced"
    """Event: every pod has its share of the replicas."""
    CREATING_PARTITIONS = "CreatingPartitions"
    """OffsetsPartitions of the topic are still to be created."""
    ALL_LED = "AllPartitionsLed"
    """All that is declared is so."""
    PARTITIONS_LEADERLESS = "PartitionsLeaderless"
    """Partitions are not led; the message has the most serious cause."""
    LED = "Led"
    """The leader is active in the recorded epoch."""
    PLACING = "Placing"
    """No replica has been chosen yet."""
    ELECTING = "Electing"
    """Leader and epoch are recorded, and the pod has not confirmed yet."""
    LOADING = "Loading"
    """The leader-to-be replays its log."""
    MOVING = "Moving"
    """The leader hands over to another replica that has caught up."""
    CHANGING_REPLICAS = "ChangingReplicas"
    """The set changes; majorities of the old and the new one count."""
    NEEDS_HIGHER_EPOCH = "NeedsHigherEpoch"
    """A replica takes nothing from the leader any more: it is elected again, in a higher epoch."""
    POD_DOWN = "PodDown"
    """The only pod that holds the log does not answer; the partition waits for it."""
    NO_MAJORITY = "NoMajority"
    """Fewer than a majority of the replicas can be reached."""
    LEADER_LIVES = "LeaderLives"
    """A majority of the replicas hears a leader that this operator does not."""
    BETTER_LOG = "BetterLog"
    """Another replica has the better log, and is elected instead."""
    SET_CONFLICT = "SetConflict"
    """The log names other replicas than the record; those of the log are recorded."""
    REPLICA_REMOVED = "ReplicaRemoved"
    """Event: a log that left its set is deleted."""
    DATA_LOSS_ALLOWED = "DataLossAllowed"
    """spec.allowDataLoss: the best log that can be reached is taken, without a majority."""
    TOO_FEW_PODS = "TooFewPods"
    """replicationFactor is above the number of pods."""
    STALE_EPOCH = "StaleEpoch"
    """A pod has promised a higher epoch; the next election goes above it."""
    CANNOT_WRITE = "CannotWrite"
    """The pod refuses to lead: disk full or I/O error."""
    LOG_DAMAGED = "LogDamaged"
    """The log refuses to serve; only a person can decide what happens to it."""
    LOG_LOST = "LogLost"
    """The recorded log id is not on the pod any more: its volume was lost or replaced."""
    ADOPTING = "Adopting"
    """The record is lost, and is taken from what the logs say as soon as a majority of them is there."""
    UNKNOWN_LOG = "UnknownLog"
    """A pod holds a used log of this partition that names no set, and no record says what it is."""
    TWO_HISTORIES = "TwoHistories"
    """The record is lost, and the logs tell two histories: a person has to choose one."""
    FOREIGN_CLUSTER = "ForeignCluster"
    """The volume of a pod belongs to another Kafka cluster."""
    LAYOUT_CONFLICT = "LayoutConflict"
    """The record is lost, and the volumes have another number of partitions than the topic declares."""
    LOAD_FAILED = "LoadFailed"
    """The pod could not replay the log; it is tried again in a higher epoch."""
    INDEX_OUT_OF_RANGE = "IndexOutOfRange"
    """An OffsetsPartition whose index the topic does not have."""
    RETIRED = "Retired"
    """An OffsetsPartition that a re-shard has replaced."""
    RESHARD_PREPARING = "ReshardPreparing"
    """The new partitions get their replicas and leaders; the old ones serve."""
    RESHARD_FENCING = "ReshardFencing"
    """The old partitions close."""
    RESHARD_COPYING = "ReshardCopying"
    """No client is served until the new partitions are filled, or the re-shard is taken back."""
    RESHARD_OPENING = "ReshardOpening"
    """The new partitions are complete, and open."""
    RESHARD_ABORTING = "ReshardAborting"
    """The re-shard is taken back: the old partitions open again."""
    DUPLICATE_INDEX = "DuplicateIndex"
    """Another OffsetsPartition of the topic has this index already."""
    DUPLICATE_LOG = "DuplicateLog"
    """Two pods have the log with the same log id: a copied volume."""


PLANNED = frozenset((Reason.MOVING, Reason.CHANGING_REPLICAS, Reason.NEEDS_HIGHER_EPOCH))
"""Elections that interrupt a leader that lives."""


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.Condition."""

    type: Annotated[str, Meta(max_length=316, description=f"One of {', '.join(ConditionType)}.")]
    status: Annotated[ConditionStatus, Meta(description="True, False or Unknown.")]
    reason: Annotated[str, Meta(min_length=1, max_length=1024, description="A stable code for programs.")]
    message: Annotated[str, Meta(max_length=32768, description="The state, and what to do about it, for a person.")] = (
        ""
    )
    last_transition_time: Annotated[
        str, Meta(description="When status last changed.", extra_json_schema={"format": "date-time"})
    ] = ""
    observed_generation: Annotated[int, Meta(ge=0, description="The metadata.generation that this is about.")] = 0


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of this type, or None."""
    return next((condition for condition in conditions if condition.type == type_), None)


def condition_status(conditions: Iterable[Condition], type_: str) -> ConditionStatus:
    """Its status; "Unknown" when there is no such condition."""
    found = find_condition(conditions, type_)
    return "Unknown" if found is None else found.status


def with_condition(conditions: tuple[Condition, ...], condition: Condition, now: str) -> tuple[Condition, ...]:
    """The conditions with this one added, or in place of the one with its type.

    lastTransitionTime becomes `now` (RFC 3339) only if the status differs from before: the result equals the input when
    nothing changed, so a converged status is not written again.
    """
    before = find_condition(conditions, condition.type)
    since = before.last_transition_time if before is not None and before.status == condition.status else now
    after = msgspec.structs.replace(condition, last_transition_time=since)
    if before is None:
        return (*conditions, after)
    return tuple(after if each.type == condition.type else each for each in conditions)


def without_condition(conditions: tuple[Condition, ...], type_: str) -> tuple[Condition, ...]:
    """The conditions without this type (kstatus: Reconciling and Stalled exist only while true)."""
    return tuple(condition for condition in conditions if condition.type != type_)
