"""`muster doctor`: what stands between a cluster and production."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from tests.support.recorded_clusters import NAMESPACE, RecordedServer, recorded

from muster_cli.oncall.doctor import Diagnosis, Finding, diagnose
from muster_cli.oncall.facts import read_facts
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.screen import diagnosis
from muster_operator.api.durations import format_time
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import CLUSTER_LABEL

NODES = ("a", "b", "c")
POLICY = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "muster-coordinator"}}, "policyTypes": ["Ingress"]}


def named(name: str, **fields: object) -> Json:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def storage_class(name: str, **fields: object) -> Json:
    usual = {
        "allowVolumeExpansion": True,
        "volumeBindingMode": "WaitForFirstConsumer",
        "provisioner": "csi.example.com",
    }
    return {"metadata": {"name": name}, **usual, **fields}


def in_production() -> Json:
    """The recorded cluster, as one has it that has heeded all advice."""
    objects = recorded("healthy")
    spec = objects["coordinatorclusters"][0]["spec"]
    listener = {
        "name": "internal",
        "tls": {"secret": "tls"},
        "authentication": {"mechanisms": ["SCRAM-SHA-512"]},
    }
    spec |= {
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
        "listeners": [listener],
        "access": {"musterUsers": True},
        "storage": {"size": "10Gi", "storageClassName": "fast"},
        "deletionProtection": True,
    }
    objects["coordinatorclusters"][0]["status"]["image"] = "example.com/muster@sha256:0123"
    objects["offsetstopics"][0]["spec"]["deletionProtection"] = True
    for node, pod in zip(NODES, objects["pods"], strict=True):
        pod["spec"]["nodeName"] = node
    for each in objects["persistentvolumeclaims"]:
        each["spec"]["storageClassName"] = "fast"
    zones = [{"topology.kubernetes.io/zone": f"zone-{node}"} for node in NODES]
    objects["nodes"] = [
        {"metadata": {"name": node, "labels": labels}} for node, labels in zip(NODES, zones, strict=True)
    ]
    objects["storageclasses"] = [storage_class("fast"), storage_class("other", provisioner="rancher.io/local-path")]
    objects["networkpolicies"] = [named("muster-coordinators", spec=POLICY)]
    env = objects["statefulsets"][0]["spec"]["template"]["spec"]["containers"][0]["env"]
    if not any(each["name"] == "MUSTER_TLS_DIR" for each in env):
        env.append({"name": "MUSTER_TLS_DIR", "value": "/tls"})
    return objects


async def examined(objects: Json, refused: tuple[str, ...] = (), later_s: float = 0.0) -> Diagnosis:
    now = objects["now"] + later_s
    objects["leases"][0]["spec"]["renewTime"] = format_time(now)
    reader = KubernetesReader(RecordedServer(objects, refused).client, NAMESPACE)
    (seen,) = await reader.look()
    return diagnose(await read_facts(reader, seen), now)


def amiss(told: Diagnosis) -> list[tuple[str, str]]:
    return [(each.check, each.level) for each in told.findings if each.level != "ok"]


async def test_cluster_that_has_all_is_ready() -> None:
    told = await examined(in_production())
    assert (told.ready, amiss(told)) == (True, [])
    checks = {each.check for each in told.findings}
    assert {"state", "pods", "replicas", "nodes", "zones", "storage class", "cpu", "disruptions"} <= checks
    assert {"network", "tls", "users", "kubernetes", "image"} <= checks


def of_cluster(**spec: object) -> Callable[[Json], None]:
    return lambda objects: objects["coordinatorclusters"][0]["spec"].update(spec)


def of_listener(**fields: object) -> Callable[[Json], None]:
    def change(objects: Json) -> None:
        (listener,) = objects["coordinatorclusters"][0]["spec"]["listeners"]
        for name, value in fields.items():
            listener.pop(name, None) if value is None else listener.update({name: value})

    return change


def on_nodes(*nodes: str) -> Callable[[Json], None]:
    def change(objects: Json) -> None:
        for node, pod in zip(nodes, objects["pods"], strict=True):
            pod["spec"]["nodeName"] = node

    return change


def replaced(plural: str, *objects_: Json) -> Callable[[Json], None]:
    return lambda objects: objects.update({plural: list(objects_)})


def plain(objects: Json) -> None:
    container = objects["statefulsets"][0]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [each for each in container["env"] if each["name"] != "MUSTER_TLS_DIR"]


def one_replica(objects: Json) -> None:
    objects["offsetstopics"][0]["spec"]["replicationFactor"] = 1


def image(name: str) -> Callable[[Json], None]:
    return lambda objects: objects["coordinatorclusters"][0]["status"].update(image=name)


def unbound(objects: Json) -> None:
    objects["persistentvolumeclaims"][1]["status"]["phase"] = "Pending"


def same_zone(objects: Json) -> None:
    for each in objects["nodes"][:2]:
        each["metadata"]["labels"]["topology.kubernetes.io/zone"] = "zone-c"
    objects["nodes"].append({"metadata": {"name": "d", "labels": {"topology.kubernetes.io/zone": "zone-d"}}})


def second_budget(objects: Json) -> None:
    (budget,) = objects["poddisruptionbudgets"]
    objects["poddisruptionbudgets"].append({**budget, "metadata": {**budget["metadata"], "name": "mine"}})


OTHERS_POLICY = named("others", spec={**POLICY, "podSelector": {"matchLabels": {CLUSTER_LABEL: "other"}}})
EGRESS_POLICY = named("egress", spec={**POLICY, "policyTypes": ["Egress"]})
CPU, MEMORY = {"cpu": "500m"}, {"memory": "512Mi"}


@pytest.mark.parametrize(
    ("change", "check", "level"),
    [
        (of_cluster(suspend=True), "state", "must"),
        (of_cluster(rollout={"paused": True}), "state", "advice"),
        (of_cluster(pods=1), "pods", "must"),
        (one_replica, "replicas", "must"),
        (of_cluster(failover={"nominateAfter": "0s"}), "failover", "advice"),
        (same_zone, "zones", "advice"),
        (unbound, "storage", "must"),
        (of_cluster(storage={"size": "10Gi"}), "storage class", "advice"),
        (
            replaced("storageclasses", storage_class("fast", provisioner="rancher.io/local-path")),
            "storage class",
            "advice",
        ),
        (replaced("storageclasses", storage_class("fast", allowVolumeExpansion=False)), "storage class", "advice"),
        (replaced("storageclasses", storage_class("fast", volumeBindingMode="Immediate")), "storage class", "advice"),
        (of_cluster(resources={"requests": MEMORY}), "cpu", "must"),
        (of_cluster(resources={"requests": {**MEMORY, "cpu": "100m"}}), "cpu", "advice"),
        (of_cluster(resources={"requests": {**MEMORY, **CPU}, "limits": CPU}), "cpu", "must"),
        (of_cluster(resources={"requests": CPU}), "memory", "must"),
        (replaced("poddisruptionbudgets"), "disruptions", "must"),
        (second_budget, "disruptions", "must"),
        (replaced("networkpolicies"), "network", "must"),
        (replaced("networkpolicies", OTHERS_POLICY, EGRESS_POLICY), "network", "must"),
        (plain, "tls", "must"),
        (of_listener(tls=None), "tls", "advice"),
        (of_listener(authentication=None), "users", "advice"),
        (of_cluster(access={"aclsSecret": "acls"}), "users", "must"),
        (of_cluster(access={"usersSecret": "users"}), "acls", "advice"),
        (image("example.com/muster:latest"), "image", "advice"),
        (of_cluster(deletionProtection=False), "protection", "advice"),
        (of_cluster(deletionPolicy="Delete"), "protection", "advice"),
        (of_cluster(settings={"muster.flush.os": "1"}), "durability", "advice"),
    ],
)
async def test_one_thing_that_is_amiss_is_found_and_nothing_else(
    change: Callable[[Json], None], check: str, level: str
) -> None:
    objects = in_production()
    change(objects)
    told = await examined(objects)
    assert (amiss(told), told.ready) == ([(check, level)], level != "must")
    assert all(each.fix and each.reason for each in told.findings if each.level != "ok")


@pytest.mark.parametrize(("nodes", "level"), [(("a", "a", "b"), "must"), (("a", "b", "c"), "ok")])
async def test_majority_on_one_node_must_be_mended(nodes: tuple[str, ...], level: str) -> None:
    objects = in_production()
    on_nodes(*nodes)(objects)
    assert [each.level for each in (await examined(objects)).findings if each.check == "nodes"] == [level]


async def test_listener_for_clients_outside_must_have_tls_and_users() -> None:
    objects = in_production()
    objects["coordinatorclusters"][0]["spec"]["listeners"].append({"name": "outside", "port": 9094, "type": "NodePort"})
    assert amiss(await examined(objects)) == [("tls", "must"), ("users", "must")]


async def test_default_class_is_looked_at_where_claims_name_none() -> None:
    objects = in_production()
    for each in objects["persistentvolumeclaims"]:
        del each["spec"]["storageClassName"]
    objects["coordinatorclusters"][0]["spec"]["storage"] = {"size": "10Gi"}
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    objects["storageclasses"][1]["metadata"]["annotations"] = default
    reasons = [each.reason for each in (await examined(objects)).findings if each.check == "storage class"]
    assert [each.split()[0] for each in reasons] == ["spec.storage.storageClassName", "other"]


async def test_what_may_not_be_read_is_unknown_and_stands_in_nobodys_way() -> None:
    kinds = ("nodes", "persistentvolumeclaims", "storageclasses", "poddisruptionbudgets", "networkpolicies")
    told = await examined(in_production(), (*kinds, "statefulsets", "leases"))
    assert told.ready
    assert {check for check, level in amiss(told) if level == "unknown"} == {
        *("state", "zones", "storage", "disruptions", "network", "tls")
    }
    told = await examined(in_production(), ("storageclasses",))
    assert amiss(told) == [("storage class", "unknown")]


async def test_cluster_that_needs_a_person_is_not_ready() -> None:
    told = await examined(recorded("majority_lost"), later_s=61)
    (state,) = [each for each in told.findings if each.check == "state"]
    assert (told.ready, state.level, "NoMajority" in state.reason) == (False, "must", True)


async def test_text_has_findings_with_fixes_to_copy_and_hides_what_is_in_order() -> None:
    objects = in_production()
    of_cluster(pods=1)(objects)
    told = await examined(objects)
    to = Console(width=80)
    with to.capture() as captured:
        to.print(diagnosis(told, show_all=False), soft_wrap=True)
    text = captured.get()
    assert text.startswith("shop/orders  1 must, 0 advice, 0 unknown")
    fix = 'kubectl -n shop patch coordinatorcluster orders --type merge -p \'{"spec":{"pods":3}}\''
    assert f"fix: {fix}" in text
    assert "kubernetes" not in text
    with to.capture() as captured:
        to.print(diagnosis(told, show_all=True), soft_wrap=True)
    assert "v1.34.1" in captured.get()


async def test_old_kubernetes_and_several_images_are_told() -> None:
    objects = in_production()
    objects["pods"][0]["spec"]["containers"][0]["image"] = "example.com/muster@sha256:0124"
    objects["pods"][1]["spec"]["containers"][0]["image"] = "example.com/muster@sha256:0123"
    reader = KubernetesReader(RecordedServer(objects).client, NAMESPACE)
    objects["leases"][0]["spec"]["renewTime"] = format_time(objects["now"])
    (seen,) = await reader.look()
    facts = await read_facts(reader, seen)
    old = diagnose(replace(facts, server="v1.30.2"), objects["now"])
    levels: list[Finding] = [each for each in old.findings if each.check in ("kubernetes", "image")]
    assert [(each.check, each.level) for each in levels] == [
        *(("kubernetes", "must"), ("image", "advice"), ("image", "ok"))
    ]
