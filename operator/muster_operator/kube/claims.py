"""The volumes of the pods grow with spec.storage.size, and their archives with spec.storage.archive.size.

A StatefulSet cannot change the template of its claims, so it keeps the size that it was made with; the claims, which
can be changed, get the declared size, also those that the StatefulSet makes later (ADR 29). Nothing ever shrinks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import structlog

from muster_operator.api.models import CoordinatorCluster, Storage
from muster_operator.api.quantities import parse_quantity
from muster_operator.kube.client import Json, KubeClient, KubeError
from muster_operator.kube.manifests import ARCHIVE, CLAIM, CLUSTER_LABEL, claims_of
from muster_operator.store.port import ClusterKey, StoreError, key_of
from muster_operator.store.workload import UNKNOWN

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 5.0
"""Volumes that are to grow are read this often, in seconds; so are the nodes of pods, and kinds that are not there."""

RESYNC_S = 300.0
"""Everything is read and applied again after this time, which repairs what no watch tells (claims)."""

REFUSALS = (400, 403, 422)
"""HTTP statuses of the API server that say: not like this."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """See `muster_operator.store.workload.WorkloadState`."""

    pods: int = UNKNOWN
    size: str = ""
    archive_size: str = ""
    growing: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class _Looked:
    """The result of a look at the claims of this declaration, and whether it is final."""

    cluster: CoordinatorCluster
    pods: tuple[str, ...]
    at: float
    volumes: Volumes
    settled: bool

    def is_about(self, cluster: CoordinatorCluster, pods: tuple[str, ...], now: float) -> bool:
        """True if what was seen still holds, so that nobody has to look again."""
        same = (_wanted(self.cluster), self.pods) == (_wanted(cluster), pods)
        return same and now - self.at < (RESYNC_S if self.settled else LOOK_EVERY_S)


class Claims:
    """Remembers the claims of each cluster."""

    def __init__(self, client: KubeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[ClusterKey, _Looked] = {}

    def volumes(self, key: ClusterKey) -> Volumes:
        """The volumes as they were found last; asks nobody."""
        known = self._known.get(key)
        return Volumes() if known is None else known.volumes

    def forget(self, key: ClusterKey) -> None:
        """The cluster is gone."""
        self._known.pop(key, None)

    def unsettled(self) -> tuple[ClusterKey, ...]:
        """The clusters whose claims were not all as declared when they were looked at last."""
        return tuple(key for key, known in self._known.items() if not known.settled)

    async def look(self, cluster: CoordinatorCluster, pods: tuple[str, ...]) -> bool:
        """Ask for the declared size where a claim has less, unless all was looked at a moment ago. `pods`: their uids,
        because a new pod may have a new volume. Returns whether there is news.

        An API server that does not answer is asked again later: nothing else waits for the size of a volume.
        """
        key = key_of(cluster)
        known, now = self._known.get(key), self._clock()
        if known is not None and known.is_about(cluster, pods, now):
            return False
        before = Volumes() if known is None else known.volumes
        try:
            volumes, settled = await self._find(cluster, key)
        except StoreError as error:
            log.warning("claims_not_known", key=str(key), error=str(error))
            volumes, settled = before, False
        self._known[key] = _Looked(cluster, pods, now, volumes, settled)
        return volumes != before

    async def _find(self, cluster: CoordinatorCluster, key: ClusterKey) -> tuple[Volumes, bool]:
        listed = await self._client.list_all(
            f"/api/v1/namespaces/{key.namespace}/persistentvolumeclaims", label_selector=f"{CLUSTER_LABEL}={key.name}"
        )
        claims = {each["metadata"]["name"]: each for each in listed["items"]}
        volumes, settled = Volumes(_pods_with_volumes(claims, key)), True
        for kind, storage in claims_of(cluster):
            names = [f"{kind}-{key.name}-{ordinal}" for ordinal in range(cluster.spec.pods)]
            here = [claims[name] for name in names if name in claims]
            bound = [claim for claim in here if _phase(claim) == "Bound"]
            refused = [why for claim in bound if (why := await self._grow(claim, storage.size))]
            late = [claim for claim in here if parse_quantity(_size(claim)) < parse_quantity(storage.size)]
            largest = max(map(_size, bound), key=parse_quantity, default="")
            volumes = replace(
                volumes,
                size=largest if kind == CLAIM else volumes.size,
                archive_size=largest if kind == ARCHIVE else "",
                growing=volumes.growing or (_growing(late, len(names), storage.size) if late and not refused else ""),
                refused=volumes.refused or (refused[0] if refused else ""),
            )
            settled = settled and len(bound) == len(names) and not late
        return volumes, settled

    async def _grow(self, claim: Json, size: str) -> str:
        """Ask for the declared size unless the claim asks for as much; why that is refused, "" if it is not."""
        meta = claim["metadata"]
        if parse_quantity(claim["spec"]["resources"]["requests"]["storage"]) >= parse_quantity(size):
            return ""
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            # Without the uid a claim that is gone would be created.
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}"
        try:
            await self._client.apply(path, body)
        except KubeError as error:
            if error.status not in REFUSALS:
                raise
            return _refusal(claim, error)
        log.info("volume_grows", claim=meta["name"], size=size)
        return ""


def _wanted(cluster: CoordinatorCluster) -> tuple[str, Storage, int]:
    return cluster.metadata.uid, cluster.spec.storage, cluster.spec.pods


def _pods_with_volumes(claims: Iterable[str], key: ClusterKey) -> int:
    """One more than the highest ordinal of a pod that has a volume."""
    own = (re.fullmatch(rf"{CLAIM}-{re.escape(key.name)}-(\d+)", name) for name in claims)
    return max((int(each[1]) + 1 for each in own if each is not None), default=0)


def _phase(claim: Json) -> str:
    return str(claim.get("status", {}).get("phase", ""))


def _size(claim: Json) -> str:
    """The size of the volume; while there is none, the size that it will have at first."""
    asked: str = claim["spec"]["resources"]["requests"]["storage"]
    return asked if _phase(claim) != "Bound" else str(claim["status"]["capacity"]["storage"])


def _growing(late: list[Json], pods: int, size: str) -> str:
    first = late[0]
    waits = "; ".join(_waits(first)) or "the storage system has not answered yet"
    return f"{pods - len(late)} of {pods} volumes have {size}; {first['metadata']['name']} has {_size(first)}: {waits}"


def _waits(claim: Json) -> Iterator[str]:
    if _phase(claim) != "Bound":
        yield "it has no volume yet"
    for each in claim["status"].get("conditions", ()):
        if each["status"] == "True":
            yield ": ".join(part for part in (each["type"], each.get("message", "")) if part)


def _refusal(claim: Json, error: KubeError) -> str:
    name = claim["spec"].get("storageClassName", "")
    return (
        f"{claim['metadata']['name']} stays at {_size(claim)}: {error}. Pods serve on with the volumes that they"
        f" have. If StorageClass {name} can grow volumes: kubectl patch storageclass {name} -p"
        " '{\"allowVolumeExpansion\":true}'; or set the size in spec.storage back"
    )
