"""Clusters as the Kubernetes API server has them, read with the operator's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from muster_cli.oncall.seen import NO_OPERATOR, OperatorSeen, PodSeen, Seen, Unreachable, Unreadable
from muster_operator.api.durations import parse_time
from muster_operator.api.models import CoordinatorCluster, MusterUser, OffsetsPartition, OffsetsTopic, Resource
from muster_operator.kube.client import Json, KubeClient, connect, context_namespace, is_refused, uses_service_account
from muster_operator.kube.manifests import CLUSTER_LABEL
from muster_operator.kube.objects import collection_path, decode
from muster_operator.kube.pod_info import is_made_by, pod_info
from muster_operator.kube.run import LEASE_NAME
from muster_operator.store.port import NotFoundError, StoreError

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

T = TypeVar("T", bound=Resource)


class KubernetesReader:
    """Reads one namespace, or all if it is "", and one cluster, or all if `name` is "". Implements `seen.Reader`."""

    def __init__(self, client: KubeClient, namespace: str, name: str = "") -> None:
        self.client = client
        self.namespace = namespace
        self._name = name

    async def look(self) -> tuple[Seen, ...]:
        try:
            unreadable: list[Unreadable] = []
            raw = await self.listed(collection_path(CoordinatorCluster, self._scope))
            clusters = _decoded(CoordinatorCluster, raw, unreadable)
            wanted = [each for each in clusters if self._name in ("", each.metadata.name)]
            if self._name and not wanted:
                raise Unreachable(f"namespace {self.namespace} has no CoordinatorCluster {self._name}")
            if not wanted:
                return ()
            return await self._seen(wanted, unreadable)
        except StoreError as error:
            raise Unreachable(f"the API server: {error}") from error

    async def listed(self, path: str, label_selector: str = "") -> list[Json]:
        """The objects of a collection. Raises StoreError."""
        answer = await self.client.list_all(path, label_selector=label_selector)
        return list(answer["items"])

    async def listed_if_allowed(self, path: str, label_selector: str = "") -> list[Json] | None:
        """None: they may not be read, or there is no such kind."""
        try:
            return await self.listed(path, label_selector)
        except StoreError as error:
            if is_refused(error):
                return None
            raise

    def path(self, api: str, plural: str) -> str:
        """Returns the path of a kind, in the namespace or in all."""
        return f"{api}/namespaces/{self.namespace}/{plural}" if self.namespace else f"{api}/{plural}"

    @property
    def _scope(self) -> str | None:
        return self.namespace or None

    async def _seen(self, clusters: list[CoordinatorCluster], unreadable: list[Unreadable]) -> tuple[Seen, ...]:
        topics = _decoded(OffsetsTopic, await self.listed(collection_path(OffsetsTopic, self._scope)), unreadable)
        partitions = _decoded(
            OffsetsPartition, await self.listed(collection_path(OffsetsPartition, self._scope)), unreadable
        )
        raw_users = await self.listed_if_allowed(collection_path(MusterUser, self._scope))
        users = None if raw_users is None else _decoded(MusterUser, raw_users, unreadable)
        pods = await self.listed(self.path("/api/v1", "pods"), CLUSTER_LABEL)
        operators = {
            each: await self._operator(each) for each in dict.fromkeys(one.metadata.namespace for one in clusters)
        }
        found = []
        for cluster in sorted(clusters, key=lambda each: (each.metadata.namespace, each.metadata.name)):
            place, name = cluster.metadata.namespace, cluster.metadata.name
            of_cluster = tuple(
                each for each in topics if (each.metadata.namespace, each.spec.cluster_ref.name) == (place, name)
            )
            names = {each.metadata.name for each in of_cluster}
            found.append(
                Seen(
                    cluster=cluster,
                    topics=of_cluster,
                    partitions=tuple(
                        each
                        for each in partitions
                        if each.metadata.namespace == place and each.spec.topic_ref.name in names
                    ),
                    pods=tuple(pod_seen(each) for each in pods if _is_of(each, place, name)),
                    users=None if users is None else _users(users, place, name),
                    operator=operators[place],
                    unreadable=tuple(each for each in unreadable if each.namespace == place),
                )
            )
        return tuple(found)

    async def _operator(self, namespace: str) -> OperatorSeen | None:
        """Its Lease is where the clusters are. None: it may not be read."""
        try:
            lease = await self.client.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_NAME}")
        except NotFoundError:
            return NO_OPERATOR
        except StoreError as error:
            if not is_refused(error):
                raise
            return None
        return operator_seen(lease)


@asynccontextmanager
async def kubernetes_reader(
    *, kubeconfig: str, context: str, namespace: str, all_namespaces: bool, name: str
) -> AsyncIterator[KubernetesReader]:
    """Connected as kubectl would, or by the service account of this pod. Raises Unreachable."""
    try:
        client = await connect(kubeconfig, context)
    except StoreError as error:
        raise Unreachable(str(error)) from error
    try:
        chosen = "" if all_namespaces else namespace or default_namespace(kubeconfig, context)
        yield KubernetesReader(client, chosen, name)
    finally:
        await client.close()


def default_namespace(kubeconfig: str, context: str) -> str:
    """Returns that of the service account, or else of the context of the kubeconfig, as kubectl has it."""
    if uses_service_account(kubeconfig, context):
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    return context_namespace(kubeconfig, context) or "default"


def pod_seen(raw: Json) -> PodSeen:
    """A pod as the API server has it."""
    info, status = pod_info(raw), raw.get("status", {})
    conditions: list[dict[str, Any]] = status.get("conditions", [])
    ready = next((each["status"] == "True" for each in conditions if each["type"] == "Ready"), None)
    return PodSeen(
        name=info.name,
        phase=info.phase.value,
        ready=info.phase.value == "Running" if ready is None else ready,
        node=info.node,
        restarts=sum(each.get("restartCount", 0) for each in status.get("containerStatuses", ())),
        trouble=info.trouble,
        image=info.image,
        uid=info.uid,
    )


def operator_seen(lease: Json) -> OperatorSeen:
    """Returns who holds a Lease, and when it was renewed."""
    spec = lease.get("spec", {})
    renewed = spec.get("renewTime")
    return OperatorSeen(spec.get("holderIdentity") or "", parse_time(renewed) if renewed else 0.0)


def _users(users: list[MusterUser], namespace: str, cluster: str) -> tuple[MusterUser, ...]:
    return tuple(
        each for each in users if (each.metadata.namespace, each.spec.cluster_ref.name) == (namespace, cluster)
    )


def _is_of(pod: Json, namespace: str, cluster: str) -> bool:
    """Judges by the pod's label and its owner: anybody can give a pod a label."""
    meta = pod["metadata"]
    labelled = (meta["namespace"], meta["labels"][CLUSTER_LABEL]) == (namespace, cluster)
    return labelled and is_made_by(pod, cluster, "")


def _decoded(resource: type[T], raw: list[Json], unreadable: list[Unreadable]) -> list[T]:
    """Those that can be read, at least without spec or status. What cannot is added to `unreadable`."""
    found = []
    for each in raw:
        meta = each["metadata"]
        parts = (each, {**each, "status": {}}, {**each, "spec": {}}, {"metadata": meta, "spec": {}, "status": {}})
        problem = ""
        for part in parts:
            try:
                found.append(decode(resource, part))
                break
            except msgspec.ValidationError as error:
                problem = problem or str(error)
        if problem:
            unreadable.append(Unreadable(meta["namespace"], f"{resource.__name__} {meta['name']}", problem))
    return found
