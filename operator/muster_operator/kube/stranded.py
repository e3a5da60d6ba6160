"""Volumes that only a node can use which is gone: their pods wait for ever (ADR 39).

A volume says by its node affinity which nodes can use it. A node is gone if there is no such object, or if a person, or
the cloud's controller, has tainted it as out of service. A node that is not ready is neither: it may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.manifests import ARCHIVE, CLAIM, CLUSTER_LABEL
from muster_operator.kube.pod_info import is_made_by
from muster_operator.plan.observation import StrandedVolume
from muster_operator.store.port import ClusterKey, NotFoundError, StoreError

log = structlog.get_logger(__name__)

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint: the node is shut down, and nothing of it runs (KEP-2268)."""

KEYS_OF_A_NODE = ("hostname", "node", "nodename")
"""Ends of labels that tell one node from another: kubernetes.io/hostname, and those of storage systems whose volumes
are on a node, such as topology.topolvm.io/node and openebs.io/nodename. No node strands a volume of a zone."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The volumes that were found for these pods (uids). `since`: when a claim of a pod was first found stranded."""

    pods: tuple[str, ...]
    at: float
    volumes: tuple[StrandedVolume, ...]
    since: dict[tuple[tuple[str, str], ...], float]


class StrandedVolumes:
    """Remembers the stranded volumes of each cluster. Where no pod waits for a node, nothing is read."""

    def __init__(self, client: KubeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[ClusterKey, _Known] = {}
        self._unreadable: set[ClusterKey] = set()

    def volumes(self, key: ClusterKey) -> tuple[StrandedVolume, ...]:
        """The volumes as they were found last; asks nobody."""
        known, now = self._known.get(key), self._clock()
        if known is None:
            return ()
        return tuple(replace(each, for_s=now - known.since[each.claims]) for each in known.volumes)

    def waiting(self) -> tuple[ClusterKey, ...]:
        """The clusters of which a pod waits for a node."""
        return tuple(self._known)

    def forget(self, key: ClusterKey) -> None:
        """Look anew."""
        self._known.pop(key, None)

    async def look(self, key: ClusterKey, pods: Iterable[Json]) -> bool:
        """Look at the pods of the cluster, at most every LOOK_EVERY_S. Returns whether there is news.

        An API server that does not answer, or gives the right to no node or volume, is asked again later.
        """
        waiting = [raw for raw in pods if _waits(raw, key)]
        known, now = self._known.get(key), self._clock()
        if not waiting:
            return self._known.pop(key, None) is not None
        uids = tuple(sorted(raw["metadata"]["uid"] for raw in waiting))
        if known is not None and known.pods == uids and now - known.at < LOOK_EVERY_S:
            return False
        before = known or _Known((), now, (), {})
        try:
            found = await self._find(key, waiting)
            self._unreadable.discard(key)
        except StoreError as error:
            if key not in self._unreadable:  # once until it works again: an operator of one namespace never may
                log.warning("stranded_volumes_not_known", key=str(key), error=str(error))
            self._unreadable.add(key)
            found = before.volumes
        since = {each.claims: before.since.get(each.claims, now) for each in found}
        self._known[key] = _Known(uids, now, found, since)
        return found != before.volumes

    async def replace(self, key: ClusterKey, volume: StrandedVolume, pods: Iterable[Json]) -> bool:
        """Deletes its claims and its pod if it is stranded at this moment. Returns whether that was done. Raises
        StoreError.

        The claims go first: the StatefulSet controller makes one for a pod that waits for a claim, but it would give a
        new pod the old one.
        """
        waiting = [raw for raw in pods if _waits(raw, key) and raw["metadata"]["uid"] == volume.uid]
        if all(each.claims != volume.claims for each in await self._find(key, waiting)):
            self.forget(key)
            return False
        path = f"/api/v1/namespaces/{key.namespace}"
        for name, uid in volume.claims:
            await self._client.delete(f"{path}/persistentvolumeclaims/{name}", uid)
        await self._client.delete(f"{path}/pods/{volume.pod}", volume.uid)
        self.forget(key)
        return True

    async def _find(self, key: ClusterKey, waiting: Sequence[Json]) -> tuple[StrandedVolume, ...]:
        path = f"/api/v1/namespaces/{key.namespace}/persistentvolumeclaims"
        listed = await self._client.list_all(path, label_selector=f"{CLUSTER_LABEL}={key.name}")
        claims = {each["metadata"]["name"]: each for each in listed["items"]}
        found = []
        for raw in waiting:
            meta = raw["metadata"]
            stranded = {}
            for name in (f"{CLAIM}-{meta['name']}", f"{ARCHIVE}-{meta['name']}"):
                claim = claims.get(name)
                if claim is None or "deletionTimestamp" in claim["metadata"]:
                    continue
                if why := await self._why(claim["spec"].get("volumeName", "")):
                    stranded[name, claim["metadata"]["uid"]] = why
            if stranded:
                found.append(StrandedVolume(meta["name"], meta["uid"], (*stranded,), next(iter(stranded.values()))))
        return tuple(sorted(found, key=lambda each: each.pod))

    async def _why(self, volume: str) -> str:
        """The reason why no node can use the volume; "" if one can, or a node that is to come might."""
        if not volume:
            return ""
        try:
            raw = await self._client.get(f"/api/v1/persistentvolumes/{volume}")
        except NotFoundError:
            return ""
        if not (places := places_of(raw)):
            return ""
        nodes = (await self._client.list_all("/api/v1/nodes"))["items"]
        there = [node for node in nodes if any(_is_of(node, *place) for place in places)]
        if not all(_is_out_of_service(node) for node in there):
            return ""
        names = ", ".join(sorted({name for _, values in places for name in values}))
        return f"only node {names} can use it, which {'is out of service' if there else 'does not exist any more'}"


def places_of(volume: Json) -> tuple[tuple[str, frozenset[str]], ...]:
    """(label of a node, values) of the nodes that can use the volume; empty if it is not bound to single nodes."""
    terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    found = [next(_of_nodes(term), None) for term in terms]
    return tuple(each for each in found if each is not None) if all(found) else ()


def _of_nodes(term: Json) -> Iterator[tuple[str, frozenset[str]]]:
    for each in (*term.get("matchFields", ()), *term.get("matchExpressions", ())):
        is_name = each["key"] == "metadata.name" or each["key"].rpartition("/")[2] in KEYS_OF_A_NODE
        if is_name and each["operator"] == "In":
            yield each["key"], frozenset(each["values"])


def _is_of(node: Json, label: str, values: frozenset[str]) -> bool:
    """Judges by the node's label, or by its name: a node that has just joined has no label of a storage system yet."""
    meta = node["metadata"]
    return meta["name"] in values or meta.get("labels", {}).get(label) in values


def _is_out_of_service(node: Json) -> bool:
    return any(each["key"] == OUT_OF_SERVICE for each in node.get("spec", {}).get("taints", ()))


def _waits(raw: Json, key: ClusterKey) -> bool:
    """True if a pod that the StatefulSet has made has no node, and the scheduler has said that none takes it."""
    if raw["spec"].get("nodeName") or "deletionTimestamp" in raw["metadata"] or not is_made_by(raw, key.name, ""):
        return False
    conditions = raw.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("PodScheduled", "False") for each in conditions)
