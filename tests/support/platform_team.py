"""A cluster under a checked load, as those who look after it see it: they change its objects, and no commit is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.fake_kubernetes import LEASE
from tests.support.kube import as_list, kubectl
from tests.support.muster_cluster import MusterCluster, wait_until

from muster_cli.demo.consumers import committed_offsets
from muster_cli.demo.meter import Meter

TOPIC = "orders"
READY_S = 150.0
INTERNAL: dict[str, Any] = {"name": "internal", "advertise": "PodIP"}


class Cared(MusterCluster):
    """A CoordinatorCluster and an OffsetsTopic, both of this name, declared by `apply`."""

    def apply(self, *, partitions: int = 8, factor: int = 3, **spec: Any) -> None:
        meta = {"name": self.name}
        cluster = {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "CoordinatorCluster",
            "metadata": meta,
            "spec": {
                "listeners": [INTERNAL],
                "storage": {"size": "1Gi"},
                "topics": [{"name": TOPIC, "partitions": 6}],
                "failover": {"rebalanceAfter": "2s"},
                **spec,
            },
        }
        topic = {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "OffsetsTopic",
            "metadata": meta,
            "spec": {"clusterRef": meta, "partitions": partitions, "replicationFactor": factor},
        }
        self.kubectl("apply", "-f", "-", stdin=as_list((cluster, topic)))

    def patch(self, kind: str = "coordinatorcluster", *, check: bool = True, **spec: Any) -> str:
        """Merge these fields into the spec; what kubectl says of it, also if that is a refusal and not `check`."""
        body = json.dumps({"spec": spec})
        done = kubectl("-n", self.namespace, "patch", kind, self.name, "--type=merge", "-p", body, check=check)
        return done.stdout + done.stderr

    def status(self, kind: str = "coordinatorclusters") -> dict[str, Any]:
        (found,) = self.objects(kind)
        return dict(found.get("status", {}))

    def condition(self, type_: str, kind: str = "coordinatorclusters") -> dict[str, str]:
        found = (each for each in self.status(kind).get("conditions", ()) if each["type"] == type_)
        return dict(next(found, {}))

    def wait_for_reason(self, type_: str, reason: str) -> str:
        """The message of a condition, once it has this reason."""
        wait_until(lambda: self.condition(type_).get("reason") == reason, f"{type_} says {reason}", READY_S)
        return self.condition(type_)["message"]

    def wait_whole(self) -> None:
        """Cluster and topics are Ready for the generation that is declared now."""

        def whole() -> bool:
            objects = [*self.objects("offsetstopics"), *self.objects("coordinatorclusters")]
            return len(objects) >= 2 and all(map(_is_ready, objects))

        wait_until(whole, "cluster and topics are Ready", READY_S)

    def wait_at_home(self) -> None:
        """Every partition is led by the first of its replicas, so that no leader moves any more."""

        def at_home() -> bool:
            statuses = [each.get("status", {}) for each in self.objects("offsetspartitions")]
            return bool(statuses) and all(each.get("leader") == each["replicas"][0]["pod"] for each in statuses)

        wait_until(at_home, "every partition is led by its preferred leader", READY_S)

    def evict(self, pod: str) -> str:
        """Evict a pod as `kubectl drain` does. Returns the answer of the API server."""
        meta = {"name": pod, "namespace": self.namespace}
        body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        done = kubectl("create", "--raw", path, "-f", "-", stdin=body, check=False)
        return done.stdout + done.stderr

    def runs(self) -> dict[str, tuple[str, int]]:
        """(uid, restarts) of each pod, by its name: they change when the pod or its container restarts."""
        return {pod.name: (pod.uid, pod.restarts) for pod in self.pods()}


class Outside(Cared):
    """The cluster as clients outside see it: they know addresses of nodes alone, which stay when pods are replaced."""

    def bootstrap(self) -> str:
        (listener,) = self.status()["listeners"]
        return str(listener["bootstrap"])


def listeners(first_node_port: int) -> list[dict[str, Any]]:
    """An Internal listener, and one of ports of the nodes."""
    outside = {"name": "outside", "port": 9094, "type": "NodePort", "firstNodePort": first_node_port}
    return [INTERNAL, outside]


def operator_that_acts(namespace: str) -> str:
    """The holder of the Lease there: the name of its pod behind the last slash; "" while there is none."""
    path = "jsonpath={.spec.holderIdentity}"
    return kubectl("-n", namespace, "get", "lease", LEASE, "-o", path, check=False).stdout


def _is_ready(item: dict[str, Any]) -> bool:
    ready = [each for each in item.get("status", {}).get("conditions", ()) if each["type"] == "Ready"]
    return [(each["status"], each["observedGeneration"]) for each in ready] == [
        ("True", item["metadata"]["generation"])
    ]


@contextmanager
def cared_for(namespace: str, name: str, **spec: Any) -> Iterator[Cared]:
    """A cluster in a namespace of its own, whole. At the end what its resources say is printed."""
    kubectl("create", "namespace", namespace)
    cluster = Cared(namespace, name)
    try:
        cluster.apply(**spec)
        cluster.wait_whole()
        yield cluster
    finally:
        print(cluster.summary())
        kubectl("delete", "namespace", namespace, "--wait=false")


@dataclass
class Load:
    """Clients that commit rising offsets, each for a group of its own; the groups are in several partitions."""

    cluster: MusterCluster
    meters: list[Meter]

    @classmethod
    def begin(cls, cluster: MusterCluster, name: str, groups: int = 6) -> Load:
        meters = [Meter(cluster.bootstrap(), f"{name}-{number}", TOPIC) for number in range(groups)]
        for meter in meters:
            meter.start()
        wait_until(lambda: all(meter.count > 20 for meter in meters), "clients commit")
        return cls(cluster, meters)

    def goes_on(self) -> None:
        now = time.monotonic()
        wait_until(lambda: all(meter.count_after(now) > 20 for meter in self.meters), "clients commit again")

    def end(self) -> dict[str, int]:
        """The last acknowledged offset of each group."""
        for meter in self.meters:
            meter.stop()
        assert [meter.error for meter in self.meters] == [None] * len(self.meters)
        return {meter.group: meter.count for meter in self.meters}

    def end_with_nothing_lost(self) -> None:
        nothing_is_lost(self.cluster, self.end())


def nothing_is_lost(cluster: MusterCluster, acknowledged: dict[str, int]) -> None:
    """Neither lost nor reverted nor invented: at most the one commit that had no answer is there as well."""
    for group, offset in acknowledged.items():
        found = committed_offsets(cluster.bootstrap(), group, TOPIC, 1, 20.0)
        assert found[0] in (offset, offset + 1), group
