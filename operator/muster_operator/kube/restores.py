"""The restore of a cluster over the Kubernetes API: claims that it makes before the StatefulSet does, and Jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from muster_operator.api.models import CoordinatorCluster
from muster_operator.api.restore_result import RestoreResult
from muster_operator.kube.backup_manifests import BACKUP_LABEL, RESTORES
from muster_operator.kube.backups import KubeBackups, end_of, result_of
from muster_operator.kube.claims import REFUSALS
from muster_operator.kube.client import FIELD_MANAGER, Json, KubeClient, KubeError
from muster_operator.kube.manifests import CLAIM
from muster_operator.kube.pod_info import trouble_of
from muster_operator.kube.restore_manifests import CLAIM_UID, MADE, NAME, claim, made_of, plan_of, restore_job
from muster_operator.plan.actions import MakeClaim, MarkClaims, StartRestoreJob
from muster_operator.plan.restore_facts import OTHERS, OWN, RestoreClaim, RestoreFacts, RestoreJob
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError, key_of


class KubeRestores:
    """See `muster_operator.store.workload.Restores`."""

    def __init__(
        self,
        client: KubeClient,
        default_image: str,
        jobs: KubeBackups,
        stateful_set: Callable[[ClusterKey], Json | None],
        tell: Callable[[ClusterKey], None],
    ) -> None:
        """`jobs` knows the Jobs, `stateful_set` that of a cluster. `tell` is called when there is news of a cluster."""
        self._client = client
        self._default_image = default_image
        self._jobs = jobs
        self._stateful_set = stateful_set
        self._tell = tell
        self._facts: dict[ClusterKey, tuple[str, RestoreFacts]] = {}
        """The facts, with the uid of the cluster that they are about."""
        self._refusals: dict[ClusterKey, str] = {}

    def facts(self, cluster: CoordinatorCluster) -> RestoreFacts | None:
        """See the port."""
        uid, facts = self._facts.get(key_of(cluster), ("", None))
        return facts if uid == cluster.metadata.uid else None

    def waiting(self) -> tuple[ClusterKey, ...]:
        """The clusters that were looked at, some of which may wait for what nobody watches."""
        return tuple(self._facts)

    def forget(self, key: ClusterKey) -> None:
        """See the port."""
        self._facts.pop(key, None)
        self._refusals.pop(key, None)

    async def look(self, cluster: CoordinatorCluster) -> None:
        """See the port."""
        key = key_of(cluster)
        jobs = self._jobs.restoring(key)
        if jobs is None:
            return  # without the right to Jobs nothing can be restored, and nobody may believe that it was
        own = [each for each in jobs if _owner(each) == cluster.metadata.uid]
        pods = await self._pods_of(key) if own else {}
        live = self._stateful_set(key)
        facts = RestoreFacts(
            claims=tuple(sorted(await self._claims(key), key=lambda each: each.pod)),
            jobs=tuple(_seen(each, pods.get(each["metadata"]["name"], [])) for each in own),
            stateful_set="" if live is None else OWN if _owner(live) == cluster.metadata.uid else OTHERS,
            refusal=self._refusals.get(key, ""),
        )
        if self._facts.get(key) != (cluster.metadata.uid, facts):
            self._facts[key] = cluster.metadata.uid, facts
            self._tell(key)

    async def _claims(self, key: ClusterKey) -> Iterator[RestoreClaim]:
        """The claims, also such as have the name of a claim of the cluster and not its label: a StatefulSet would use
        them.
        """
        listed = await self._client.list_all(f"/api/v1/namespaces/{key.namespace}/persistentvolumeclaims")
        name = re.compile(rf"{CLAIM}-{re.escape(key.name)}-(\d+)")
        found = ((name.fullmatch(each["metadata"]["name"]), each) for each in listed["items"])
        return (_claim_seen(raw, int(match[1])) for match, raw in found if match is not None)

    async def _pods_of(self, key: ClusterKey) -> Mapping[str, list[Json]]:
        """The pods of each Job, by its name."""
        selector = f"{BACKUP_LABEL}={key.name},app.kubernetes.io/name={NAME}"
        listed = await self._client.list_all(f"/api/v1/namespaces/{key.namespace}/pods", label_selector=selector)
        pods: dict[str, list[Json]] = {}
        for each in listed["items"]:
            pods.setdefault(each["metadata"]["labels"].get("batch.kubernetes.io/job-name", ""), []).append(each)
        return pods

    async def carry_out(self, cluster: CoordinatorCluster, action: StartRestoreJob | MakeClaim | MarkClaims) -> str:
        """See the port. What the API server refuses is in the facts of the next look."""
        key = key_of(cluster)
        try:
            done = await self._carry_out(cluster, action)
        except KubeError as error:
            if error.status not in REFUSALS:
                raise
            self._refusals[key] = f"the API server refuses it: {error}"
            return self._refusals[key]
        self._refusals.pop(key, None)
        return done

    async def _carry_out(self, cluster: CoordinatorCluster, action: StartRestoreJob | MakeClaim | MarkClaims) -> str:
        namespace = cluster.metadata.namespace
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        if isinstance(action, MarkClaims):
            for each in action.claims:
                note = {"uid": each.uid, "annotations": {MADE: action.made.value}}
                try:
                    await self._client.merge(f"{claims}/{each.name}", {"metadata": note}, manager=FIELD_MANAGER)
                except (ConflictError, NotFoundError):
                    return f"claim {each.name} is not there any more"  # the next look finds what is
            return f"noted {', '.join(each.name for each in action.claims)}: {action.made.value}"
        if isinstance(action, MakeClaim):
            path, manifest = claims, claim(cluster, action.pod, action.plan)
        else:
            path, manifest = restore_job(cluster, action.pod, action.claim, action.plan, self._default_image)
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        try:
            made = await self._client.create(path, manifest)
        except ConflictError:
            return f"{name} is there"
        if isinstance(action, StartRestoreJob):
            self._jobs.deliver(None, made)
        return f"made {name}"


def _claim_seen(raw: Json, pod: int) -> RestoreClaim:
    meta = raw["metadata"]
    going = bool(meta.get("deletionTimestamp") or meta.get("ownerReferences"))
    return RestoreClaim(meta["name"], pod, meta["uid"], plan_of(raw), made_of(raw), going)


def _owner(raw: Json) -> str:
    """The uid of the one that controls an object."""
    owners = raw["metadata"].get("ownerReferences", ())
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def _seen(raw: Json, pods: Iterable[Json]) -> RestoreJob:
    meta, there = raw["metadata"], list(pods)
    finished, trouble = end_of(raw)
    if not finished:
        trouble = next((why for each in there if (why := trouble_of(each.get("status", {})))), "")
    result = result_of(there, RestoreResult) if finished else None
    marks = meta["annotations"]
    return RestoreJob(meta["name"], int(marks[RESTORES]), marks.get(CLAIM_UID, ""), finished, result, trouble)
