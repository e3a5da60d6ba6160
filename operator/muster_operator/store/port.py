"""Store: the declared objects and their status, with compare-and-swap.

Errors:

    StoreError              the store, or the way to it, failed: the outcome is unknown; observe again
    +-- ConflictError       the object has changed since it was read: nothing was written; observe and plan again
    +-- NotFoundError       the object is gone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from muster_operator.api.models import (
    ConsumerGroup,
    ConsumerGroupStatus,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    MusterBackup,
    MusterBackupStatus,
    MusterUser,
    MusterUserStatus,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
)


class StoreError(Exception):
    """The store, or the way to it, failed."""


class ConflictError(StoreError):
    """A compare-and-swap lost: the object does not have the resourceVersion that was read any more."""


class NotFoundError(StoreError):
    """The object does not exist (any more)."""


class ClusterKey(NamedTuple):
    """The subject of one reconcile: all objects that refer to this CoordinatorCluster, whether it exists or not.

    The key with an empty name stands for the OffsetsPartitions of a namespace whose topic does not exist.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(cluster: CoordinatorCluster) -> ClusterKey:
    return ClusterKey(cluster.metadata.namespace, cluster.metadata.name)


@dataclass(frozen=True, slots=True)
class ClusterRecords:
    """The objects under one key.

    `topics` oldest first, then by name; `partitions` those of `topics`, by topic and index; `users` and
    `groups` by name (None: they cannot be read, which is another thing than that there are none);
    `backups` oldest first.
    Objects with a deletionTimestamp are left out. An object that does not decode is left out too; the store reports it
    on the object itself.
    """

    cluster: CoordinatorCluster | None = None
    topics: tuple[OffsetsTopic, ...] = ()
    partitions: tuple[OffsetsPartition, ...] = ()
    users: tuple[MusterUser, ...] | None = ()
    groups: tuple[ConsumerGroup, ...] | None = ()
    backups: tuple[MusterBackup, ...] = ()


Notify = Callable[[ClusterKey], None]
"""Something under this key changed. Called on the event loop's thread; must only enqueue."""

Unwatch = Callable[[], None]
"""Ends what `watch` began: the function that it was given is not called any more."""


class Store(Protocol):
    """All methods but `watch` raise StoreError. Every one can be repeated."""

    def watch(self, notify: Notify) -> Unwatch:
        """Call `notify` for every key that exists now and then for every change, own writes included."""

    async def fencing_token(self, key: ClusterKey) -> int:
        """A number that rises whenever another operator takes over what is under this key (transitions of the Lease of
        its namespace, or a counter of starts).
        """

    async def clusters(self) -> tuple[ClusterKey, ...]:
        """Every key that has objects."""

    async def observe(self, key: ClusterKey) -> ClusterRecords:
        """The present objects; at least as they were after the last write that this store object has returned from."""

    async def create_partitions(self, topic: OffsetsTopic, indexes: Sequence[int]) -> None:
        """Create the OffsetsPartitions of a topic, owned by it (deleted with it). Those that exist stay as they are."""

    async def record_leadership(self, seen: OffsetsTopic, leaderships: Mapping[str, str]) -> OffsetsTopic:
        """Compare-and-swap the record of leaderships in the status of the topic as it was `seen`; return the new topic.

        On return the write is durable. Raises ConflictError if the topic has another resourceVersion, NotFoundError if
        it is gone. Never retries: a caller that lost must plan anew from what is there, which `observe` shows by then.
        """

    async def write_partition_status(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> None:
        """Compare-and-swap the whole status. It shows what was decided. Raises as `record_leadership`."""

    async def write_cluster_status(self, seen: CoordinatorCluster, status: CoordinatorClusterStatus) -> None:
        """Set the status: derived from everything else, so the last writer wins. NotFoundError if it is gone."""

    async def write_topic_status(self, seen: OffsetsTopic, status: OffsetsTopicStatus) -> None:
        """Compare-and-swap, because it has the record, and how far a re-shard is. Raises as `record_leadership`."""

    async def write_user_status(self, seen: MusterUser, status: MusterUserStatus) -> None:
        """Compare-and-swap the whole status. It shows what is in force. Raises as `record_leadership`."""

    async def write_group_status(self, seen: ConsumerGroup, status: ConsumerGroupStatus) -> None:
        """Compare-and-swap the whole status. It shows where the group is. Raises as `record_leadership`."""

    async def write_backup_status(self, seen: MusterBackup, status: MusterBackupStatus) -> None:
        """Compare-and-swap the whole status. It shows how far it is. Raises as `record_leadership`."""
