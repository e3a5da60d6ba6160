"""The facts that `muster doctor` looks at beside the cluster itself, read from the API server."""

from __future__ import annotations

from dataclasses import dataclass

from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.seen import Seen, Unreachable
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import CLUSTER_LABEL
from muster_operator.store.port import StoreError


@dataclass(frozen=True)
class Facts:
    """The facts of one cluster. Objects are as the API server has them; None: they may not be read. `server`: the
    version of the API server."""

    seen: Seen
    server: str
    claims: list[Json] | None
    classes: list[Json] | None
    budgets: list[Json] | None
    policies: list[Json] | None
    stateful_sets: list[Json] | None
    nodes: list[Json] | None


async def read_facts(reader: KubernetesReader, seen: Seen) -> Facts:
    """Raises Unreachable."""
    meta = seen.cluster.metadata
    of_cluster = f"{CLUSTER_LABEL}={meta.name}"

    def path(api: str, plural: str) -> str:
        return f"{api}/namespaces/{meta.namespace}/{plural}"

    try:
        return Facts(
            seen=seen,
            server=str((await reader.client.get("/version")).get("gitVersion", "")),
            claims=await reader.listed_if_allowed(path("/api/v1", "persistentvolumeclaims"), of_cluster),
            classes=await reader.listed_if_allowed("/apis/storage.k8s.io/v1/storageclasses"),
            budgets=await reader.listed_if_allowed(path("/apis/policy/v1", "poddisruptionbudgets")),
            policies=await reader.listed_if_allowed(path("/apis/networking.k8s.io/v1", "networkpolicies")),
            stateful_sets=await reader.listed_if_allowed(path("/apis/apps/v1", "statefulsets"), of_cluster),
            nodes=await reader.listed_if_allowed("/api/v1/nodes"),
        )
    except StoreError as error:
        raise Unreachable(f"the API server: {error}") from error
