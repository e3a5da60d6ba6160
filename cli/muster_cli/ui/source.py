"""The source of the pages: clusters of an API server, or the instance that runs on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from muster_cli.local.tls import tls_of
from muster_cli.mirror.status import MirrorReport, ask_pods, build_report
from muster_cli.oncall.doctor import Diagnosis, diagnose
from muster_cli.oncall.embedded import EmbeddedReader
from muster_cli.oncall.facts import read_facts
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.options import Where
from muster_cli.oncall.seen import Seen, Unreachable
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.security.roles import Role
from muster_operator.kube.client import KubeError
from muster_operator.kube.gateway_manifests import GATEWAY_LABEL
from muster_operator.kube.manifests import METRICS_PORT
from muster_operator.kube.pod_info import ZONE_LABEL
from muster_operator.store.port import NotFoundError, StoreError

ASK_POD_S = 1.0


@dataclass(frozen=True)
class Scraped:
    """The metrics of one pod in Prometheus' format, or why there are none."""

    pod: str
    text: str = ""
    problem: str = ""


@dataclass(frozen=True)
class GatewayPod:
    """One process of a gateway. `state`: in words."""

    name: str
    ready: bool
    state: str


@dataclass(frozen=True)
class GatewaySeen:
    """A gateway. `bootstrap`: for clients, "" if it is not known yet. `pods`: None if they may not be read."""

    bootstrap: str
    pods: tuple[GatewayPod, ...] | None
    metrics: tuple[Scraped, ...] = ()


class Source(Protocol):
    """All methods raise Unreachable."""

    @property
    def name(self) -> str:
        """The name of the source, for people."""

    async def look(self) -> tuple[Seen, ...]:
        """The clusters."""

    async def zones(self) -> Mapping[str, str]:
        """The zone of each node, by its name; nothing if nodes have none or may not be read."""

    async def diagnosis(self, seen: Seen) -> Diagnosis | None:
        """None: there is none to be made, because it is no cluster on Kubernetes."""

    async def metrics(self, seen: Seen) -> tuple[Scraped, ...]:
        """The metrics of the pods of a cluster, or why there are none."""

    async def mirror(self) -> MirrorReport | None:
        """The position up to which each partition was mirrored. None: the pods' own API, which tells it, is not reached
        from here, or no pod mirrors anything."""

    async def gateway(self, seen: Seen) -> GatewaySeen | None:
        """None: the cluster has none."""


class KubernetesSource:
    """Implements `Source`."""

    def __init__(self, reader: KubernetesReader) -> None:
        self._reader = reader
        self.name = f"namespace {reader.namespace}" if reader.namespace else "all namespaces"

    async def look(self) -> tuple[Seen, ...]:
        return await self._reader.look()

    async def zones(self) -> Mapping[str, str]:
        try:
            nodes = await self._reader.listed_if_allowed("/api/v1/nodes") or []
        except StoreError as error:
            raise Unreachable(f"the API server: {error}") from error
        labels = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in nodes}
        return {name: str(each[ZONE_LABEL]) for name, each in labels.items() if ZONE_LABEL in each}

    async def diagnosis(self, seen: Seen) -> Diagnosis | None:
        return diagnose(await read_facts(self._reader, seen), time.time())

    async def metrics(self, seen: Seen) -> tuple[Scraped, ...]:
        names = [pod.name for pod in seen.pods]
        return await self._scrape(seen.cluster.metadata.namespace, names)

    async def mirror(self) -> MirrorReport | None:
        return None

    async def gateway(self, seen: Seen) -> GatewaySeen | None:
        cluster = seen.cluster
        if cluster.spec.gateway is None:
            return None
        path = f"/api/v1/namespaces/{cluster.metadata.namespace}/pods"
        try:
            raw = await self._reader.listed_if_allowed(path, f"{GATEWAY_LABEL}={cluster.metadata.name}")
        except StoreError as error:
            raise Unreachable(f"the API server: {error}") from error
        if raw is None:
            return GatewaySeen(cluster.status.gateway, None)
        pods = []
        for each in raw:
            status = each.get("status", {})
            conditions = status.get("conditions", ())
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
            state = "ready" if ready else f"not ready ({status.get('phase', 'unknown')})"
            pods.append(GatewayPod(each["metadata"]["name"], ready, state))
        metrics = await self._scrape(cluster.metadata.namespace, [each.name for each in pods])
        return GatewaySeen(cluster.status.gateway, tuple(pods), metrics)

    async def _scrape(self, namespace: str, pods: list[str]) -> tuple[Scraped, ...]:
        """Asks through the API server, which takes the right to get pods/proxy."""

        async def one(pod: str) -> Scraped:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/metrics"
            try:
                return Scraped(pod, await self._reader.client.get_text(path, []))
            except (KubeError, NotFoundError) as error:
                return Scraped(pod, problem=str(error))

        return tuple(await asyncio.gather(*map(one, pods)))


class EmbeddedSource:
    """Implements `Source`."""

    def __init__(self, reader: EmbeddedReader) -> None:
        self._reader = reader
        self.name = str(reader.data.root)

    async def look(self) -> tuple[Seen, ...]:
        return await self._reader.look()

    async def zones(self) -> Mapping[str, str]:
        return {}

    async def diagnosis(self, seen: Seen) -> Diagnosis | None:
        return None

    async def metrics(self, seen: Seen) -> tuple[Scraped, ...]:
        record = self._reader.running()
        tls = tls_of(self._reader.data, record, Role.READER)
        async with new_session() as session:

            async def one(name: str, address: str) -> Scraped:
                try:
                    content = await PodClient(session, name, address, tls).read("/metrics", {}, ASK_POD_S)
                except PodApiError as error:
                    return Scraped(name, problem=str(error))
                return Scraped(name, content.decode("utf-8", "replace"))

            alive = [pod for pod in record.pods if pod.alive]
            return tuple(await asyncio.gather(*(one(pod.name, pod.api_address) for pod in alive)))

    async def mirror(self) -> MirrorReport | None:
        record = self._reader.running()
        answers = await ask_pods(record, tls_of(self._reader.data, record, Role.READER))
        return build_report(answers) if answers else None

    async def gateway(self, seen: Seen) -> GatewaySeen | None:
        pod = self._reader.running().gateway
        if pod is None:
            return None
        process = GatewayPod(pod.name, pod.alive, "runs" if pod.alive else "does not run")
        return GatewaySeen(pod.kafka_address, (process,))


@asynccontextmanager
async def source_of(where: Where, cluster: str) -> AsyncIterator[Source]:
    """`cluster`: a name, "" for all. Raises Unreachable, CliUsageError."""
    if where.embedded is not None:
        yield EmbeddedSource(EmbeddedReader(where.embedded))
        return
    async with where.kubernetes(cluster) as reader:
        yield KubernetesSource(reader)
