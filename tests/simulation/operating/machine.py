"""What Kubernetes does for the pods: their objects, as kubelets report them, and their nodes."""

from __future__ import annotations

from random import Random

from tests.simulation.cluster import Cluster
from tests.simulation.operating.objects import Json
from tests.simulation.operating.server import ApiServer
from tests.simulation.operating.wire import Wire
from tests.simulation.pod import Pod

from muster_operator.kube.manifests import API_PORT, CLUSTER_LABEL, PEER_PORT, pod_dns_name

__all__ = ["CLUSTER", "NAMESPACE", "Kubelets", "api_address", "kafka_address", "peer_address"]

NAMESPACE = "ns"
CLUSTER = "pod"
"""Its pods are `pod-0`, `pod-1` ... as everywhere in the simulation."""
LOOKS_MS = 400


def _ip(pod: str) -> str:
    return f"10.0.0.{int(pod.rpartition('-')[2]) + 1}"


def api_address(pod: str) -> str:
    return f"{_ip(pod)}:{API_PORT}"


def peer_address(pod: str) -> str:
    return f"{_ip(pod)}:{PEER_PORT}"


def kafka_address(pod: str) -> str:
    return f"{pod_dns_name(pod, CLUSTER, NAMESPACE)}:9092"


class Kubelets:
    """Report late, and not at all while the API server is away."""

    def __init__(self, cluster: Cluster, server: ApiServer, wire: Wire) -> None:
        self._cluster = cluster
        self._server = server
        self._world = cluster.world
        self._random = Random(f"kubelets {cluster.world.options.seed}")
        for pod in cluster.pods.values():
            wire.hosts[api_address(pod.name)] = pod.name
            server.objects.handle("POST", "/api/v1/nodes", {}, _node(f"node-of-{pod.name}"))
            server.objects.handle("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {}, _pod(pod.name))
            self._look(pod)

    def _look(self, pod: Pod) -> None:
        if self._world.now_ms >= self._server.down_until:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.name}"
            known = self._server.objects.handle("GET", path, {}, None).body
            body = {**known, "status": _status(pod.name, is_up=pod.up)}
            self._server.objects.handle("PUT", f"{path}/status", {}, body)
        self._world.at(self._random.randint(1, LOOKS_MS), lambda: self._look(pod))


def _node(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def _pod(name: str) -> Json:
    container = {"name": "coordinator", "env": [{"name": "MUSTER_ADVERTISE", "value": kafka_address(name)}]}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {CLUSTER_LABEL: CLUSTER}},
        "spec": {"nodeName": f"node-of-{name}", "containers": [container]},
    }


def _status(name: str, *, is_up: bool) -> Json:
    state: Json = {"running": {}} if is_up else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {"phase": "Running", "podIP": _ip(name), "containerStatuses": [{"state": state}]}
