"""The custom resources that the operator has seen, by the keys under which they are reconciled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from muster_operator.api.models import (
    ConsumerGroup,
    CoordinatorCluster,
    MusterBackup,
    MusterUser,
    OffsetsPartition,
    OffsetsTopic,
    Resource,
)
from muster_operator.clock import Clock
from muster_operator.kube.cache import Cache, Name
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.invalid import InvalidObjects
from muster_operator.kube.objects import decode, identity
from muster_operator.store.port import ClusterKey, ClusterRecords, Notify, Unwatch

RESOURCES: tuple[type[Resource], ...] = (
    CoordinatorCluster,
    OffsetsTopic,
    OffsetsPartition,
    MusterUser,
    ConsumerGroup,
    MusterBackup,
)

T = TypeVar("T", bound=Resource)


class ObjectsSeen:
    """Fed by lists, watch events and the answers to writes, in any order; tells which keys have changed."""

    def __init__(self, client: KubeClient, clock: Clock, list_again: Callable[[], None]) -> None:
        """`list_again` is called when a list shows an older object than is known (see `deliver`)."""
        self._list_again = list_again
        self._invalid = InvalidObjects(client, clock)
        self._clusters: Cache[CoordinatorCluster] = Cache(lambda cluster: cluster.metadata.namespace)
        self._topics: Cache[OffsetsTopic] = Cache(lambda topic: (topic.metadata.namespace, topic.spec.cluster_ref.name))
        self._partitions: Cache[OffsetsPartition] = Cache(
            lambda partition: (partition.metadata.namespace, partition.spec.topic_ref.name)
        )
        self._users: Cache[MusterUser] = Cache(lambda user: (user.metadata.namespace, user.spec.cluster_ref.name))
        self._groups: Cache[ConsumerGroup] = Cache(
            lambda group: (group.metadata.namespace, group.spec.cluster_ref.name)
        )
        self._backups: Cache[MusterBackup] = Cache(
            lambda backup: (backup.metadata.namespace, backup.spec.cluster_ref.name)
        )
        self._listed: set[type[Any]] = set()
        self._notify: list[Notify] = []

    # What is fed

    def replace(self, resource: type[T], listed: Json) -> None:
        """Take a full list, without a notification (see `tell_all`)."""
        decoded: dict[Name, tuple[str, T]] = {}
        for raw in listed["items"]:
            value = self._decode(resource, raw)
            if value is not None:
                name, version = identity(raw)
                decoded[name] = (version, value)
        self._cache(resource).replace(decoded, listed["metadata"]["resourceVersion"])
        self._listed.add(resource)

    def deliver(self, plural: str, event: str | None, raw: Json) -> None:
        """Take a watch event: ADDED, MODIFIED, DELETED, or None for an object that is listed.

        A list begins when a watch has ended. If it shows an older object than is known, then either a write of this
        operator was faster, or an older store was restored: everything is to be listed anew (`replace`).
        """
        resource = next(each for each in RESOURCES if each.plural == plural)
        name, version = identity(raw)
        cache = self._cache(resource)
        if event is None and int(version) < cache.version(name):
            self._list_again()
            return
        value = None if event == "DELETED" else self._decode(resource, raw)
        before = cache.get(name)
        if value is None:
            if cache.remove(name, version):
                self._tell(before)
        elif cache.put(name, version, value):
            self._tell(value)

    def take(self, resource: type[T], raw: Json) -> T:
        """Take the API server's answer to a read or write of this operator, and return it decoded."""
        value = decode(resource, raw)
        name, version = identity(raw)
        if self._cache(resource).put(name, version, value):
            self._tell(value)
        return value

    def gone(self, seen: Resource) -> None:
        """Take it that this object, as it was seen, does not exist any more."""
        meta = seen.metadata
        self._cache(type(seen)).remove((meta.namespace, meta.name), meta.resource_version)

    def _decode(self, resource: type[T], raw: Json) -> T | None:
        try:
            return decode(resource, raw)
        except msgspec.ValidationError as error:
            self._invalid.report(resource, raw, str(error))
            return None

    def _cache(self, resource: type[T]) -> Cache[T]:
        caches: dict[type[Any], Cache[Any]] = {
            CoordinatorCluster: self._clusters,
            OffsetsTopic: self._topics,
            OffsetsPartition: self._partitions,
            MusterUser: self._users,
            ConsumerGroup: self._groups,
            MusterBackup: self._backups,
        }
        return caches[resource]

    # Who is told

    def watch(self, notify: Notify) -> Unwatch:
        """Call `notify` for all keys that exist now, and for each change from now on."""
        self._notify.append(notify)
        for key in self.keys():
            notify(key)
        return partial(self._notify.remove, notify)

    def tell_all(self) -> None:
        """Notify of every key."""
        for key in self.keys():
            for notify in self._notify:
                notify(key)

    def _tell(self, value: Resource | None) -> None:
        for key in () if value is None else self._keys_of(value):
            for notify in self._notify:
                notify(key)

    # What is there

    def resource_version(self, resource: type[T], name: Name) -> int:
        """The version of the object in the cache; -1 when there is none."""
        return self._cache(resource).version(name)

    def has_changed(self, seen: Resource) -> bool:
        """True if the cache has another version of the object by now."""
        meta = seen.metadata
        present = self._cache(type(seen)).get((meta.namespace, meta.name))
        return present is not None and present.metadata.resource_version != meta.resource_version

    def namespaces(self) -> frozenset[str]:
        """Those that have objects."""
        return frozenset(namespace for each in RESOURCES for namespace, _ in self._cache(each).names())

    def keys(self) -> tuple[ClusterKey, ...]:
        """Every key that has objects."""
        values: list[Resource] = [value for each in RESOURCES for value in self._cache(each).values()]
        # The empty name stands for partitions without a topic; a topic alone is no reason to look for them.
        return tuple(sorted({self._keys_of(value)[0] for value in values}))

    def _keys_of(self, value: Resource) -> tuple[ClusterKey, ...]:
        match value:
            case CoordinatorCluster(metadata=meta):
                return (ClusterKey(meta.namespace, meta.name),)
            case OffsetsTopic(metadata=meta):
                # A topic that comes or goes changes who looks after its partitions.
                return (ClusterKey(meta.namespace, value.spec.cluster_ref.name), ClusterKey(meta.namespace, ""))
            case MusterUser(metadata=meta) | ConsumerGroup(metadata=meta) | MusterBackup(metadata=meta):
                return (ClusterKey(meta.namespace, value.spec.cluster_ref.name),)
            case OffsetsPartition(metadata=meta):
                topic = self._topics.get((meta.namespace, value.spec.topic_ref.name))
                return (ClusterKey(meta.namespace, "" if topic is None else topic.spec.cluster_ref.name),)

    def records(self, key: ClusterKey) -> ClusterRecords:
        """The objects under a key, in the port's order, without those that are being deleted."""
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
        return ClusterRecords(
            cluster,
            tuple(topics),
            tuple(partitions),
            self._of(MusterUser, key),
            self._of(ConsumerGroup, key),
            tuple(sorted(self._of(MusterBackup, key) or (), key=lambda each: each.metadata.creation_timestamp)),
        )

    def _of(self, resource: type[T], key: ClusterKey) -> tuple[T, ...] | None:
        """The objects, ordered by name; None: they could not be listed."""
        if resource not in self._listed:
            return None
        there = (each for each in self._cache(resource).indexed(tuple(key)) if each.metadata.deletion_timestamp is None)
        return tuple(sorted(there, key=lambda each: each.metadata.name))

    def _orphans(self, namespace: str) -> tuple[OffsetsPartition, ...]:
        found = [
            partition
            for partition in self._partitions.values()
            if partition.metadata.namespace == namespace
            and partition.metadata.deletion_timestamp is None
            and self._topics.get((namespace, partition.spec.topic_ref.name)) is None
        ]
        return tuple(sorted(found, key=lambda each: (each.spec.topic_ref.name, each.spec.index)))
