"""The workload port over the Kubernetes API: one StatefulSet per cluster, pods found by label."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog

from muster_coordinator.security.tls import Tls
from muster_operator.api.models import CoordinatorCluster, MusterUser
from muster_operator.kube.applying import is_as_applied
from muster_operator.kube.backups import KubeBackups
from muster_operator.kube.cache import Cache, name_of, take, take_list
from muster_operator.kube.certificates import Certificates
from muster_operator.kube.claims import LOOK_EVERY_S, Claims
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.definitions import outdated_definitions
from muster_operator.kube.gateways import DEPLOYMENTS, Gateways
from muster_operator.kube.manifests import CLUSTER_LABEL, bootstrap_service_name, is_secured
from muster_operator.kube.missing_secrets import MissingSecrets
from muster_operator.kube.nodes import Nodes
from muster_operator.kube.pod_info import cluster_of, is_made_by, pod_info
from muster_operator.kube.pod_objects import PodObjects
from muster_operator.kube.restores import KubeRestores
from muster_operator.kube.stateful_sets import StatefulSets, is_own
from muster_operator.kube.stranded import StrandedVolumes
from muster_operator.kube.users import KubeUsers
from muster_operator.plan.access import AccessState
from muster_operator.plan.observation import StrandedVolume
from muster_operator.store.port import ClusterKey, Notify, Unwatch, key_of
from muster_operator.store.workload import PodInfo, WorkloadState

log = structlog.get_logger(__name__)

BUDGETS = ("/apis/policy/v1", "poddisruptionbudgets")
"""Group path and plural."""

SELECTOR = CLUSTER_LABEL
"""Label selector of pods and StatefulSets: those that carry the label."""


class KubeWorkload:
    """See `muster_operator.store.workload.Workload`. `default_image` is for clusters that name none."""

    def __init__(
        self,
        client: KubeClient,
        default_image: str,
        namespace: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        list_again: Callable[[], None] = lambda: None,
        certificates: Certificates | None = None,
    ) -> None:
        """`list_again` is called when `load` is to be repeated soon: a list shows an older object than is known.
        `certificates`: of the pods; None: new pods are plain.
        """
        self._client = client
        self._default_image = default_image
        self._namespace = namespace
        self._clock = clock
        self._list_again = list_again
        self._pods: Cache[Json] = Cache(cluster_of)
        self._services: Cache[Json] = Cache(cluster_of)
        self._infos: dict[ClusterKey, tuple[PodInfo, ...]] = {}
        """The answer of `pods`, until something that it is made from changes."""
        self._stateful_sets = StatefulSets()
        self._outdated_definitions = ""
        self._claims = Claims(client, clock)
        self._stranded = StrandedVolumes(client, clock)
        self._missing = MissingSecrets(client, clock)
        self._certificates = certificates
        self._objects = PodObjects(
            client, default_image, self._took_service, self._tell, clock, secured=certificates is not None
        )
        self.gateways = Gateways(client, default_image, self._took_service, self._tell, clock)
        self.backups = KubeBackups(client, default_image, self._tell)
        self.restores = KubeRestores(client, default_image, self.backups, self._stateful_sets.get, self._tell)
        self._users = KubeUsers(client, clock)
        self._nodes = Nodes(client)
        self._notify: list[Notify] = []

    # Feeding the cache

    async def load(self) -> None:
        """List everything of the clusters, and the nodes. Repeated, it repairs what a broken watch missed."""
        self._outdated_definitions = await outdated_definitions(self._client)
        for key in self._stateful_sets.replace(await self._list("/apis/apps/v1", "statefulsets")):
            self._note_stateful_set(key)
        for key in self._objects.clusters():
            self._look_at_generation(key)
        self.gateways.replace(await self._list(*DEPLOYMENTS))
        await self.backups.load(self._namespace)
        self._compare("PodDisruptionBudget", (await self._list(*BUDGETS))["items"])
        before = {cluster_of(pod) for pod in self._pods.values()}
        for plural, cache in (("services", self._services), ("pods", self._pods)):
            take_list(cache, await self._list("/api/v1", plural))
        self._compare("Service", self._services.values())
        await self._learn_nodes(known_too=False)
        self._infos.clear()
        for key in before | {cluster_of(pod) for pod in self._pods.values()}:
            self._tell(key)

    async def _list(self, group: str, plural: str) -> Json:
        scope = f"/namespaces/{self._namespace}" if self._namespace else ""
        return await self._client.list_all(f"{group}{scope}/{plural}", label_selector=SELECTOR)

    def deliver_pod(self, event: str | None, raw: Json) -> None:
        """Take a watch event of a pod."""
        if event is None and int(raw["metadata"]["resourceVersion"]) < self._pods.version(name_of(raw)):
            self._list_again()
        if take(self._pods, event, raw):
            self._infos.clear()
            self._tell(cluster_of(raw))

    def deliver_service(self, event: str | None, raw: Json) -> None:
        """Take a watch event of a Service. What another writer has changed or deleted is looked at again: Kubernetes
        may have given it an address, and what is not as declared is applied again.
        """
        if take(self._services, event, raw):
            self._infos.clear()
            self._doubt(cluster_of(raw))
            self._tell(cluster_of(raw))

    def deliver_stateful_set(self, event: str | None, raw: Json) -> None:
        """Take a watch event of a StatefulSet. If another writer has changed it, ours is applied again.

        Its update revision says which pods have an older template (ADR 5).
        """
        if not is_own(raw):
            return
        if event is None and self._stateful_sets.is_older(raw):
            self._list_again()
        if self._stateful_sets.take(event, raw):
            self._note_stateful_set(cluster_of(raw))
        else:
            self._look_at_generation(cluster_of(raw))

    def _note_stateful_set(self, key: ClusterKey) -> None:
        """There is news of it."""
        if self._stateful_sets.get(key) is None:
            self._claims.forget(key)
            self._stranded.forget(key)
            self._missing.forget(key)
            self._doubt(key)
        self._infos.clear()
        self._look_at_generation(key)
        self._tell(key)

    def _look_at_generation(self, key: ClusterKey) -> None:
        """Has the StatefulSet applied again if it is not the one that was applied, or another writer has changed it."""
        if self._objects.is_changed(key, self._stateful_sets.get(key)):
            self._doubt(key)
            self._tell(key)

    def deliver_budget(self, event: str | None, raw: Json) -> None:
        """Take a watch event of a disruption budget. Its status changes all the time, and that is no news."""
        key, name = cluster_of(raw), raw["metadata"]["name"]
        wanted = self._wanted(key, "PodDisruptionBudget").get(name)
        if wanted is not None and (event == "DELETED" or not is_as_applied(raw, wanted)):
            self._doubt(key)
            self._tell(key)

    def _compare(self, kind: str, listed: Iterable[Json]) -> None:
        """Look at all that there are of a kind: what is gone, or not as it was applied, is applied again."""
        live = {(cluster_of(raw), raw["metadata"]["name"]): raw for raw in listed}
        for key in self._objects.clusters():
            wanted = self._wanted(key, kind)
            if not all(is_as_applied(live.get((key, name)), manifest) for name, manifest in wanted.items()):
                self._doubt(key)
                self._tell(key)

    def _wanted(self, key: ClusterKey, kind: str) -> Mapping[str, Json]:
        return {**self._objects.wanted(key, kind), **self.gateways.wanted(key, kind)}

    def _doubt(self, key: ClusterKey) -> None:
        self.gateways.doubt(key)
        self._objects.doubt(key)

    def _tell(self, key: ClusterKey) -> None:
        for notify in self._notify:
            notify(key)

    # The port

    def watch(self, notify: Notify) -> Unwatch:
        """See the port."""
        self._notify.append(notify)
        return partial(self._notify.remove, notify)

    async def ensure_pods(self, cluster: CoordinatorCluster, *, keep_template: bool = False) -> str:
        """See the port. The gateway comes after the pods, and not while an object of theirs is somebody else's."""
        key = key_of(cluster)
        done = await self._ensure_pods(cluster, keep_template=keep_template)
        if not self._objects.conflict(key) and await self.gateways.ensure(
            cluster,
            self._services.indexed(key),
            self._pods.indexed(key),
            secured=self._certificates is not None,
        ):
            done += "; applied or deleted objects of the gateway"
        return done

    async def _ensure_pods(self, cluster: CoordinatorCluster, *, keep_template: bool) -> str:
        key = key_of(cluster)
        await self._learn_nodes(known_too=False)
        await self._keep_certificates(key, cluster)
        if await self._stranded.look(key, self._pods.indexed(key)):
            self._tell(key)
        if await self._missing.look(key, self._pods.indexed(key)):
            self._infos.pop(key, None)
            self._tell(key)
        return await self._objects.ensure(
            cluster,
            lambda: self._services.indexed(key),
            lambda: self._grow_volumes(key, cluster),
            keep_template=keep_template,
        )

    def _took_service(self, live: Json) -> None:
        take(self._services, None, live)
        self._infos.clear()

    async def _keep_certificates(self, key: ClusterKey, cluster: CoordinatorCluster) -> None:
        if self._certificates is not None and await self._certificates.keep(cluster):
            self._infos.pop(key, None)
            self._tell(key)

    async def keep_users(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> str:
        """See the port."""
        if not await self._users.keep(cluster, users):
            return ""
        self._tell(key_of(cluster))
        return f"looked at the passwords of {len(users)} users"

    def access(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> AccessState | None:
        """See the port."""
        return self._users.access(cluster, users)

    async def _tls(self, key: ClusterKey) -> Tls | None:
        """TLS for calls of the cluster's pods, as far as they have certificates."""
        if self._certificates is None or not any(is_secured(raw["spec"]) for raw in self._pods.indexed(key)):
            return None
        if self._certificates.tls(key) is None:
            await self._certificates.open(key)
        return self._certificates.tls(key)

    async def _grow_volumes(self, key: ClusterKey, cluster: CoordinatorCluster) -> None:
        uids = tuple(sorted(pod["metadata"]["uid"] for pod in self._pods.indexed(key)))
        if await self._claims.look(cluster, uids):
            self._tell(key)

    def state(self, cluster: CoordinatorCluster) -> WorkloadState:
        """See the port."""
        key = key_of(cluster)
        volumes = self._claims.volumes(key)
        return WorkloadState(
            self._objects.is_in_force(cluster, self._stateful_sets.get(key)),
            self._objects.conflict(key),
            self._objects.refusal(key),
            self._default_image,
            self._outdated_definitions,
            volumes.pods,
            volumes.size,
            volumes.archive_size,
            volumes.growing,
            volumes.refused,
            self._stranded.volumes(key),
            self._certificates.trouble(key) if self._certificates is not None else "",
            self._certificates.end(key) if self._certificates is not None else 0.0,
            self.gateways.state(cluster),
        )

    async def pods(self, key: ClusterKey) -> tuple[PodInfo, ...]:
        """See the port. Answers from memory. A pod with our label counts only if the cluster's StatefulSet made it."""
        if key not in self._infos:
            tls = await self._tls(key)
            name = re.compile(rf"{re.escape(key.name)}-[0-9]+")
            live = self._stateful_sets.get(key)
            owner = live["metadata"]["uid"] if live is not None else ""
            ours = (
                raw
                for raw in self._pods.indexed(key)
                if name.fullmatch(raw["metadata"]["name"]) and is_made_by(raw, key.name, owner)
            )
            revision = self._stateful_sets.revision(key)
            services = self._services.indexed(key)
            infos = (
                self._missing.added(key, pod_info(raw, revision, self._nodes.known, services, tls)) for raw in ours
            )
            self._infos[key] = tuple(sorted(infos, key=lambda pod: pod.node_id))
        return self._infos[key]

    async def restart_pod(self, key: ClusterKey, name: str, uid: str) -> None:
        """See the port: the StatefulSet makes a new one of its present template (update strategy OnDelete)."""
        await self._client.delete(f"/api/v1/namespaces/{key.namespace}/pods/{name}", uid)

    async def replace_volume(self, key: ClusterKey, volume: StrandedVolume) -> bool:
        """See the port."""
        return await self._stranded.replace(key, volume, self._pods.indexed(key))

    async def follow(self) -> None:
        """Every LOOK_EVERY_S, until it is cancelled, read what is not watched: the pods' nodes, which are few (the
        right to watch all nodes is not needed), and have clusters looked at whose volumes are to grow, or whose pods
        or Jobs wait for a node or for what they mount.
        """
        while True:
            await self._learn_nodes()
            waiting = (self._claims.unsettled(), self._stranded.waiting(), self._missing.waiting())
            jobs = (self.restores.waiting(), self.backups.waiting())
            for key in {each for keys in (*waiting, *jobs) for each in keys}:
                self._tell(key)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _learn_nodes(self, *, known_too: bool = True) -> None:
        """Read the nodes of the pods, and have the clusters looked at whose nodes have changed."""
        holders: dict[str, set[ClusterKey]] = defaultdict(set)
        for raw in self._pods.values():
            if name := raw["spec"].get("nodeName"):
                holders[name].add(cluster_of(raw))
        async for name, was_known in self._nodes.learn(holders.keys(), known_too=known_too):
            self._infos.clear()
            if was_known:
                for key in holders[name]:
                    self._tell(key)

    async def look_at_secrets(self) -> None:
        """Every LOOK_EVERY_S, until it is cancelled, look at the Secrets that were made: nothing watches them."""
        while True:
            found = await self._users.drifted(self._is_there)
            if self._certificates is not None:
                found |= await self._certificates.drifted(self._is_there)
            for key in found:
                self._tell(key)
            await asyncio.sleep(LOOK_EVERY_S)

    def _is_there(self, key: ClusterKey) -> bool:
        return self._stateful_sets.get(key) is not None

    def bootstrap(self, cluster: CoordinatorCluster, pods: tuple[PodInfo, ...]) -> str:
        """The bootstrap Service; with PodIP the pods themselves, because such clients have no cluster DNS."""
        kafka = cluster.spec.internal
        if kafka.advertise == "PodIP":
            return ",".join(pod.kafka_address for pod in pods if pod.kafka_address)
        return f"{bootstrap_service_name(cluster.metadata.name)}.{cluster.metadata.namespace}.svc:{kafka.port}"
