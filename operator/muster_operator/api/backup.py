"""Backups of a cluster: what is declared in it, and the MusterBackup, which asks for one now."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from muster_operator.api.listener_security import SecretName
from muster_operator.api.meta import ClusterRef, Conditions, Duration, Generation, ObjectMeta, rules
from muster_operator.api.pod_template import Resources

BACKUP_NAME_LIMIT = 48
"""The Job of a MusterBackup is called NAME-muster-backup."""

_ENDPOINT = r"^https?://[^\s/]+/?$"


class S3Store(msgspec.Struct, frozen=True, rename="camel"):
    """A bucket of an S3-compatible object store."""

    bucket: Annotated[
        str, Meta(pattern=r"^[a-z0-9][-a-z0-9.]*$", min_length=3, max_length=63, description="Name of the bucket.")
    ]
    prefix: Annotated[
        Annotated[str, Meta(pattern=r"^[-A-Za-z0-9_.]+(/[-A-Za-z0-9_.]+)*$", max_length=512)] | None,
        Meta(description="What the names of all objects begin with; NAMESPACE/NAME of the cluster if absent."),
    ] = None
    endpoint: Annotated[
        Annotated[str, Meta(pattern=_ENDPOINT, max_length=512)] | None,
        Meta(description="URL of the object store; that of AWS if absent."),
    ] = None
    region: Annotated[str, Meta(min_length=1, max_length=64, description="Region of the bucket.")] = "us-east-1"
    credentials_secret: Annotated[
        SecretName | None,
        Meta(
            description="Secret in this namespace with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. If absent, those"
            " of the role of the pod (serviceAccountName) or of its node."
        ),
    ] = None


class BackupStore(msgspec.Struct, frozen=True, rename="camel"):
    """The store of backups: one of the two."""

    s3: S3Store | None = None
    claim: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)] | None,
        Meta(description="PersistentVolumeClaim in this namespace, whose volume is not one of the cluster's."),
    ] = None
    directory: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_.]*$", max_length=253)] | None,
        Meta(description="Directory in the volume of the claim; the name of the cluster if absent."),
    ] = None


STORE_RULES = rules(
    ("has(self.s3) != has(self.claim)", "store needs one of s3 and claim"),
    ("has(self.claim) || !has(self.directory)", "directory is in the volume of claim"),
)


JobImage = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Meta(description="Image of the Jobs, with the command muster. If absent, the one that the operator brings."),
]
JobResources = Annotated[Resources, Meta(description="Compute resources of the Jobs' container, as in core/v1.")]
JOB_RESOURCES = Resources({"cpu": "100m", "memory": "256Mi"})
JobServiceAccount = Annotated[
    Annotated[str, Meta(min_length=1, max_length=253)] | None,
    Meta(description="ServiceAccount of the Jobs, if the object store knows it by that. They use no Kubernetes API."),
]


class Backups(msgspec.Struct, frozen=True, rename="camel"):
    """Backups of this cluster, made by Jobs: on a schedule, and for each MusterBackup."""

    store: Annotated[BackupStore, Meta(extra_json_schema=STORE_RULES)]
    schedule: Annotated[
        Annotated[str, Meta(pattern=r"^\S+( +\S+){4}$", max_length=128)] | None,
        Meta(
            description="When a backup is made, in the syntax of cron: minute, hour, day of the month, month, day of"
            ' the week, such as "17 * * * *". A time that was missed is made up for once. If absent, only MusterBackups'
            " are carried out."
        ),
    ] = None
    time_zone: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="IANA name of the time zone of schedule, such as Europe/Berlin.",
            extra_json_schema=rules(
                (
                    "timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",
                    "no IANA time zone has this name; one is Europe/Berlin",
                )
            ),
        ),
    ] = "UTC"
    keep: Annotated[int, Meta(ge=1, le=10_000, description="How many of the newest backups stay.")] = 7
    keep_days: Annotated[int, Meta(ge=0, le=36_500, description="Backups that are younger stay as well.")] = 0
    max_age: Annotated[
        Duration,
        Meta(description="The condition BackupTooOld says when the newest backup is older. 0s: never."),
    ] = "25h"
    verify_every: Annotated[
        Duration,
        Meta(
            description="A backup on schedule is read again, and compared with its checksums, when that was last done"
            " this long ago. 0s: never."
        ),
    ] = "24h"
    mib_per_second: Annotated[int, Meta(ge=1, le=100_000, description="Read from pods at most.")] = 32
    image: JobImage = None
    resources: JobResources = JOB_RESOURCES
    service_account_name: JobServiceAccount = None


class DeclaredSite(msgspec.Struct, frozen=True, rename="camel"):
    """The site that this cluster is. Of several sites one answers clients: the one that the newest claim in the store
    names. `muster backup take-over` writes claims. Pods only read the store, which is the one that the sites share.
    """

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
            max_length=63,
            description="Name of the site, which no other one has had.",
        ),
    ]
    store: Annotated[BackupStore, Meta(extra_json_schema=STORE_RULES)]


class BackupsStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the backups."""

    last_scheduled: Annotated[str, Meta(description="The last time of the schedule for which one was begun.")] = ""
    last_backup: Annotated[str, Meta(description="Id of the newest backup.")] = ""
    last_taken: Annotated[str, Meta(description="The moment that the newest backup shows.")] = ""
    last_bytes: Annotated[int, Meta(description="Size of the newest backup.")] = 0
    last_verified: Annotated[
        str, Meta(description="When a backup was last read again. What that was is in verifyProblem.")
    ] = ""
    verify_problem: Annotated[str, Meta(description="What is not as it was written; absent if all of it is.")] = ""
    last_error: Annotated[str, Meta(description="Why the last backup failed; absent if it did not.")] = ""
    last_finished: Annotated[str, Meta(description="When the last Job ended whose result is in here.")] = ""


class BackupPhase(StrEnum):
    """The progress of a MusterBackup."""

    PENDING = "Pending"
    """Its Job is still to be made."""
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"


class MusterBackupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A backup of one CoordinatorCluster now, into the store of its spec.backup. Nothing of it can be changed."""

    cluster_ref: ClusterRef
    verify: Annotated[bool, Meta(description="Read it again when it is made, and compare checksums.")] = False


class MusterBackupStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of the backup."""

    observed_generation: Generation = 0
    conditions: Conditions = ()
    phase: Annotated[BackupPhase, Meta(description="Pending, Running, Completed or Failed.")] = BackupPhase.PENDING
    job: Annotated[str, Meta(description="Name of the Job.")] = ""
    started: Annotated[str, Meta(description="When the Job was made.")] = ""
    finished: Annotated[str, Meta(description="When the Job ended.")] = ""
    backup: Annotated[str, Meta(description="Id of the backup, for `muster restore --backup`.")] = ""
    taken: Annotated[str, Meta(description="The moment that the backup shows: the cut.")] = ""
    bytes: Annotated[int, Meta(description="Size of the backup.")] = 0
    sent: Annotated[int, Meta(description="Bytes of it that the store did not have.")] = 0
    verified: Annotated[bool, Meta(description="It was read again.")] = False


class MusterBackup(msgspec.Struct, frozen=True, rename="camel"):
    """A backup of a cluster now. Deleted, it leaves the backup in the store."""

    plural: ClassVar[str] = "musterbackups"

    metadata: ObjectMeta
    spec: Annotated[
        MusterBackupSpec,
        Meta(extra_json_schema=rules(("self == oldSelf", "spec is immutable: make another MusterBackup"))),
    ]
    status: MusterBackupStatus = MusterBackupStatus()
