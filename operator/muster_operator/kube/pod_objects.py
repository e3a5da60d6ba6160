"""The objects of a cluster's pods: StatefulSet, Services and disruption budget, applied as far as they are not as
declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterSpec
from muster_operator.kube.applying import belongs_to, has_generation, in_the_way, is_as_applied, stamped
from muster_operator.kube.claims import REFUSALS, RESYNC_S
from muster_operator.kube.client import Json, KubeClient, KubeError
from muster_operator.kube.external import external_services, surplus
from muster_operator.kube.manifests import manifests, may_be_secured, with_present_claims, with_present_template
from muster_operator.store.port import ClusterKey, NotFoundError, key_of


@dataclass(frozen=True, slots=True)
class _Applied:
    """The objects that were applied last for a cluster: the manifests of this object (its uid) and spec."""

    uid: str
    spec: CoordinatorClusterSpec
    keep_template: bool
    generation: int
    at: float
    objects: Mapping[tuple[str, str], Json]
    """The objects by kind and name."""


class PodObjects:
    """`secured`: pods get certificates, if those that run can hear them. `took_service` is called with each Service
    that was applied, `tell` when there is something new to say of a cluster."""

    def __init__(
        self,
        client: KubeClient,
        default_image: str,
        took_service: Callable[[Json], None],
        tell: Callable[[ClusterKey], None],
        clock: Callable[[], float],
        *,
        secured: bool,
    ) -> None:
        self._client = client
        self._default_image = default_image
        self._took_service = took_service
        self._tell = tell
        self._clock = clock
        self._secured = secured
        self._applied: dict[ClusterKey, _Applied] = {}
        self._made: dict[tuple[ClusterKey, str], Json] = {}
        """The StatefulSet of each cluster (and its uid) as it was applied last, whatever others have done to it since.
        """
        self._changed_by_others: Counter[ClusterKey] = Counter()
        """Counts how often the applied objects became doubtful, also while they were being applied."""
        self._conflicts: dict[ClusterKey, str] = {}
        self._refusals: dict[ClusterKey, str] = {}

    # What was applied

    def clusters(self) -> list[ClusterKey]:
        """The clusters whose objects were applied, and are not in doubt."""
        return [*self._applied]

    def wanted(self, key: ClusterKey, kind: str) -> Mapping[str, Json]:
        """The objects of a kind as they were applied last, by name."""
        applied = self._applied.get(key)
        objects = {} if applied is None else applied.objects
        return {name: manifest for (each, name), manifest in objects.items() if each == kind}

    def doubt(self, key: ClusterKey) -> None:
        """Has the next `ensure` compare the objects that were applied: somebody may have changed them."""
        self._applied.pop(key, None)
        self._changed_by_others[key] += 1

    def is_changed(self, key: ClusterKey, live: Json | None) -> bool:
        """True if the StatefulSet is not the one that was applied, or another writer has changed it."""
        applied = self._applied.get(key)
        return applied is not None and not has_generation(
            live, applied.generation, applied.objects.get(("StatefulSet", key.name))
        )

    def is_in_force(self, cluster: CoordinatorCluster, live: Json | None) -> bool:
        """True if Kubernetes acts on the declared template. Number of pods and pinned image are the operator's own
        decisions, and no change of the spec."""
        known = self._applied.get(key_of(cluster))
        if known is None or live is None:
            return False
        seen_by_controller = live.get("status", {}).get("observedGeneration", 0) >= known.generation
        same = (known.uid, _asked(known.spec, cluster.spec)) == (cluster.metadata.uid, _asked(cluster.spec))
        return same and seen_by_controller and not known.keep_template

    def conflict(self, key: ClusterKey) -> str:
        """The object of somebody else that is in the way; "": there is none."""
        return self._conflicts.get(key, "")

    def refusal(self, key: ClusterKey) -> str:
        """The refusal of the API server; "": there is none."""
        return self._refusals.get(key, "")

    # Applying

    async def ensure(
        self,
        cluster: CoordinatorCluster,
        services: Callable[[], Iterable[Json]],
        grow_volumes: Callable[[], Awaitable[None]],
        *,
        keep_template: bool,
    ) -> str:
        """Apply StatefulSet, Services and disruption budget, as far as they are not as declared. `services`: those of
        the cluster that are known. `grow_volumes` is called unless an object of somebody else is in the way.

        Objects of these names that belong to somebody else are found before anything is applied, and nothing is.
        """
        key, uid = key_of(cluster), cluster.metadata.uid
        known, changes = self._applied.get(key), self._changed_by_others[key]
        now = self._clock()
        wanted = (uid, cluster.spec, keep_template)
        if known is not None and (known.uid, known.spec, known.keep_template) == wanted and now - known.at < RESYNC_S:
            await grow_volumes()
            return f"StatefulSet {key.name} is as declared"
        objects = (*external_services(cluster), *self._manifests(cluster, secured=True))
        present = [await self._read(path, manifest) for path, manifest in objects]
        for (_, manifest), live in zip(objects, present, strict=True):
            if live is not None and not belongs_to(live["metadata"], cluster):
                why = in_the_way(cluster, manifest["kind"], manifest["metadata"]["name"])
                return self._stopped(key, self._conflicts, why)
        self._conflicts.pop(key, None)
        await grow_volumes()
        if not may_be_secured(present[-1]):
            objects = (*external_services(cluster), *self._manifests(cluster, secured=False))
        if keep_template and present[-1] is None:
            return f"no StatefulSet {key.name} with settings that a pod would refuse"
        generation, written = 0, 0
        applied: dict[tuple[str, str], Json] = {}
        for (path, manifest), live in zip(objects, present, strict=True):
            if manifest["kind"] == "StatefulSet":
                made = self._made.get((key, uid))
                manifest = with_present_claims(manifest, live) if live is not None else manifest
                manifest = with_present_template(manifest, live, made, keep=keep_template)
            manifest = stamped(manifest)
            applied[manifest["kind"], manifest["metadata"]["name"]] = manifest
            if live is None or not is_as_applied(live, manifest):
                try:
                    live = await self._client.apply(f"{path}/{manifest['metadata']['name']}", manifest)
                except KubeError as error:
                    if error.status not in REFUSALS:
                        raise
                    return self._stopped(key, self._refusals, f"the API server refuses it: {error}")
                written += 1
                if manifest["kind"] == "Service":
                    self._took_service(live)
            generation = int(live["metadata"].get("generation", 0))
        self._refusals.pop(key, None)
        written += await self._delete_surplus(key, cluster, services())
        # The StatefulSet comes last, so this is its generation.
        self._made = {each: made for each, made in self._made.items() if each[0] != key}
        self._made[key, uid] = applied["StatefulSet", key.name]
        if self._changed_by_others[key] == changes:
            self._applied[key] = _Applied(uid, cluster.spec, keep_template, generation, now, applied)
        if not written:
            return f"StatefulSet {key.name} is as declared"
        return f"applied StatefulSet {cluster.metadata.name} with {cluster.spec.pods} pods"

    def _manifests(self, cluster: CoordinatorCluster, *, secured: bool) -> tuple[tuple[str, Json], ...]:
        return manifests(cluster, self._default_image, secured=secured and self._secured)

    async def _read(self, path: str, manifest: Json) -> Json | None:
        try:
            return await self._client.get(f"{path}/{manifest['metadata']['name']}")
        except NotFoundError:
            return None

    async def _delete_surplus(self, key: ClusterKey, cluster: CoordinatorCluster, services: Iterable[Json]) -> int:
        """Delete our Services of pods and listeners that are not declared any more; how many."""
        ours = (each for each in services if belongs_to(each["metadata"], cluster))
        todo = [each["metadata"] for each in surplus(cluster, ours)]
        for meta in todo:
            await self._client.delete(f"/api/v1/namespaces/{key.namespace}/services/{meta['name']}", meta["uid"])
        return len(todo)

    def _stopped(self, key: ClusterKey, known: dict[ClusterKey, str], why: str) -> str:
        """Remember why nothing more was applied; the cluster is told when that is news."""
        if known.get(key) != why:
            known[key] = why
            self._tell(key)
        return why


def _asked(spec: CoordinatorClusterSpec, declared: CoordinatorClusterSpec | None = None) -> CoordinatorClusterSpec:
    """The spec without the number of pods, and without an image that nobody `declared`."""
    image = spec.image if declared is None or declared.image else None
    return msgspec.structs.replace(spec, pods=1, image=image)
