"""Kubernetes for the GitOps storm: an API server that answers at once, and its controller of StatefulSets.

The operators of the storm ask it with the real `KubeWorkload` and the real step `ensure_pods`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from tests.simulation.operating.objects import Answer, ApiObjects, Json

from muster_operator.kube.client import KubeClient, KubeError
from muster_operator.kube.manifests import CLUSTER_LABEL
from muster_operator.store.port import ConflictError, NotFoundError

__all__ = ["BROKEN", "NAMESPACE", "StormApi", "StormKube"]

NAMESPACE = "ns"
SET = ("statefulsets", NAMESPACE, "c")
BROKEN = "muster:broken"
"""An image whose pods do not run."""


@dataclass
class StormApi:
    """The client of the API server: every request is answered at once."""

    objects: ApiObjects = field(default_factory=lambda: ApiObjects(lambda: "2030-01-01T00:00:00Z", lambda _: None))

    def as_client(self) -> KubeClient:
        return cast(KubeClient, self)

    async def get(self, path: str) -> Json:
        return self._ask("GET", path)

    async def list_all(self, path: str, *, label_selector: str = "") -> Json:
        return _checked(self.objects.handle("GET", path, {"labelSelector": label_selector}, None))

    async def apply(self, path: str, body: Json) -> Json:
        return self._ask("PATCH", path, body)

    async def look(self, path: str, *, metadata_only: bool = False) -> Json:
        return self._ask("GET", path)

    async def merge(self, path: str, body: Json, *, manager: str) -> Json:
        """Annotations only."""
        known = self._ask("GET", path)
        meta = {**known["metadata"], **body["metadata"]}
        annotations = {**known["metadata"].get("annotations", {}), **body["metadata"]["annotations"]}
        return self._ask("PUT", path, {**known, "metadata": {**meta, "annotations": annotations}})

    async def create(self, path: str, body: Json) -> Json:
        return self._ask("POST", path, body)

    async def replace(self, path: str, body: Json) -> Json:
        return self._ask("PUT", path, body)

    async def delete(self, path: str, uid: str) -> None:
        try:
            self._ask("DELETE", path, {"preconditions": {"uid": uid}})
        except (ConflictError, NotFoundError):
            pass

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        return _checked(self.objects.handle(method, path, {}, body))


def _checked(answer: Answer) -> Json:
    message = str(answer.body.get("message", ""))
    if answer.code == 404:
        raise NotFoundError(message)
    if answer.code == 409:
        raise ConflictError(message)
    if answer.code >= 300:
        raise KubeError(answer.code, message)
    return answer.body


@dataclass
class StormKube:
    """What the controller of StatefulSets and people with `kubectl` do to the cluster's objects."""

    api: StormApi = field(default_factory=StormApi)
    volumes: int = 0
    """How many there have been; each is on a node of its own."""
    foreign: set[tuple[str, str]] = field(default_factory=set)
    """Plural and name of objects that belong to somebody else."""

    @property
    def pods(self) -> dict[str, Json]:
        """The pods that the StatefulSet has made, by name."""
        made = self.api.objects.all("pods", NAMESPACE)
        return {each["metadata"]["name"]: each for each in made if each["metadata"].get("ownerReferences")}

    def control(self) -> None:
        """As the controller of a StatefulSet with OnDelete: makes pods of its template, ends those above its number."""
        objects = self.api.objects
        found = objects.get(*SET)
        if found is None:
            for name in self.pods:
                objects.remove(("pods", NAMESPACE, name))
            return
        template, uid = found["spec"]["template"], found["metadata"]["uid"]
        revision = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:8]
        status = {"observedGeneration": found["metadata"]["generation"], "updateRevision": revision}
        objects.handle("PUT", _path(SET), {}, {**found, "status": status})
        wanted = {f"c-{number}" for number in range(found["spec"]["replicas"])}
        for name, pod in self.pods.items():
            if name not in wanted or pod["metadata"]["ownerReferences"][0]["uid"] != uid:
                objects.remove(("pods", NAMESPACE, name))
            elif is_waiting(pod):
                self._claim(name)
                self._schedule(pod)
        for name in sorted(wanted - self.pods.keys()):
            self._make(name, template, revision, uid)

    def _make(self, name: str, template: Json, revision: str, uid: str) -> None:
        owner = {"kind": "StatefulSet", "name": "c", "uid": uid, "controller": True}
        labels = {**template["metadata"]["labels"], "controller-revision-hash": revision}
        body = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": template["spec"],
        }
        made = self.api.objects.handle("POST", _path(("pods", NAMESPACE, "")), {}, body).body
        self._claim(name)
        self._schedule(made)

    def _schedule(self, pod: Json) -> None:
        """Run it, if the node of its volume is there."""
        name = pod["metadata"]["name"]
        why: Json = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 of 3 nodes"}
        status: Json = {"phase": "Pending", "conditions": [why]}
        if self.api.objects.get("nodes", "", self.node_of(name)) is not None:
            ended = {"exitCode": 2, "message": "no such command"}
            waits: Json = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
            state = waits if image_of(pod) == BROKEN else {"state": {"running": {}}}
            number = int(name.rpartition("-")[2])
            status = {"phase": "Running", "podIP": f"10.0.0.{number + 1}", "containerStatuses": [state]}
        if status != pod.get("status"):
            self.api.objects.handle("PUT", f"{_path(('pods', NAMESPACE, name))}/status", {}, {**pod, "status": status})

    def _claim(self, pod: str) -> None:
        """The claim of its volume, which stays whatever becomes of the pod, and a node for the volume."""
        if self.claim_of(pod) is not None:
            return
        self.volumes += 1
        size, node, handle = {"storage": "10Gi"}, f"node-{self.volumes}", self.api.objects.handle
        of_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [of_node]}]}}
        volume: Json = {"metadata": {"name": f"pv-{self.volumes}"}, "spec": {"nodeAffinity": affinity}}
        claim: Json = {
            "metadata": {"name": f"data-{pod}", "labels": {CLUSTER_LABEL: "c"}},
            "spec": {"resources": {"requests": size}, "volumeName": f"pv-{self.volumes}"},
            "status": {"phase": "Bound", "capacity": size},
        }
        handle("POST", "/api/v1/nodes", {}, {"metadata": {"name": node}, "spec": {}})
        handle("POST", "/api/v1/persistentvolumes", {}, volume)
        handle("POST", _path(("persistentvolumeclaims", NAMESPACE, "")), {}, claim)

    def claim_of(self, pod: str) -> Json | None:
        return self.api.objects.get("persistentvolumeclaims", NAMESPACE, f"data-{pod}")

    def node_of(self, pod: str) -> str:
        """The node of its volume."""
        claim = self.claim_of(pod)
        assert claim is not None
        return f"node-{claim['spec']['volumeName'].removeprefix('pv-')}"

    def lose_node(self, pod: str) -> None:
        """The node of its volume is deleted, and then the pod by the controller that collects pods."""
        self.api.objects.remove(("nodes", "", self.node_of(pod)))
        self.api.objects.remove(("pods", NAMESPACE, pod))

    def bring_node_back(self, pod: str) -> None:
        if self.claim_of(pod) is not None:
            self.api.objects.handle("POST", "/api/v1/nodes", {}, {"metadata": {"name": self.node_of(pod)}, "spec": {}})

    # What people do

    def edit_number(self, pods: int) -> None:
        """`kubectl scale statefulset c`: past the operator."""
        found = self.api.objects.get(*SET)
        if found is not None:
            body = {**found, "spec": {**found["spec"], "replicas": pods}}
            self.api.objects.handle("PUT", _path(SET), {}, body)

    def delete(self, plural: str, name: str) -> None:
        self.foreign.discard((plural, name))
        if self.api.objects.get(plural, NAMESPACE, name) is not None:
            self.api.objects.remove((plural, NAMESPACE, name))

    def relabel(self, plural: str, name: str) -> None:
        """Somebody takes all labels of an object away."""
        found = self.api.objects.get(plural, NAMESPACE, name)
        if found is not None:
            body = {**found, "metadata": {**found["metadata"], "labels": {}}}
            self.api.objects.handle("PUT", _path((plural, NAMESPACE, name)), {}, body)

    def put_stranger(self, plural: str, name: str) -> None:
        """An object of our name that belongs to somebody else."""
        self.delete(plural, name)
        body: Json = {"metadata": {"name": name, "labels": {"app": "somebody-else"}}, "spec": {"of": "somebody else"}}
        self.api.objects.handle("POST", _path((plural, NAMESPACE, "")), {}, body)
        self.foreign.add((plural, name))

    def check_foreign(self) -> None:
        for plural, name in self.foreign:
            found = self.api.objects.get(plural, NAMESPACE, name)
            assert found is not None, f"{plural} {name} of somebody else is gone"
            assert found["spec"] == {"of": "somebody else"}, f"{plural} {name} of somebody else is changed"

    def deleted_cluster(self, *, orphan: bool) -> None:
        """The garbage collector: what the cluster owned goes too, or has no owner any more."""
        for plural in ("services", "statefulsets", "deployments", "poddisruptionbudgets"):
            for each in self.api.objects.all(plural, NAMESPACE):
                name = (plural, NAMESPACE, each["metadata"]["name"])
                if not each["metadata"].get("ownerReferences"):
                    continue
                if orphan:
                    body = {**each, "metadata": {**each["metadata"], "ownerReferences": []}}
                    self.api.objects.handle("PUT", _path(name), {}, body)
                else:
                    self.api.objects.remove(name)


def is_waiting(pod: Json) -> bool:
    """Whether it has no node."""
    return bool(pod["status"]["phase"] == "Pending")


def image_of(pod: Json) -> str:
    return str(pod["spec"]["containers"][0].get("image", ""))


def settings_of(pod: Json) -> str:
    """`name=value` lines."""
    environment: list[dict[str, Any]] = pod["spec"]["containers"][0]["env"]
    return next(str(each["value"]) for each in environment if each["name"] == "MUSTER_CONFIG")


GROUPS = {
    "pods": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "services": "/api/v1",
    "secrets": "/api/v1",
    "statefulsets": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
}


def _path(name: tuple[str, str, str]) -> str:
    plural, namespace, rest = name
    return f"{GROUPS[plural]}/namespaces/{namespace}/{plural}/{rest}".rstrip("/")
