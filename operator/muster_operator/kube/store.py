"""The store port over the Kubernetes API.

Reads come from caches that a full list fills and watch events keep warm; every answer to a write of ours goes into them
too, so that `observe` shows at least our own writes. Which epoch is issued to which pod is compared and swapped in the
ledger of the topic, everything else on OffsetsPartition.status, which follows the ledger; the status of clusters is
applied server-side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from muster_operator.api.conditions import Condition, ConditionType, Reason, with_condition
from muster_operator.api.durations import format_time
from muster_operator.api.models import (
    CoordinatorCluster,
    CoordinatorClusterStatus,
    OffsetsPartition,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    Resource,
)
from muster_operator.kube.ahead import Ahead, issued_by, only_issues
from muster_operator.kube.cache import Cache, Name
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.events import EventRecorder, noteworthy
from muster_operator.kube.ledger import Issued, Ledgers
from muster_operator.kube.objects import collection_path, decode, new_partition, status_body, status_path
from muster_operator.store.port import ClusterKey, ClusterRecords, ConflictError, NotFoundError, Notify, StoreError

__all__ = ["RESOURCES", "KubeStore"]

log = structlog.get_logger(__name__)

RESOURCES: tuple[type[Resource], ...] = (CoordinatorCluster, OffsetsTopic, OffsetsPartition)

CREATES_IN_PARALLEL = 16
STATUSES_IN_PARALLEL = 4
"""Statuses of partitions under way. More would not be over sooner, and would take the processors from the pods."""
FOLLOW_AFTER_S = 6.0
"""A status that is behind its ledger for so long is written; mostly the election's success is recorded before."""
FOLLOW_EVERY_S = 0.02
"""Between two of them: groups move to other pods at the same time."""

T = TypeVar("T", bound=Resource)


class KubeStore:
    """See `muster_operator.store.port.Store`. `token` gives the transitions of the Lease that this process holds."""

    def __init__(
        self,
        client: KubeClient,
        token: Callable[[], int],
        namespace: str | None = None,
        events: EventRecorder | None = None,
    ) -> None:
        self._client = client
        self._token = token
        self._namespace = namespace
        self._events = events
        self._clusters: Cache[CoordinatorCluster] = Cache(lambda cluster: cluster.metadata.namespace)
        self._topics: Cache[OffsetsTopic] = Cache(lambda topic: (topic.metadata.namespace, topic.spec.cluster_ref.name))
        self._partitions: Cache[OffsetsPartition] = Cache(
            lambda partition: (partition.metadata.namespace, partition.spec.topic_ref.name), self._view
        )
        self._ledgers = Ledgers(client, self._view_anew)
        self._ahead = Ahead(time.monotonic)
        self._statuses = asyncio.Semaphore(STATUSES_IN_PARALLEL)
        self._notify: list[Notify] = []
        self._background: set[asyncio.Task[None]] = set()

    # Feeding the caches

    async def load(self) -> None:
        """List everything. Needed once before `observe`; repeated, it repairs what a broken watch missed."""
        for resource in RESOURCES:
            listed = await self._client.list_all(collection_path(resource, self._namespace))
            self._replace(resource, listed)
        for key in self._known_keys():
            for notify in self._notify:
                notify(key)

    async def load_ledgers(self) -> None:
        """Read what was issued and is not on the partitions' statuses yet. Needed whenever this process begins to act:
        another one may have acted before. Raises StoreError."""
        topics = list(self._topics.values())
        await self._ledgers.load(topics)
        for topic in topics:
            self._view_anew(topic)

    async def follow_ledgers(self) -> None:
        """Until it is cancelled: write statuses that are behind."""
        while True:
            await asyncio.sleep(FOLLOW_AFTER_S / 4)
            for name in self._ahead.since(FOLLOW_AFTER_S):
                partition = self._partitions.get(name)
                if partition is None:
                    self._ahead.forget(name)
                    continue
                try:
                    await self._swap_status(OffsetsPartition, partition, partition.status)
                except ConflictError:
                    pass  # the watch will bring what is there, or has brought it
                except StoreError as error:
                    log.warning("status_not_written", name=name[1], error=str(error))
                await asyncio.sleep(FOLLOW_EVERY_S)

    def _view(self, name: Name, partition: OffsetsPartition) -> OffsetsPartition:
        return self._ahead.view(name, partition, self._entry(partition))

    def _entry(self, partition: OffsetsPartition) -> Issued | None:
        topic = self._topic_of(partition)
        return None if topic is None else self._ledgers.entries(topic).get(partition.spec.index)

    def _topic_of(self, partition: OffsetsPartition) -> OffsetsTopic | None:
        return self._topics.get((partition.metadata.namespace, partition.spec.topic_ref.name))

    def _view_anew(self, topic: OffsetsTopic) -> None:
        for seen in self._partitions.indexed((topic.metadata.namespace, topic.metadata.name)):
            self._view_one_anew(seen)

    def _view_one_anew(self, seen: OffsetsPartition) -> None:
        name = (seen.metadata.namespace, seen.metadata.name)
        value = self._view(name, self._ahead.object(name, seen))
        if value != seen:
            self._partitions.amend(name, value)
            self._tell(value)

    def deliver(self, plural: str, event: str | None, raw: Json) -> None:
        """Take a watch event: ADDED, MODIFIED, DELETED, or None for an object that is listed."""
        resource = next(each for each in RESOURCES if each.plural == plural)
        name, version = _identity(raw)
        cache = self._cache(resource)
        value = None if event == "DELETED" else self._decode(resource, raw)
        before = cache.get(name)
        if value is None:
            if cache.remove(name, version):
                self._tell(before)
        elif cache.put(name, version, value):
            self._tell(value)

    def resource_version(self, resource: type[T], name: Name) -> int:
        """How new the object in the cache is; -1 when there is none."""
        return self._cache(resource).version(name)

    def _replace(self, resource: type[T], listed: Json) -> None:
        decoded: dict[Name, tuple[str, T]] = {}
        for raw in listed["items"]:
            value = self._decode(resource, raw)
            if value is not None:
                name, version = _identity(raw)
                decoded[name] = (version, value)
        self._cache(resource).replace(decoded, listed["metadata"]["resourceVersion"])

    def _decode(self, resource: type[T], raw: Json) -> T | None:
        try:
            return decode(resource, raw)
        except msgspec.ValidationError as error:
            self._report_invalid(resource, raw, str(error))
            return None

    def _cache(self, resource: type[T]) -> Cache[T]:
        caches: dict[type[Any], Cache[Any]] = {
            CoordinatorCluster: self._clusters,
            OffsetsTopic: self._topics,
            OffsetsPartition: self._partitions,
        }
        return caches[resource]

    def _keys_of(self, value: Resource) -> tuple[ClusterKey, ...]:
        match value:
            case CoordinatorCluster(metadata=meta):
                return (ClusterKey(meta.namespace, meta.name),)
            case OffsetsTopic(metadata=meta):
                # A topic that comes or goes changes who looks after its partitions.
                return (ClusterKey(meta.namespace, value.spec.cluster_ref.name), ClusterKey(meta.namespace, ""))
            case OffsetsPartition(metadata=meta):
                topic = self._topics.get((meta.namespace, value.spec.topic_ref.name))
                return (ClusterKey(meta.namespace, "" if topic is None else topic.spec.cluster_ref.name),)

    def _tell(self, value: Resource | None) -> None:
        for key in () if value is None else self._keys_of(value):
            for notify in self._notify:
                notify(key)

    # The port

    def watch(self, notify: Notify) -> None:
        """See the port. Keys that exist now come at once, if they are loaded."""
        self._notify.append(notify)
        for key in self._known_keys():
            notify(key)

    def unwatch(self) -> None:
        """Forget every `notify`: whoever called `watch` no longer acts."""
        self._notify.clear()

    async def fencing_token(self) -> int:
        """Transitions of the Lease."""
        return self._token()

    async def clusters(self) -> tuple[ClusterKey, ...]:
        """See the port."""
        return self._known_keys()

    def _known_keys(self) -> tuple[ClusterKey, ...]:
        values: list[Resource] = [*self._clusters.values(), *self._topics.values(), *self._partitions.values()]
        # The empty name stands for partitions without a topic; a topic alone is no reason to look for them.
        keys = {self._keys_of(value)[0] for value in values}
        return tuple(sorted(keys))

    async def observe(self, key: ClusterKey) -> ClusterRecords:
        """See the port. Answers from memory."""
        if key.name == "":
            return ClusterRecords(partitions=self._orphans(key.namespace))
        topics = sorted(
            (topic for topic in self._topics.indexed(tuple(key)) if topic.metadata.deletion_timestamp is None),
            key=lambda topic: (topic.metadata.creation_timestamp, topic.metadata.name),
        )
        partitions = [
            partition
            for topic in topics
            for partition in sorted(
                self._partitions.indexed((key.namespace, topic.metadata.name)), key=lambda each: each.spec.index
            )
            if partition.metadata.deletion_timestamp is None
        ]
        cluster = self._clusters.get((key.namespace, key.name))
        if cluster is not None and cluster.metadata.deletion_timestamp is not None:
            cluster = None
        return ClusterRecords(cluster, tuple(topics), tuple(partitions))

    def _orphans(self, namespace: str) -> tuple[OffsetsPartition, ...]:
        found = [
            partition
            for partition in self._partitions.values()
            if partition.metadata.namespace == namespace
            and partition.metadata.deletion_timestamp is None
            and self._topics.get((namespace, partition.spec.topic_ref.name)) is None
        ]
        return tuple(sorted(found, key=lambda each: (each.spec.topic_ref.name, each.spec.index)))

    async def create_partitions(self, topic: OffsetsTopic, indexes: Sequence[int]) -> None:
        """See the port."""
        path = collection_path(OffsetsPartition, topic.metadata.namespace)
        limit = asyncio.Semaphore(CREATES_IN_PARALLEL)

        async def create(index: int) -> None:
            async with limit:
                try:
                    self._take(OffsetsPartition, await self._client.create(path, new_partition(topic, index)))
                except ConflictError:
                    pass  # it is there already: a watch event brings it, if it is not in the cache yet

        await asyncio.gather(*(create(index) for index in indexes))

    async def record_leadership(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> OffsetsPartition:
        """See the port. An epoch is issued by the ledger of the topic; if nothing else is new that is all, and the
        status follows. Otherwise it is replaced under the resourceVersion that was seen."""
        topic = self._topic_of(seen)
        try:
            if await self._issue(topic, seen, status) and only_issues(seen.status, status):
                return self._record_ahead(seen, status)
            async with self._statuses:
                after = await self._swap_status(OffsetsPartition, seen, status)
        except StoreError:
            current = self._partitions.get((seen.metadata.namespace, seen.metadata.name))
            if current is not None:
                self._view_one_anew(current)  # the epoch may have been issued nevertheless
            raise
        self._tell_of_removals(seen, status)
        return after

    async def _issue(self, topic: OffsetsTopic | None, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> bool:
        """Whether the ledger says now what the status will."""
        issued, before = issued_by(status), issued_by(seen.status)
        if not self._is_current(seen) or topic is None or issued == before:
            return False
        await self._ledgers.issue(topic, seen.spec.index, before, issued)
        return self._is_current(seen)

    def _record_ahead(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> OffsetsPartition:
        name = (seen.metadata.namespace, seen.metadata.name)
        after = self._ahead.record(name, seen, status)
        self._partitions.amend(name, after)
        self._tell(after)
        self._tell_people(OffsetsPartition, seen, status.conditions)
        return after

    def _is_current(self, seen: OffsetsPartition) -> bool:
        """False: there is none, as the API server will say too. Raises ConflictError when it is another one by now."""
        name = (seen.metadata.namespace, seen.metadata.name)
        current = self._partitions.get(name)
        if current is None:
            return False
        if current.metadata.resource_version != seen.metadata.resource_version:
            raise ConflictError(f"offsetspartition {name[1]} has changed since it was observed")
        return True

    async def write_cluster_status(self, seen: CoordinatorCluster, status: CoordinatorClusterStatus) -> None:
        """See the port: server-side apply."""
        meta = seen.metadata
        body = status_body(CoordinatorCluster, meta, status, swap=False)
        path = status_path(CoordinatorCluster, meta.namespace, meta.name)
        self._take(CoordinatorCluster, await self._guarded(seen, self._client.apply(path, body)))
        self._tell_people(CoordinatorCluster, seen, status.conditions)

    async def write_topic_status(self, seen: OffsetsTopic, status: OffsetsTopicStatus) -> None:
        """See the port: the status is replaced under the resourceVersion that was seen."""
        await self._swap_status(OffsetsTopic, seen, status)

    async def _swap_status(self, resource: type[T], seen: T, status: OffsetsPartitionStatus | OffsetsTopicStatus) -> T:
        meta = seen.metadata
        body = status_body(resource, meta, status, swap=True)
        path = status_path(resource, meta.namespace, meta.name)
        after = self._take(resource, await self._guarded(seen, self._client.replace(path, body)))
        self._tell_people(resource, seen, status.conditions)
        return after

    def _tell_people(self, resource: type[T], seen: T, conditions: tuple[Condition, ...]) -> None:
        condition = noteworthy(seen.status.conditions, conditions)
        if condition is not None and self._events is not None:
            self._events.put(resource.__name__, seen.metadata, condition)

    def _tell_of_removals(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> None:
        """Logs that were to be deleted, and are gone; not those that are in use again."""
        counted = (*status.left, *status.replicas, *status.learners)
        for each in seen.status.left:
            if each not in counted and self._events is not None:
                text = f"log {each.log_id} on pod {each.pod}, which left the set, is deleted"
                done = Condition(ConditionType.READY, "True", Reason.REPLICA_REMOVED, text)
                self._events.put(OffsetsPartition.__name__, seen.metadata, done)

    async def _guarded(self, seen: T, request: Coroutine[Any, Any, Json]) -> Json:
        """The answer; an object that turns out to be gone leaves the cache at once."""
        try:
            return await request
        except NotFoundError:
            meta = seen.metadata
            self._cache(type(seen)).remove((meta.namespace, meta.name), meta.resource_version)
            raise

    def _take(self, resource: type[T], raw: Json) -> T:
        """Decode the answer to a write, remember it and tell of it: its watch event will bring nothing new."""
        value = decode(resource, raw)
        name, version = _identity(raw)
        if self._cache(resource).put(name, version, value):
            self._tell(value)
        return value

    # Objects that do not decode

    def _report_invalid(self, resource: type[T], raw: Json, error: str) -> None:
        name = "/".join(_identity(raw)[0])
        log.warning("object_invalid", kind=resource.__name__, name=name, error=error)
        task = asyncio.get_running_loop().create_task(self._write_invalid(resource, raw, error))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _write_invalid(self, resource: type[T], raw: Json, error: str) -> None:
        """Say on the object itself that it is not understood. Best effort: it is said again at the next list."""
        meta = raw["metadata"]
        status = dict(raw.get("status") or {})
        generation = meta.get("generation", 0)
        message = f"the operator does not understand this object: {error}; correct it or delete it"
        condition = Condition(
            ConditionType.READY, "False", Reason.INVALID_SPEC, message, observed_generation=generation
        )
        before = msgspec.convert(status.get("conditions", []), tuple[Condition, ...])
        after = with_condition(before, condition, format_time(time.time()))
        if after == before:
            return
        body = {**raw, "status": {**status, "conditions": msgspec.to_builtins(after)}}
        try:
            await self._client.replace(status_path(resource, meta["namespace"], meta["name"]), body)
        except StoreError as failure:
            log.warning("status_not_written", name=meta["name"], error=str(failure))


def _identity(raw: Json) -> tuple[Name, str]:
    meta = raw["metadata"]
    return (meta["namespace"], meta["name"]), meta["resourceVersion"]
