"""The StatefulSets of the clusters as the operator has seen them, and the revision of each one's present template."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from muster_operator.kube.cache import Cache, Name
from muster_operator.kube.client import Json
from muster_operator.kube.pod_info import cluster_of
from muster_operator.store.port import ClusterKey


class StatefulSets:
    """Fed by lists and watch events, in any order."""

    def __init__(self) -> None:
        self._cache: Cache[Json] = Cache(cluster_of)
        self._revisions: dict[ClusterKey, str] = {}

    def get(self, key: ClusterKey) -> Json | None:
        """The StatefulSet of a cluster."""
        return self._cache.get(_name(key))

    def revision(self, key: ClusterKey) -> str:
        """The revision of the template that pods are made of, as the controller said last; "": it said nothing."""
        return self._revisions.get(key, "")

    def is_older(self, raw: Json) -> bool:
        """True if a newer StatefulSet than this one is known."""
        return int(raw["metadata"]["resourceVersion"]) < self._cache.version(_name(cluster_of(raw)))

    def take(self, event: str | None, raw: Json) -> bool:
        """Take a watch event. Whether there is news: another object, or the controller has seen a change of it."""
        key, version = cluster_of(raw), raw["metadata"]["resourceVersion"]
        before = self.get(key)
        taken = (
            self._cache.remove(_name(key), version) if event == "DELETED" else self._cache.put(_name(key), version, raw)
        )
        return taken and self._has_changed(key, before)

    def replace(self, listed: Json) -> Collection[ClusterKey]:
        """Take a full list, which is right about everything that is not newer: also about what is gone, and about an
        older one of a store that was restored. The clusters of which there is news.
        """
        own = [raw for raw in listed["items"] if is_own(raw)]
        keys = {cluster_of(raw) for raw in (*self._cache.values(), *own)}
        before = {key: self.get(key) for key in sorted(keys)}
        found = {_name(cluster_of(raw)): (raw["metadata"]["resourceVersion"], raw) for raw in own}
        self._cache.replace(found, listed["metadata"]["resourceVersion"])
        return [key for key, raw in before.items() if self._has_changed(key, raw)]

    def _has_changed(self, key: ClusterKey, before: Json | None) -> bool:
        now, known = self.get(key), self._revisions.get(key, "")
        if now is None:
            return before is not None
        status: dict[str, Any] = now.get("status", {})
        if status.get("observedGeneration", 0) >= now["metadata"]["generation"]:
            self._revisions[key] = status.get("updateRevision", "")
        if before is None or before["metadata"]["uid"] != now["metadata"]["uid"] or known != self.revision(key):
            return True
        return bool(before.get("status", {}).get("observedGeneration") != status.get("observedGeneration"))


def is_own(raw: Json) -> bool:
    """True if a StatefulSet with our label has the name of its cluster."""
    return bool(raw["metadata"]["name"] == cluster_of(raw).name)


def _name(key: ClusterKey) -> Name:
    return key.namespace, key.name
