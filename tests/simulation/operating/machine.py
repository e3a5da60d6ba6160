"""What Kubernetes does for the pods: their objects, as controllers make them and kubelets report them, and nodes."""

from __future__ import annotations

from random import Random

from tests.simulation.cluster import Cluster
from tests.simulation.operating.objects import Json
from tests.simulation.operating.server import ApiServer
from tests.simulation.operating.wire import Wire
from tests.simulation.pods.process import HostedPod

from muster_operator.kube.manifests import API_PORT, CLUSTER_LABEL, PEER_PORT, pod_dns_name

__all__ = ["CLUSTER", "NAMESPACE", "Kubernetes", "api_address", "kafka_address", "peer_address"]

NAMESPACE = "ns"
CLUSTER = "pod"
"""Its pods are `pod-0`, `pod-1` ... as everywhere in the simulation."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
STATEFUL_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{CLUSTER}"
REVISION = "1"
"""Of the template, which does not change."""
LOOKS_MS = 400


def _ip(pod: str) -> str:
    return f"10.0.0.{int(pod.rpartition('-')[2]) + 1}"


def api_address(pod: str) -> str:
    return f"{_ip(pod)}:{API_PORT}"


def peer_address(pod: str) -> str:
    return f"{_ip(pod)}:{PEER_PORT}"


def kafka_address(pod: str) -> str:
    return f"{pod_dns_name(pod, CLUSTER, NAMESPACE)}:9092"


class Kubernetes:
    """The controller of StatefulSets, which makes the pods' objects once the operator has applied one, and kubelets,
    which report late, and not at all while the API server is away.
    """

    def __init__(self, cluster: Cluster, server: ApiServer, wire: Wire) -> None:
        self._server = server
        self._world = cluster.world
        self._random = Random(f"kubernetes {cluster.world.options.seed}")
        for pod in cluster.pods.values():
            wire.hosts[api_address(pod.name)] = wire.hosts[peer_address(pod.name)] = pod.name
            self._do("POST", "/api/v1/nodes", _node(f"node-of-{pod.name}"))
            self._look(pod)
        self._control()

    @property
    def is_set_up(self) -> bool:
        """The pods have objects."""
        return bool(self._server.objects.all("pods", NAMESPACE))

    def _do(self, method: str, path: str, body: Json | None = None) -> Json | None:
        answer = self._server.objects.handle(method, path, {}, body)
        return answer.body if answer.code < 300 else None

    def _control(self) -> None:
        """As the controller of StatefulSets says what it has seen."""
        found = self._do("GET", STATEFUL_SET)
        if found is not None and self._world.now_ms >= self._server.down_until:
            status = {"observedGeneration": found["metadata"]["generation"], "updateRevision": REVISION}
            self._do("PUT", STATEFUL_SET, {**found, "status": status})
        self._world.at(self._random.randint(1, LOOKS_MS), self._control)

    def _look(self, pod: HostedPod) -> None:
        """Of its StatefulSet the pod has its object; of its kubelet the object has its status."""
        found, owner = self._do("GET", f"{PODS}/{pod.name}"), self._do("GET", STATEFUL_SET)
        if self._world.now_ms >= self._server.down_until and owner is not None:
            if found is None:
                found = self._do("POST", PODS, _pod(pod.name, owner))
            assert found is not None
            self._do("PUT", f"{PODS}/{pod.name}/status", {**found, "status": _status(pod.name, is_up=pod.up)})
        self._world.at(self._random.randint(1, LOOKS_MS), lambda: self._look(pod))


def _node(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def _pod(name: str, owner: Json) -> Json:
    container = {"name": "coordinator", "env": [{"name": "MUSTER_ADVERTISE", "value": kafka_address(name)}]}
    labels = {CLUSTER_LABEL: CLUSTER, "controller-revision-hash": REVISION}
    of = {"kind": "StatefulSet", "name": CLUSTER, "uid": owner["metadata"]["uid"], "controller": True}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [of]},
        "spec": {"nodeName": f"node-of-{name}", "containers": [container]},
    }


def _status(name: str, *, is_up: bool) -> Json:
    state: Json = {"running": {}} if is_up else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {"phase": "Running", "podIP": _ip(name), "containerStatuses": [{"state": state}]}
