"""A cluster that begins from a backup: what is declared, what its volumes are noted with, and how far it is."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from muster_operator.api.backup import (
    JOB_RESOURCES,
    STORE_RULES,
    BackupStore,
    JobResources,
    JobServiceAccount,
)
from muster_operator.api.meta import Time, rules
from muster_operator.api.reshard import Layout
from muster_operator.api.restore_result import RestoreResult

LATEST = "latest"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+][0-9]{2}:[0-9]{2})$"
"""RFC 3339, in the spelling that Python's `datetime` reads as well."""


class RestoreFrom(msgspec.Struct, frozen=True, rename="camel"):
    """A backup that the volumes of a new cluster are made from, before its pods start for the first time. What is on a
    volume already is never overwritten. When it is done, this does nothing any more."""

    store: Annotated[BackupStore, Meta(extra_json_schema=STORE_RULES)]
    backup: Annotated[
        str,
        Meta(
            pattern=r"^(latest|[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6})$",
            description="Id of the backup, as status.backups.lastBackup of the cluster that is lost, a MusterBackup or"
            " `muster backup list` has it; or latest: the newest that the store has when the restore begins.",
        ),
    ] = LATEST
    at: Annotated[
        Annotated[str, Meta(pattern=_TIME, max_length=35, extra_json_schema={"format": "date-time"})] | None,
        Meta(
            description="A moment between two backups in the store, such as 2026-11-28T09:30:00Z, as `muster restore"
            " --at` has it. The restore takes the backup before it, and records of the next one up to it."
        ),
    ] = None
    image: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Image of the Jobs, with the command muster. If absent, the one that the operator brings. Where"
            " an OffsetsTopic declares another number of partitions than the backup has, the pipeline's image."
        ),
    ] = None
    resources: JobResources = JOB_RESOURCES
    service_account_name: JobServiceAccount = None


RESTORE_RULES = rules(("!has(self.at) || self.backup == 'latest'", "at finds its backups: leave backup out"))


class RestorePlan(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The decided restore, noted on each claim that the operator makes for it. `pods`: over how
    many the logs are spread. `transactions`: None: the backup has none. `at`: the declared moment, if
    `backup` is the id of one between two backups. `resharded`: the backup has other numbers of partitions than
    `offsets` and `transactions`, which are what is made of it."""

    backup: str
    taken_at_ms: int
    cluster_id: str
    bytes: int
    pods: int
    offsets: Layout
    transactions: Layout | None = None
    at: str | None = None
    resharded: bool = False

    @classmethod
    def of(
        cls,
        found: RestoreResult,
        pods: int,
        at: str | None = None,
        *,
        partitions: int = 0,
        transaction_partitions: int = 0,
    ) -> RestorePlan:
        """The plan for a backup that was read, with as many partitions (0: with those that it has)."""
        made = found.with_numbers(partitions, transaction_partitions)
        return cls(
            found.backup,
            found.taken_at_ms,
            found.cluster_id,
            found.bytes,
            pods,
            Layout(made.offsets_base, made.offsets_partitions),
            Layout(made.transaction_base, made.transaction_partitions) if made.transaction_partitions else None,
            at,
            made != found,
        )


class RestorePhase(StrEnum):
    """The progress of a restore."""

    READING = "Reading"
    """The backup is chosen, read and compared with its checksums."""
    RESTORING = "Restoring"
    """Volumes are made."""
    COMPLETED = "Completed"
    """Every volume was made, and pods may start."""


class RestoreStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the restore of spec.restoreFrom."""

    phase: Annotated[RestorePhase, Meta(description="Reading, Restoring or Completed. Pods start after that.")]
    backup: Annotated[
        str, Meta(description="Id of the backup; with spec.restoreFrom.at an id that is made of the two around it.")
    ] = ""
    taken: Annotated[Time, Meta(description="The moment that is restored: the cut, or spec.restoreFrom.at.")] = ""
    bytes: Annotated[int, Meta(description="Size of the backup.")] = 0
    pods: Annotated[int, Meta(description="Over how many pods its logs are spread.")] = 0
    volumes: Annotated[int, Meta(description="Volumes that are made.")] = 0
    offsets: Annotated[
        Layout | None, Meta(description="The OffsetsPartitions of the groups' topic whose logs are restored.")
    ] = None
    transactions: Annotated[Layout | None, Meta(description="Likewise, of the topic of transactions.")] = None
    last_error: Annotated[str, Meta(description="Why the last Job failed; absent if none did since.")] = ""

    def has(self, index: int) -> bool:
        """True if the log of the OffsetsPartition with this index is restored."""
        return any(layout is not None and index in layout.indexes for layout in (self.offsets, self.transactions))
