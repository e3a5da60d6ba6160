"""Clients outside reach each pod: by a Service of its own, whose address the metadata image tells them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.kube.test_manifests import Applying, cluster, container, environment, pod

from muster_operator.kube.client import KubeClient
from muster_operator.kube.external import external_services
from muster_operator.kube.manifests import DECLARED, manifests, own_labels
from muster_operator.kube.pod_info import Node, node_of, pod_info
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey

KEY = ClusterKey("ns", "a")
SERVICES = "/api/v1/namespaces/ns/services"
INTERNAL = {"name": "internal", "port": 9092}
NODE_PORT = {"name": "outside", "port": 9094, "type": "NodePort"}
BALANCED = {"name": "cloud", "port": 9095, "type": "LoadBalancer", "annotations": {"cloud/internal": "true"}}


def listening(*listeners: dict[str, Any], **spec: Any) -> Any:
    return cluster(listeners=[INTERNAL, *listeners], **spec)


def services(subject: Any) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for _, each in external_services(subject)}


SIDES = {"probes": 9642, "metrics": 9643}


def test_each_pod_has_a_service_for_each_listener_and_listens_there() -> None:
    subject = listening(NODE_PORT, BALANCED, pods=2)
    made = services(subject)
    assert [*made] == ["a-outside-0", "a-outside-1", "a-cloud-0", "a-cloud-1"]
    first, last = made["a-outside-0"], made["a-cloud-1"]
    assert (first["spec"]["type"], last["spec"]["type"]) == ("NodePort", "LoadBalancer")
    assert last["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == "a-1"
    assert last["spec"]["ports"] == [{"name": "cloud", "port": 9095, "targetPort": "cloud"}]
    assert last["spec"]["publishNotReadyAddresses"]
    assert last["metadata"]["annotations"] == {"cloud/internal": "true"}
    assert environment(subject)["MUSTER_LISTENERS"].splitlines() == ["outside=0.0.0.0:9094", "cloud=0.0.0.0:9095"]
    ports = {each["name"]: each["containerPort"] for each in container(subject)["ports"]}
    assert ports == {"kafka": 9092, "outside": 9094, "cloud": 9095, "api": 9640, "peer": 9641, **SIDES}
    assert (services(cluster()), "MUSTER_LISTENERS" in environment(cluster())) == ({}, False)


def test_node_ports_are_those_that_are_declared() -> None:
    made = services(listening({**NODE_PORT, "firstNodePort": 30100}, pods=3))
    assert [each["spec"]["ports"][0]["nodePort"] for each in made.values()] == [30100, 30101, 30102]


def test_annotations_of_services_replace_no_pod_and_another_port_does() -> None:
    def declared(*listeners: dict[str, Any]) -> str:
        return str(manifests(listening(*listeners), "i")[-1][1]["metadata"]["annotations"][DECLARED])

    other = {**BALANCED, "annotations": {}}
    assert declared(BALANCED) == declared(other)
    assert len({declared(), declared(BALANCED), declared({**BALANCED, "port": 9096})}) == 3


def service(name: str, listener: str, spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    labels = {**own_labels(cluster()), "muster.dev/listener": listener}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels, "resourceVersion": "7"}
    return {"metadata": meta, "spec": spec, "status": status}


def on_node(spec_type: str = "NodePort", number: int = 30001) -> dict[str, Any]:
    return {"type": spec_type, "ports": [{"port": 9094, "nodePort": number}]}


def listening_pod(*listeners: str) -> dict[str, Any]:
    raw = pod("a-1")
    raw["spec"]["nodeName"] = "n"
    raw["spec"]["containers"][0]["ports"] = [{"name": each} for each in ("kafka", *listeners)]
    return raw


@pytest.mark.parametrize(
    ("found", "node", "expected"),
    [
        (service("a-outside-1", "outside", on_node()), "1.2.3.4", "1.2.3.4:30001"),
        (service("a-outside-1", "outside", on_node()), "fd00::1", "[fd00::1]:30001"),
        (service("a-outside-1", "outside", on_node()), "", None),
        (service("a-outside-0", "outside", on_node()), "1.2.3.4", None),
        (service("somebody", "outside", on_node()), "1.2.3.4", None),
        (service("a-outside-1", "outside", on_node("LoadBalancer")), "1.2.3.4", None),
        (
            service("a-outside-1", "outside", on_node("LoadBalancer"), loadBalancer={"ingress": [{"ip": "5.6.7.8"}]}),
            "1.2.3.4",
            "5.6.7.8:9094",
        ),
        (
            service("a-outside-1", "outside", on_node("LoadBalancer"), loadBalancer={"ingress": [{"hostname": "lb"}]}),
            "",
            "lb:9094",
        ),
    ],
    ids=["node", "ipv6", "node unknown", "other pod", "other name", "no balancer yet", "ip", "hostname"],
)
def test_address_is_that_of_the_pods_own_service(found: dict[str, Any], node: str, expected: str | None) -> None:
    nodes = {"n": Node(address=node)}
    assert pod_info(listening_pod("outside"), "", nodes, [found]).endpoints.get("outside") == expected


def test_pod_of_an_older_template_does_not_listen_there_and_has_no_address() -> None:
    nodes = {"n": Node(address="1.2.3.4")}
    assert pod_info(listening_pod(), "", nodes, [service("a-outside-1", "outside", on_node())]).endpoints == {}


def test_node_is_reached_from_outside_before_inside() -> None:
    inside, outside = {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "1.2.3.4"}
    assert node_of({"metadata": {}, "status": {"addresses": [inside, outside]}}).address == "1.2.3.4"
    assert node_of({"metadata": {}, "status": {"addresses": [inside]}}).address == "10.0.0.1"
    assert node_of({"metadata": {}}).address == ""


class Deleting(Applying):
    """An API server that says what was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    async def delete(self, path: str, uid: str) -> None:
        assert uid == f"uid-{path.rpartition('/')[2]}"
        self.deleted.append(path)


def working() -> tuple[KubeWorkload, Deleting]:
    server = Deleting()
    return KubeWorkload(cast(KubeClient, server), "muster:1"), server


async def test_services_of_pods_and_listeners_that_are_gone_are_deleted_and_others_stay() -> None:
    workload, server = working()
    for name in ("a-outside-0", "a-outside-1", "a-outside-2", "a-gone-0"):
        workload.deliver_service("ADDED", service(name, name.split("-")[1], on_node()))
    plain = service("a-bootstrap", "", on_node())
    del plain["metadata"]["labels"]["muster.dev/listener"]
    foreign = service("a-outside-3", "outside", on_node())
    foreign["metadata"]["ownerReferences"] = [{"controller": True, "uid": "another"}]
    for each in (plain, foreign):
        workload.deliver_service("ADDED", each)
    await workload.ensure_pods(listening(NODE_PORT, pods=2))
    assert server.deleted == [f"{SERVICES}/a-outside-2", f"{SERVICES}/a-gone-0"]


async def test_cluster_that_hibernates_keeps_its_addresses() -> None:
    workload, server = working()
    workload.deliver_service("ADDED", service("a-outside-0", "outside", on_node()))
    asleep = listening(NODE_PORT, hibernate=True)
    await workload.ensure_pods(replace(asleep, spec=replace(asleep.spec, pods=0)))
    assert server.deleted == []


async def test_address_that_comes_later_is_told_and_a_deleted_service_is_applied_again() -> None:
    workload, server = working()
    workload.deliver_pod("ADDED", listening_pod("outside"))
    wanted = listening({**NODE_PORT, "type": "LoadBalancer"})
    await workload.ensure_pods(wanted)
    assert f"{SERVICES}/a-outside-1" in server.applied
    told: list[ClusterKey] = []
    workload.watch(told.append)
    assert "as declared" in await workload.ensure_pods(wanted)
    [before] = await workload.pods(KEY)
    given = service("a-outside-1", "outside", on_node("LoadBalancer"), loadBalancer={"ingress": [{"ip": "5.6.7.8"}]})
    workload.deliver_service("MODIFIED", given)
    [after] = await workload.pods(KEY)
    assert (before.endpoints, after.endpoints, told) == ({}, {"outside": "5.6.7.8:9094"}, [KEY])
    server.applied.clear()
    deleted = {**given, "metadata": {**given["metadata"], "resourceVersion": "9"}}
    workload.deliver_service("DELETED", deleted)
    await workload.ensure_pods(wanted)
    assert f"{SERVICES}/a-outside-1" in server.applied


async def test_own_write_is_no_reason_to_look_again() -> None:
    workload, server = working()
    wanted = listening(NODE_PORT)
    await workload.ensure_pods(wanted)
    told: list[ClusterKey] = []
    workload.watch(told.append)
    workload.deliver_service("MODIFIED", {**server.bodies["Service"], "metadata": written(server.bodies["Service"])})
    assert told == []


def written(body: dict[str, Any]) -> dict[str, Any]:
    return {**body["metadata"], "resourceVersion": "6"}


async def test_service_that_is_deleted_while_objects_are_applied_is_applied_again() -> None:
    """Two are deleted; the event of the second one comes while the first one is being mended."""
    workload, server = working()
    wanted = listening(NODE_PORT)
    await workload.ensure_pods(wanted)
    deleted = service("a-outside-1", "outside", on_node())
    deleted["metadata"]["resourceVersion"] = "9"
    read = server.get

    async def get(path: str) -> dict[str, Any]:
        if path.endswith("/a"):  # the StatefulSet is read last
            workload.deliver_service("DELETED", deleted)
        return await read(path)

    server.get = get  # type: ignore[method-assign]
    workload.deliver_service("DELETED", {**deleted, "metadata": {**deleted["metadata"], "name": "a-outside-0"}})
    await workload.ensure_pods(wanted)
    server.get = read  # type: ignore[method-assign]
    server.applied.clear()
    await workload.ensure_pods(wanted)
    assert f"{SERVICES}/a-outside-1" in server.applied
