"""The gateways of the clusters: their objects are applied, looked at, and deleted when none is declared any more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterSpec
from muster_operator.kube.applying import belongs_to, has_generation, in_the_way, is_as_applied, stamped
from muster_operator.kube.cache import Cache, take, take_list
from muster_operator.kube.claims import REFUSALS, RESYNC_S
from muster_operator.kube.client import Json, KubeClient, KubeError
from muster_operator.kube.gateway_manifests import (
    Moving,
    gateway_bootstrap,
    gateway_budget,
    gateway_deployment,
    gateway_name,
    gateway_service,
    moving_of,
)
from muster_operator.kube.manifests import bootstrap_service_name, with_present_template
from muster_operator.kube.pod_info import cluster_of
from muster_operator.store.port import ClusterKey, NotFoundError, key_of
from muster_operator.store.workload import GatewayState

DEPLOYMENTS = ("/apis/apps/v1", "deployments")
"""Group path and plural."""
NEVER = float("-inf")


@dataclass
class _Gateway:
    """The gateway that was applied last, or why it was not. `generation`: of the Deployment."""

    uid: str
    spec: CoordinatorClusterSpec
    moving: Moving
    at: float
    trouble: str = ""
    bootstrap: str = ""
    generation: int = 0
    objects: dict[str, Json] = field(default_factory=dict)
    """The objects that were applied, by kind."""


class Gateways:
    """`took_service` is given each Service that was applied. `tell`: there is news of a cluster."""

    def __init__(
        self,
        client: KubeClient,
        default_image: str,
        took_service: Callable[[Json], None],
        tell: Callable[[ClusterKey], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._default_image = default_image
        self._took_service = took_service
        self._tell = tell
        self._clock = clock
        self._deployments: Cache[Json] = Cache(cluster_of)
        self._known: dict[ClusterKey, _Gateway] = {}
        self._doubts: Counter[ClusterKey] = Counter()
        """Counts how often the applied objects became doubtful, also while they were being applied."""

    # Feeding the cache

    def replace(self, listed: Json) -> None:
        """Take a list of all Deployments with our label."""
        before = {cluster_of(raw) for raw in self._deployments.values()}
        take_list(self._deployments, listed)
        for key in before | {cluster_of(raw) for raw in self._deployments.values()}:
            self._look_at(key)

    def deliver(self, event: str | None, raw: Json) -> None:
        """Take a watch event of a Deployment."""
        if take(self._deployments, event, raw):
            self._look_at(cluster_of(raw))

    def doubt(self, key: ClusterKey) -> None:
        """Has the next `ensure` compare the objects that were applied: somebody may have changed them."""
        self._doubts[key] += 1
        if key in self._known:
            self._known[key].at = NEVER

    def wanted(self, key: ClusterKey, kind: str) -> Mapping[str, Json]:
        """The object of a kind that was applied last, by name."""
        known = self._known.get(key)
        manifest = None if known is None else known.objects.get(kind)
        return {} if manifest is None else {manifest["metadata"]["name"]: manifest}

    def _look_at(self, key: ClusterKey) -> None:
        known, live = self._known.get(key), self._deployment(key)
        if known is not None and not has_generation(live, known.generation, known.objects.get("Deployment")):
            self.doubt(key)
        self._tell(key)

    def _deployment(self, key: ClusterKey) -> Json | None:
        return self._deployments.get((key.namespace, gateway_name(key.name)))

    # What the workload asks

    def state(self, cluster: CoordinatorCluster) -> GatewayState | None:
        """The state that is in memory."""
        gateway = cluster.spec.gateway
        if gateway is None:
            return None
        key = key_of(cluster)
        known, live = self._known.get(key), self._deployment(key)
        if known is not None and known.trouble:
            return GatewayState(trouble=known.trouble)
        if known is None or live is None or not _as_asked(known.spec, cluster.spec):
            return GatewayState("the gateway's Deployment is not as declared yet", bootstrap=_bootstrap(known))
        upstream = cluster.spec.upstream
        if upstream is not None and known.moving.prefixes != upstream.movable_groups:
            waits = "the gateway gets spec.upstream.movableGroups when all pods have them"
            return GatewayState(waits, bootstrap=known.bootstrap)
        status = live.get("status", {})
        seen = status.get("observedGeneration", 0) >= known.generation
        ready = min(status.get("readyReplicas", 0), status.get("updatedReplicas", 0)) if seen else 0
        waits = f"{ready} of {gateway.replicas} gateway pods are ready" if ready < gateway.replicas or not seen else ""
        old = status.get("replicas", 0) - status.get("updatedReplicas", 0)
        if not waits and old > 0:
            waits = f"{old} gateway pods of an older template are still there"
        return GatewayState(waits, bootstrap=known.bootstrap)

    async def ensure(
        self, cluster: CoordinatorCluster, services: Iterable[Json], pods: Iterable[Json], *, secured: bool
    ) -> int:
        """Apply what is not as declared; how many objects were written. `services`: of the cluster, for their IP
        addresses. `pods`: of the cluster. `secured`: new ones have TLS. Raises StoreError."""
        key = key_of(cluster)
        if cluster.spec.gateway is None:
            return await self._remove(key, cluster)
        known, now, doubts = self._known.get(key), self._clock(), self._doubts[key]
        moving = moving_of(cluster, pods, self._deployment(key), new=secured)
        wanted = (cluster.metadata.uid, cluster.spec, moving)
        if known is not None and (known.uid, known.spec, known.moving) == wanted and now - known.at < RESYNC_S:
            return 0
        gateway = _Gateway(*wanted, now)
        try:
            written = await self._apply_all(cluster, gateway, services)
        except KubeError as error:
            if error.status not in REFUSALS:
                raise
            gateway.trouble = f"the API server refuses the gateway: {error}"
            written = 0
        if self._doubts[key] != doubts:
            gateway.at = NEVER
        self._known[key] = gateway
        if known is None or (known.trouble, known.bootstrap) != (gateway.trouble, gateway.bootstrap):
            self._tell(key)
        return written

    async def _apply_all(self, cluster: CoordinatorCluster, gateway: _Gateway, services: Iterable[Json]) -> int:
        first = (gateway_service(cluster), gateway_budget(cluster))
        deployment = f"/apis/apps/v1/namespaces/{cluster.metadata.namespace}/deployments"
        name, written = gateway_name(cluster.metadata.name), 0
        addresses = {each["metadata"]["name"]: each["spec"].get("clusterIP", "") for each in services}
        present = [await self._read(f"{path}/{name}") for path in (*(path for path, _ in first), deployment)]
        kinds = ("Service", "PodDisruptionBudget", "Deployment")
        for kind, live in zip(kinds, present, strict=True):
            if live is not None and not belongs_to(live["metadata"], cluster):
                gateway.trouble = in_the_way(cluster, kind, name)
                return 0
        for (path, manifest), live in zip(first, present[:2], strict=True):
            after, wrote = await self._apply(gateway, path, manifest, live)
            written += wrote
            if manifest["kind"] == "Service":
                self._took_service(after)
                addresses[name] = after["spec"].get("clusterIP", "")
        needed = (name, bootstrap_service_name(cluster.metadata.name))
        if cluster.spec.internal.advertise == "PodIP" and not all(map(addresses.get, needed)):
            gateway.at = NEVER  # the next look has them
            return written
        image = cluster.spec.image or self._default_image
        path, manifest = gateway_deployment(cluster, image, addresses, gateway.moving)
        known = self._known.get(key_of(cluster))
        applied = known.objects.get("Deployment") if known is not None and known.uid == gateway.uid else None
        manifest = with_present_template(manifest, present[-1], applied)
        live, wrote = await self._apply(gateway, path, manifest, present[-1])
        take(self._deployments, None, live)
        gateway.generation = int(live["metadata"].get("generation", 0))
        gateway.bootstrap = gateway_bootstrap(cluster, addresses)
        return written + wrote

    async def _apply(self, gateway: _Gateway, path: str, manifest: Json, live: Json | None) -> tuple[Json, int]:
        manifest = gateway.objects[manifest["kind"]] = stamped(manifest)
        if live is not None and is_as_applied(live, manifest):
            return live, 0
        return await self._client.apply(f"{path}/{manifest['metadata']['name']}", manifest), 1

    async def _remove(self, key: ClusterKey, cluster: CoordinatorCluster) -> int:
        """The Deployment last: as long as it is there, the others are looked for."""
        self._known.pop(key, None)
        live, written = self._deployment(key), 0
        if live is None or not belongs_to(live["metadata"], cluster):
            return 0
        name, namespace = gateway_name(key.name), key.namespace
        for path in (
            f"/api/v1/namespaces/{namespace}/services/{name}",
            f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}",
            f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
        ):
            found = await self._read(path)
            if found is not None and belongs_to(found["metadata"], cluster):
                await self._client.delete(path, found["metadata"]["uid"])
                written += 1
        return written

    async def _read(self, path: str) -> Json | None:
        try:
            return await self._client.get(path)
        except NotFoundError:
            return None


def _as_asked(applied: CoordinatorClusterSpec, declared: CoordinatorClusterSpec) -> bool:
    """True if the applied objects are of the declared gateway. Image and number of pods are the operator's
    decisions."""
    return (applied.gateway, applied.upstream, applied.listeners, applied.access, applied.security) == (
        declared.gateway,
        declared.upstream,
        declared.listeners,
        declared.access,
        declared.security,
    )


def _bootstrap(known: _Gateway | None) -> str:
    return known.bootstrap if known is not None else ""
