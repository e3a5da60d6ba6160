"""A Kubernetes for real operator processes: an API server on loopback, and fake pods behind addresses of their own.

The objects and their rules are those of the simulation (`ApiObjects`). What a StatefulSet declares runs in this
process: each pod is a `FakePod`, with the pod API at port 9640 of an address in 127.0.0.0/8.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.simulation.operating.objects import ApiObjects, Change, Json, Target, labels_match
from tests.support.pod import free_ports
from tests.unit.podapi.fake_net import FakeNet
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_server import Server, start
from tests.unit.podapi.fake_volume import FakeVolume

from muster_operator.api.durations import format_time
from muster_operator.api.models import GROUP, VERSION, CoordinatorClusterSpec
from muster_operator.kube.manifests import API_PORT, CLAIM, CLUSTER_LABEL
from muster_operator.kube.objects_seen import RESOURCES as OUR_RESOURCES

RESOURCES = {
    "/api/v1": ["pods", "services", "namespaces"],
    "/apis/apps/v1": ["statefulsets", "deployments"],
    "/apis/batch/v1": ["jobs"],
    "/apis/policy/v1": ["poddisruptionbudgets"],
    f"/apis/{GROUP}/{VERSION}": [each.plural for each in OUR_RESOURCES],
}
"""The resources that kopf looks for, by group and version."""
REVISION = "1"
"""The revision of every pod template: no pod is ever outdated."""
LEASE = "muster-operator"


class FakeCluster:
    """The pods of one CoordinatorCluster. `number` makes their addresses."""

    def __init__(self, namespace: str, name: str, number: int) -> None:
        self.namespace = namespace
        self.name = name
        self.net = FakeNet()
        self.runs: list[FakePod] = []
        """Every pod process that ever ran."""
        self._number = number
        self._volumes: dict[int, FakeVolume] = {}
        self._servers: dict[int, Server] = {}

    def address(self, ordinal: int) -> str:
        """No other process that runs tests has pods there: each takes the number that the test runner gave it."""
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        return f"127.{100 + self._number}.{worker}.{ordinal + 1}"

    async def run_pod(self, ordinal: int) -> None:
        """Runs a pod on its volume, which outlives it."""
        name = f"{self.name}-{ordinal}"
        pod = FakePod(name, ordinal, self._volumes.setdefault(ordinal, FakeVolume()), self.net)
        self.runs.append(pod)
        self._servers[ordinal] = await start(pod, f"{self.address(ordinal)}:{API_PORT}")
        self.net.replicate()

    async def kill_pod(self, ordinal: int) -> None:
        self.net.pods.pop(f"{self.name}-{ordinal}")
        await self._servers.pop(ordinal).stop()

    async def close(self) -> None:
        for ordinal in [*self._servers]:
            await self.kill_pod(ordinal)

    def epochs_given(self) -> list[tuple[int, int]]:
        """(partition, epoch) of each election that a pod has accepted."""
        return [each for pod in self.runs for each in pod.accepted]


class FakeKubernetes:
    """`requests`: how many there were, by verb and plural; watches that began are `WATCH`. `lacks`: plurals of kinds
    whose definition is not there."""

    def __init__(self) -> None:
        self.lacks: set[str] = set()
        self.objects = ApiObjects(lambda: format_time(1_700_000_000), self._changed)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.clusters: dict[tuple[str, str], FakeCluster] = {}
        self._news = asyncio.Condition()
        self._watches: list[tuple[Target, str, asyncio.Queue[Change]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.create("/api/v1/nodes", {"metadata": {"name": "node"}, "spec": {}, "status": {}})

    # -- objects ------------------------------------------------------------------------------------------------------

    def create(self, path: str, body: Json) -> None:
        answer = self.objects.handle("POST", path, {}, body)
        assert answer.code == 201, answer

    def declare(self, namespace: str, name: str, pods: int = 3, partitions: int = 6, **spec: Any) -> FakeCluster:
        """A CoordinatorCluster and its OffsetsTopic, and who runs its pods."""
        cluster = self.clusters[namespace, name] = FakeCluster(namespace, name, len(self.clusters))
        api, path = f"{GROUP}/{VERSION}", f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}"
        declared = {"pods": pods, "topics": [{"name": "orders", "partitions": 6}], **spec}
        body: Json = {"apiVersion": api, "kind": "CoordinatorCluster", "metadata": {"name": name}, "spec": declared}
        self.create(f"{path}/coordinatorclusters", body)
        topic = {"clusterRef": {"name": name}, "partitions": partitions, "replicationFactor": 3}
        body = {"apiVersion": api, "kind": "OffsetsTopic", "metadata": {"name": name}, "spec": topic}
        self.create(f"{path}/offsetstopics", body)
        return cluster

    def lease(self, namespace: str) -> Json:
        """The spec of the Lease of the operators; {} while there is none."""
        found = self.objects.get("leases", namespace, LEASE)
        return found["spec"] if found else {}

    def is_ready(self, namespace: str, name: str) -> bool:
        found = self.objects.get("coordinatorclusters", namespace, name) or {}
        conditions = found.get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    async def until(self, holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Wait for a state of the objects. It is looked at after each change of one."""
        try:
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(holds)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}") from None

    def _changed(self, change: Change) -> None:
        for target, selector, queue in self._watches:
            if _is_for(change, target, selector):
                queue.put_nowait(change)
        if change.name[0] == "statefulsets" and change.event != "DELETED":
            self._begin(self._control(change.raw))
        self._begin(self._tell())

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _control(self, stateful_set: Json) -> None:
        """Act as the controller of StatefulSets and a kubelet."""
        meta = stateful_set["metadata"]
        cluster = self.clusters[meta["namespace"], meta["name"]]
        path = f"/apis/apps/v1/namespaces/{cluster.namespace}/statefulsets/{cluster.name}"
        status = {"observedGeneration": meta["generation"], "updateRevision": REVISION}
        self.objects.handle("PUT", path, {}, {"metadata": {}, "spec": stateful_set["spec"], "status": status})
        for ordinal in range(stateful_set["spec"]["replicas"]):
            name = f"{cluster.name}-{ordinal}"
            if self.objects.get("pods", cluster.namespace, name) is None:
                self._create_pod(cluster, ordinal, meta["uid"])
                await cluster.run_pod(ordinal)

    def _create_pod(self, cluster: FakeCluster, ordinal: int, owner: str) -> None:
        name, path = f"{cluster.name}-{ordinal}", f"/api/v1/namespaces/{cluster.namespace}/pods"
        container = {"name": "coordinator", "env": [{"name": "MUSTER_ADVERTISE", "value": "$(POD_IP):9092"}]}
        metadata = {
            "name": name,
            "labels": {CLUSTER_LABEL: cluster.name, "controller-revision-hash": REVISION},
            "ownerReferences": [{"kind": "StatefulSet", "name": cluster.name, "uid": owner, "controller": True}],
        }
        self.create(path, {"metadata": metadata, "spec": {"nodeName": "node", "containers": [container]}})
        status = {
            "phase": "Running",
            "podIP": cluster.address(ordinal),
            "containerStatuses": [{"state": {"running": {}}}],
        }
        self.objects.handle("PUT", f"{path}/{name}/status", {}, {"metadata": {}, "status": status})
        size = {"storage": CoordinatorClusterSpec().storage.size}
        claim = {"name": f"{CLAIM}-{name}", "labels": {CLUSTER_LABEL: cluster.name}}
        spec, bound = {"resources": {"requests": size}}, {"phase": "Bound", "capacity": size}
        claims = f"/api/v1/namespaces/{cluster.namespace}/persistentvolumeclaims"
        self.create(claims, {"metadata": claim, "spec": spec, "status": bound})

    # -- HTTP ---------------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/api", "/apis") or request.path in RESOURCES:
            return web.json_response(_discovery(request.path, self.lacks))
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.34.1"})
        target = Target.of(request.path)
        if target.plural in self.lacks:
            return web.Response(status=404, text="404 page not found")
        if "watch" in request.query:
            self.requests["WATCH", target.plural] += 1
            return await self._watch(request, target)
        self.requests[request.method, target.plural] += 1
        body = json.loads(await request.read() or b"null")
        answer = self.objects.handle(request.method, request.path, dict(request.query), body)
        return web.json_response(answer.body, status=answer.code)

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        selector, queue = request.query.get("labelSelector", ""), asyncio.Queue[Change]()
        for change in self.objects.since(int(request.query.get("resourceVersion", 0))) or ():
            if _is_for(change, target, selector):
                queue.put_nowait(change)
        watch = (target, selector, queue)
        self._watches.append(watch)
        try:
            while True:
                change = await queue.get()
                await stream.write(json.dumps({"type": change.event, "object": change.raw}).encode() + b"\n")
        except ConnectionError:
            return stream
        finally:
            self._watches.remove(watch)

    async def close(self) -> None:
        for cluster in self.clusters.values():
            await cluster.close()


def _is_for(change: Change, target: Target, selector: str) -> bool:
    plural, namespace, _ = change.name
    return plural == target.plural and target.namespace in ("", namespace) and labels_match(change.raw, selector)


def _discovery(path: str, lacks: set[str]) -> Json:
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        groups = [each.split("/")[2:] for each in RESOURCES if each.startswith("/apis/")]
        versions = [(group, {"version": version}) for group, version in groups]
        return {"groups": [{"name": name, "preferredVersion": each, "versions": [each]} for name, each in versions]}
    verbs = ["list", "watch", "get"]
    named = {"singularName": "", "namespaced": True, "verbs": verbs}
    found = [{"name": each, "kind": each, **named} for each in RESOURCES[path] if each not in lacks]
    return {"resources": found}


@asynccontextmanager
async def fake_kubernetes(directory: Path) -> AsyncIterator[tuple[FakeKubernetes, Path]]:
    """A running one, and the kubeconfig for it, which is written to the directory."""
    kubernetes, app = FakeKubernetes(), web.Application()
    app.router.add_route("*", "/{path:.*}", kubernetes.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "it", "user": {"token": "t"}}],
    }
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    try:
        yield kubernetes, kubeconfig
    finally:
        await kubernetes.close()
        await runner.cleanup()


class OperatorProcess:
    """`muster-operator` of an install: `<namespace>/<pod>` on Leases. Its log goes to a file."""

    def __init__(self, child: asyncio.subprocess.Process, identity: str, log: Path) -> None:
        self.child = child
        self.identity = identity
        self._log = log

    @classmethod
    async def start(cls, kubeconfig: Path, namespace: str, pod: str, log: Path) -> OperatorProcess:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"},
            "KUBECONFIG": str(kubeconfig),
            "MUSTER_OPERATOR_POD": pod,
            "MUSTER_OPERATOR_NAMESPACE": namespace,
            "MUSTER_OPERATOR_IMAGE": "docker.io/library/muster:local",
            "MUSTER_OPERATOR_HEALTH_PORT": str(free_ports(1)[0]),
        }
        with log.open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "muster_operator", stdout=output, stderr=output, env=environment
            )
        return cls(child, f"{namespace}/{pod}", log)

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log with this event."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    async def end(self, signum: signal.Signals) -> int:
        """Its exit code."""
        if self.child.returncode is None:
            self.child.send_signal(signum)
        return await self.child.wait()
