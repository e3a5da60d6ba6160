"""The store port over the Kubernetes API.

Reads come from caches that a full list fills and watch events keep warm. The answers to this operator's own writes go
into them too, so that `observe` shows at least these writes. The statuses of topics, which hold the record of
leaderships, and of partitions are compared and swapped by resourceVersion; those of clusters are applied server-side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import structlog
from msgspec.structs import replace

from muster_operator.api.conditions import Condition, ConditionType, Reason, without_condition
from muster_operator.api.models import (
    ConsumerGroup,
    ConsumerGroupStatus,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    MusterBackup,
    MusterBackupStatus,
    MusterUser,
    MusterUserStatus,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    Resource,
)
from muster_operator.clock import SYSTEM_CLOCK, Clock
from muster_operator.kube.client import Json, KubeClient, is_refused
from muster_operator.kube.dropped import Dropped
from muster_operator.kube.events import EventRecorder, noteworthy, rebalance_news
from muster_operator.kube.objects import collection_path, new_partition, object_path, status_body, status_path
from muster_operator.kube.objects_seen import RESOURCES, ObjectsSeen
from muster_operator.store.port import (
    ClusterKey,
    ClusterRecords,
    ConflictError,
    NotFoundError,
    Notify,
    StoreError,
    Unwatch,
)

log = structlog.get_logger(__name__)

CREATES_IN_PARALLEL = 16
"""Requests under way when the partitions of a topic are created."""

T = TypeVar("T", bound=Resource)
SwappedStatus: TypeAlias = (
    OffsetsPartitionStatus | OffsetsTopicStatus | MusterUserStatus | ConsumerGroupStatus | MusterBackupStatus
)
"""The status of a kind that only operators write, under the resourceVersion that was seen."""


class KubeStore:
    """See `muster_operator.store.port.Store`. `token`: transitions of the Lease of a namespace that we hold."""

    def __init__(
        self,
        client: KubeClient,
        token: Callable[[str], int],
        namespace: str | None = None,
        events: EventRecorder | None = None,
        clock: Clock = SYSTEM_CLOCK,
        list_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`list_again` is called when `load` is to be repeated soon."""
        self._client = client
        self._token = token
        self._namespace = namespace
        self._events = events
        self._dropped = Dropped()
        self.seen = ObjectsSeen(client, clock, list_again)
        self.lacking = asyncio.Event()
        """Set while a kind could not be listed: it is not there, or there is no right to it. A watch that begins then
        leaves it out for good."""
        self._lacking: dict[type[Resource], None] = {}

    async def load(self) -> None:
        """List everything. Needed once before `observe`; repeated, it repairs what a broken watch missed."""
        for resource in RESOURCES:
            try:
                await self._list(resource)
            except StoreError as error:
                if is_refused(error):
                    self._lacking[resource] = None
                    self.lacking.set()
                # An operator that is newer than its definitions or rights leads partitions on, and takes no user away.
                # It starts no move either, and makes no backup.
                if resource not in (MusterUser, ConsumerGroup, MusterBackup) or not is_refused(error):
                    raise
                log.warning("kind_not_known", kind=resource.__name__, error=str(error))
        self.seen.tell_all()

    async def look_for_lacking(self) -> bool:
        """Tries again to list the kinds that could not be listed. Returns whether one could, so that its objects are
        known."""
        came = False
        for resource in tuple(self._lacking):
            try:
                await self._list(resource)
            except StoreError:
                continue
            del self._lacking[resource]
            came = True
            log.info("kind_came", kind=resource.__name__)
        if not self._lacking:
            self.lacking.clear()
        if came:
            self.seen.tell_all()
        return came

    async def _list(self, resource: type[Resource]) -> None:
        self.seen.replace(resource, await self._client.list_all(collection_path(resource, self._namespace)))

    # The port

    def watch(self, notify: Notify) -> Unwatch:
        """See the port. Keys that exist now come at once, if they are loaded."""
        return self.seen.watch(notify)

    async def fencing_token(self, key: ClusterKey) -> int:
        """See the port: transitions of the Lease."""
        return self._token(key.namespace)

    async def clusters(self) -> tuple[ClusterKey, ...]:
        """See the port."""
        return self.seen.keys()

    async def observe(self, key: ClusterKey) -> ClusterRecords:
        """See the port. Answers from memory."""
        return self.seen.records(key)

    async def create_partitions(self, topic: OffsetsTopic, indexes: Sequence[int]) -> None:
        """See the port."""
        path = collection_path(OffsetsPartition, topic.metadata.namespace)
        limit = asyncio.Semaphore(CREATES_IN_PARALLEL)

        async def create(index: int) -> None:
            async with limit:
                try:
                    created = await self._client.create(path, new_partition(topic, index))
                except ConflictError:
                    return  # it is there already: a watch event brings it, if it is not in the cache yet
                self.seen.take(OffsetsPartition, created)

        await asyncio.gather(*(create(index) for index in indexes))

    async def record_leadership(self, seen: OffsetsTopic, leaderships: Mapping[str, str]) -> OffsetsTopic:
        """See the port."""
        return await self._swap_status(OffsetsTopic, seen, replace(seen.status, leaderships=dict(leaderships)))

    async def write_partition_status(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> None:
        """See the port. Sends no request if the object is known to have changed since it was `seen`."""
        if self.seen.has_changed(seen):
            raise ConflictError(f"OffsetsPartition {seen.metadata.name} has changed since it was observed")
        if self._dropped.is_in_vain(seen, status):
            return
        self._dropped.note(status, await self._swap_status(OffsetsPartition, seen, status))
        before = seen.status
        known = before.conditions
        if (before.leader, before.epoch) != (status.leader, status.epoch):
            known = without_condition(known, ConditionType.READY)  # another leader is news, if the last one led too
        self._tell_people(OffsetsPartition, seen, known, status.conditions)
        self._tell_of_removals(seen, status)

    async def write_topic_status(self, seen: OffsetsTopic, status: OffsetsTopicStatus) -> None:
        """See the port."""
        await self._write_status(OffsetsTopic, seen, status)

    async def write_cluster_status(self, seen: CoordinatorCluster, status: CoordinatorClusterStatus) -> None:
        """See the port: server-side apply."""
        if self._dropped.is_in_vain(seen, status):
            return
        meta = seen.metadata
        body = status_body(CoordinatorCluster, meta, status, swap=False)
        path = status_path(CoordinatorCluster, meta.namespace, meta.name)
        answer = await self._guarded(seen, self._client.apply(path, body))
        self._dropped.note(status, self.seen.take(CoordinatorCluster, answer))
        self._tell_people(CoordinatorCluster, seen, seen.status.conditions, status.conditions)

    async def write_user_status(self, seen: MusterUser, status: MusterUserStatus) -> None:
        """See the port."""
        await self._write_status(MusterUser, seen, status)

    async def write_group_status(self, seen: ConsumerGroup, status: ConsumerGroupStatus) -> None:
        """See the port."""
        await self._write_status(ConsumerGroup, seen, status)

    async def write_backup_status(self, seen: MusterBackup, status: MusterBackupStatus) -> None:
        """See the port."""
        await self._write_status(MusterBackup, seen, status)

    async def _write_status(self, resource: type[T], seen: T, status: SwappedStatus) -> None:
        """Replace the status, and tell people what is new of it."""
        if self._dropped.is_in_vain(seen, status):
            return
        written = await self._swap_status(resource, seen, status)
        self._dropped.note(status, written)
        self._tell_people(resource, seen, seen.status.conditions, status.conditions)

    async def _swap_status(self, resource: type[T], seen: T, status: SwappedStatus) -> T:
        """Replace the status under the resourceVersion that was seen. After a conflict the object is read anew, so that
        the next plan is made from what is there.
        """
        meta = seen.metadata
        body = status_body(resource, meta, status, swap=True)
        path = status_path(resource, meta.namespace, meta.name)
        try:
            return self.seen.take(resource, await self._guarded(seen, self._client.replace(path, body)))
        except ConflictError:
            await self._read_anew(resource, meta)
            raise

    async def _read_anew(self, resource: type[T], meta: ObjectMeta) -> None:
        """A read shows an older version than was known before it only if an older store was restored meanwhile. Then
        everything is listed anew: a cache that waits for newer versions would keep what nobody has any more.
        """
        known = self.seen.resource_version(resource, (meta.namespace, meta.name))
        raw = await self._client.get(object_path(resource, meta.namespace, meta.name))
        if int(raw["metadata"]["resourceVersion"]) < known:
            log.warning("store_was_restored", kind=resource.__name__, name=meta.name, known=known)
            await self.load()
        else:
            self.seen.take(resource, raw)

    async def _guarded(self, seen: T, request: Coroutine[Any, Any, Json]) -> Json:
        """The answer; an object that turns out to be gone leaves the cache at once."""
        try:
            return await request
        except NotFoundError:
            self.seen.gone(seen)
            raise

    # Events

    def _tell_people(
        self, resource: type[T], seen: T, before: tuple[Condition, ...], after: tuple[Condition, ...]
    ) -> None:
        for condition in (*noteworthy(before, after), rebalance_news(before, after)):
            if condition is not None and self._events is not None:
                self._events.put(resource.__name__, seen.metadata, condition)

    def _tell_of_removals(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> None:
        """Posts an Event for each log that was to be deleted and is gone; none for one that is in use again."""
        counted = (*status.left, *status.replicas, *status.learners)
        for each in seen.status.left:
            if each not in counted and self._events is not None:
                text = f"log {each.log_id} on pod {each.pod}, which left the set, is deleted"
                done = Condition(ConditionType.READY, "True", Reason.REPLICA_REMOVED, text)
                self._events.put(OffsetsPartition.__name__, seen.metadata, done)
