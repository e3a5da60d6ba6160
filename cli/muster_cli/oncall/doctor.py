"""`muster doctor`: what stands between a cluster and production, each with a reason and a fix. Pure.

`must`: it will cost availability, data or secrecy. `advice`: it can, or makes work. `unknown`: it may not be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

import msgspec

from muster_cli.oncall.facts import Facts
from muster_cli.oncall.verdict import judge
from muster_operator.api.conditions import ConditionType, condition_status
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import Listener
from muster_operator.api.quantities import parse_quantity
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import CLUSTER_LABEL, is_secured
from muster_operator.kube.pod_info import ZONE_LABEL
from muster_operator.plan.hints import patch

Level = Literal["ok", "advice", "must", "unknown"]

OLDEST_SERVER = (1, 32)
"""The oldest version of Kubernetes, as the charts have it."""
LITTLE_CPU = Decimal("0.2")
"""A request below it is for trying things out: 100 groups that commit every 10 ms take twice as much in each pod."""
LOCAL_PROVISIONERS = ("local-path", "hostpath", "no-provisioner", "topolvm", "openebs.io/local")
"""Parts of the names of provisioners whose volumes are on one node."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PASSWORDS = {"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `reason` says what is so and what follows; `fix`: what to do, "" if nothing."""

    check: str
    level: Level
    reason: str
    fix: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """The findings of one cluster, as `--json` prints it. `ready`: nothing is a `must`."""

    namespace: str
    cluster: str
    ready: bool
    findings: tuple[Finding, ...]


def diagnose(facts: Facts, now: float) -> Diagnosis:
    """The findings at `now`, in seconds since 1970, the gravest first."""
    order = ("must", "advice", "unknown", "ok")
    found = [
        *_state(facts, now),
        *_copies(facts),
        *_nodes(facts),
        *_storage(facts),
        *_resources(facts),
        *_disruptions(facts),
        *_network(facts),
        *_tls(facts),
        *_users(facts),
        *_versions(facts),
        *_protection(facts),
    ]
    meta = facts.seen.cluster.metadata
    ready = not any(each.level == "must" for each in found)
    return Diagnosis(meta.namespace, meta.name, ready, tuple(sorted(found, key=lambda each: order.index(each.level))))


def _state(facts: Facts, now: float) -> Iterator[Finding]:
    verdict, spec = judge(facts.seen, now), facts.seen.cluster.spec
    if verdict.needs_person:
        first = verdict.needs_person[0]
        told = f"{first.about} {first.reason}: {first.message}"
        yield Finding("state", "must", f"something needs a person: {told}", "muster status")
    elif spec.suspend:
        fix = patch("coordinatorcluster", facts.seen.cluster.metadata, {"suspend": False})
        yield Finding("state", "must", "spec.suspend is set: no leader is elected when one is lost", fix)
    elif spec.hibernate or spec.rollout.paused:
        field = "hibernate" if spec.hibernate else "rollout.paused"
        yield Finding("state", "advice", f"spec.{field} is set", "take it back when its reason is gone")
    elif facts.seen.operator is None:
        yield Finding("state", "unknown", "the Lease of the operator may not be read", "bind muster-view")
    else:
        yield Finding("state", "ok", f"nothing needs a person, and operator {facts.seen.operator.holder} acts")


def _copies(facts: Facts) -> Iterator[Finding]:
    spec = facts.seen.cluster.spec
    if spec.pods < 3:
        fix = patch("coordinatorcluster", facts.seen.cluster.metadata, {"pods": 3})
        yield Finding("pods", "must", f"spec.pods is {spec.pods}: a lost pod is lost service", fix)
    else:
        yield Finding("pods", "ok", f"{spec.pods} pods")
    if not facts.seen.topics:
        yield Finding("replicas", "must", "no OffsetsTopic refers to this cluster: no group is served", "create one")
    for topic in facts.seen.topics:
        factor = topic.spec.replication_factor
        if factor == 1:
            text = f"{topic.metadata.name} has one replica of each partition: a lost volume is lost offsets"
            fix = patch("offsetstopic", topic.metadata, {"replicationFactor": 3})
            yield Finding("replicas", "must", text, fix)
        else:
            yield Finding("replicas", "ok", f"{topic.metadata.name} has {factor} of each partition")
    if parse_duration(spec.failover.nominate_after) == 0:
        text = "spec.failover.nominateAfter is 0s: without an operator no replica ever takes over from a dead leader"
        yield Finding("failover", "advice", text, "leave it at 10s, unless clocks stop for long")


def _nodes(facts: Facts) -> Iterator[Finding]:
    nodes = [pod.node for pod in facts.seen.pods if pod.node]
    if not nodes:
        return
    most = max(nodes.count(each) for each in nodes)
    fix = "have as many nodes as pods that they fit on, or podTemplate.affinity that keeps them apart"
    if most * 2 > len(nodes) and len(nodes) > 1:
        text = f"{most} of {len(nodes)} pods are on one node: with it most replicas are lost"
        yield Finding("nodes", "must", text, fix)
    elif most > 1:
        yield Finding("nodes", "advice", f"{most} of {len(nodes)} pods are on one node", fix)
    else:
        yield Finding("nodes", "ok", f"{len(nodes)} pods on {len(nodes)} nodes")
    if facts.nodes is None:
        yield Finding("zones", "unknown", "nodes may not be read", "bind muster-view by a ClusterRoleBinding")
        return
    zones = {each["metadata"]["name"]: each["metadata"].get("labels", {}).get(ZONE_LABEL) for each in facts.nodes}
    of_pods = {zone for each in nodes if (zone := zones.get(each))}
    there = {zone for zone in zones.values() if zone}
    if len(of_pods) < min(len(there), 3):
        text = f"pods are in {len(of_pods)} of {len(there)} zones"
        yield Finding("zones", "advice", text, "have nodes with room in three zones, and volumes that can be there")
    elif there:
        yield Finding("zones", "ok", f"pods are in {len(of_pods)} of {len(there)} zones")


def _storage(facts: Facts) -> Iterator[Finding]:
    if facts.claims is None:
        yield Finding("storage", "unknown", "claims of volumes may not be read", "bind muster-view")
        return
    unbound = [each["metadata"]["name"] for each in facts.claims if each.get("status", {}).get("phase") != "Bound"]
    if unbound:
        yield Finding("storage", "must", f"claim {unbound[0]} has no volume", f"kubectl describe pvc {unbound[0]}")
    named = facts.seen.cluster.spec.storage.storage_class_name
    if named is None:
        text = "spec.storage.storageClassName is not set: the volumes follow the default class of the day"
        yield Finding("storage class", "advice", text, "name one when you create the cluster; it cannot be changed")
    if facts.classes is None:
        fix = "bind muster-view by a ClusterRoleBinding"
        yield Finding("storage class", "unknown", "storage classes may not be read", fix)
        return
    used = {each["spec"].get("storageClassName") for each in facts.claims} - {None}
    for each in facts.classes:
        default = each["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true"
        if each["metadata"]["name"] in used or (not used and (named == each["metadata"]["name"] or default)):
            yield from _storage_class(each)


def _storage_class(raw: Json) -> Iterator[Finding]:
    name, provisioner = raw["metadata"]["name"], raw["provisioner"]
    found = False
    if any(part in provisioner for part in LOCAL_PROVISIONERS):
        found = True
        text = f"{name} ({provisioner}) has volumes on one node: a lost node is a lost replica, copied anew from others"
        fix = "network volumes, or spec.storage.giveUpAfter, so that the pod gets an empty one elsewhere"
        yield Finding("storage class", "advice", text, fix)
    if not raw.get("allowVolumeExpansion"):
        found = True
        text = f"{name} does not allow volumes to grow: spec.storage.size cannot be raised"
        yield Finding("storage class", "advice", text, "a class with allowVolumeExpansion: true")
    if raw.get("volumeBindingMode") == "Immediate":
        found = True
        text = f"{name} binds volumes before pods have a node: they can be in a zone that has no room"
        yield Finding("storage class", "advice", text, "a class with volumeBindingMode: WaitForFirstConsumer")
    if not found:
        yield Finding("storage class", "ok", f"{name} ({provisioner})")


def _resources(facts: Facts) -> Iterator[Finding]:
    resources, meta = facts.seen.cluster.spec.resources, facts.seen.cluster.metadata
    cpu = resources.requests.get("cpu")
    raise_it = patch("coordinatorcluster", meta, {"resources": {"requests": {"cpu": "500m"}}})
    if cpu is None or parse_quantity(str(cpu)) == 0:
        text = "no CPU request: on a busy node a pod gets almost none, and its leaders lose their majority"
        yield Finding("cpu", "must", text, raise_it)
    elif parse_quantity(str(cpu)) < LITTLE_CPU:
        yield Finding("cpu", "advice", f"a CPU request of {cpu} is for trying things out", raise_it)
    else:
        yield Finding("cpu", "ok", f"request of {cpu}")
    if "cpu" in resources.limits:
        fix = patch("coordinatorcluster", meta, {"resources": {"limits": {"cpu": None}}})
        text = f"a CPU limit of {resources.limits['cpu']}: a throttled pod does not answer, and is taken for dead"
        yield Finding("cpu", "must", text, fix)
    if "memory" not in resources.requests:
        fix = patch("coordinatorcluster", meta, {"resources": {"requests": {"memory": "512Mi"}}})
        text = "no memory request: the pods are the first that a node under pressure ends"
        yield Finding("memory", "must", text, fix)


def _disruptions(facts: Facts) -> Iterator[Finding]:
    if facts.budgets is None:
        yield Finding("disruptions", "unknown", "PodDisruptionBudgets may not be read", "bind muster-view")
        return
    labels = _pod_labels(facts)
    of_pods = [each for each in facts.budgets if _selects(each["spec"].get("selector"), labels)]
    if not of_pods:
        text = "no PodDisruptionBudget selects the pods: a drain of two nodes can take a majority"
        yield Finding(
            "disruptions", "must", text, "it is the operator's to make: see its log and the rights that it has"
        )
    elif len(of_pods) > 1:
        names = ", ".join(each["metadata"]["name"] for each in of_pods)
        text = f"{names} select the same pods: Kubernetes then evicts none, and nodes do not drain"
        yield Finding("disruptions", "must", text, "delete those that are not the operator's")
    else:
        yield Finding("disruptions", "ok", f"PodDisruptionBudget {of_pods[0]['metadata']['name']}")


def _network(facts: Facts) -> Iterator[Finding]:
    if facts.policies is None:
        yield Finding("network", "unknown", "NetworkPolicies may not be read", "bind muster-view")
        return
    labels = _pod_labels(facts)
    found = [
        each["metadata"]["name"]
        for each in facts.policies
        if _selects(each["spec"].get("podSelector"), labels)
        and "Ingress" in each["spec"].get("policyTypes", ["Ingress"])
    ]
    if found:
        text = f"{', '.join(found)}; whether they are enforced is up to the network of this Kubernetes"
        yield Finding("network", "ok", text)
    else:
        text = "no NetworkPolicy selects the pods: everything in the pod network reaches their inner ports"
        yield Finding(
            "network", "must", text, "networkPolicies.namespaces of the chart, or config/network-policies.yaml"
        )


def _tls(facts: Facts) -> Iterator[Finding]:
    for each in facts.stateful_sets or ():
        if is_secured(each["spec"]["template"]["spec"]):
            yield Finding("tls", "ok", "pod API and network between pods are on mutual TLS")
        else:
            text = "pod API and network between pods are plain: who reaches them leads partitions and reads offsets"
            yield Finding("tls", "must", text, "set spec.hibernate and take it back: pods that run plain stay so")
    if facts.stateful_sets is None:
        yield Finding("tls", "unknown", "StatefulSets may not be read", "bind muster-view")
    for listener in facts.seen.cluster.spec.listeners:
        outside = listener.type != "Internal"
        if listener.tls is not None:
            yield Finding("tls", "ok", f"listener {listener.name}")
        else:
            text = f"listener {listener.name} ({listener.type}) is plain: its network reads along"
            yield Finding("tls", "must" if outside else "advice", text, _listener_fix(listener, "tls.secret"))


def _users(facts: Facts) -> Iterator[Finding]:
    spec = facts.seen.cluster.spec
    from_somewhere = spec.access.muster_users or spec.access.users_secret is not None
    for listener in spec.listeners:
        by_certificate = listener.tls is not None and listener.tls.client_auth == "required"
        if listener.authentication is None and not by_certificate:
            level: Level = "advice" if listener.type == "Internal" else "must"
            text = f"listener {listener.name} ({listener.type}) asks nobody who he is"
            yield Finding("users", level, text, _listener_fix(listener, "authentication.mechanisms"))
        elif listener.authentication and PASSWORDS & set(listener.authentication.mechanisms) and not from_somewhere:
            text = f"listener {listener.name} asks for passwords, and there are no users"
            yield Finding("users", "must", text, "spec.access.musterUsers: true, and MusterUsers (docs/access.md)")
        else:
            yield Finding("users", "ok", f"listener {listener.name} asks who comes")
    if not spec.access.muster_users and spec.access.acls_secret is None:
        text = "there are no ACLs: everybody who connects may do everything to every group"
        yield Finding("acls", "advice", text, "spec.access.musterUsers or spec.access.aclsSecret (docs/access.md)")


def _versions(facts: Facts) -> Iterator[Finding]:
    cluster = facts.seen.cluster
    number = re.match(r"v?(\d+)\.(\d+)", facts.server)
    oldest = ".".join(map(str, OLDEST_SERVER))
    if number is None:
        yield Finding("kubernetes", "unknown", "its version is not told")
    elif (int(number[1]), int(number[2])) < OLDEST_SERVER:
        yield Finding("kubernetes", "must", f"{facts.server} is older than {oldest}", f"{oldest} or later")
    else:
        yield Finding("kubernetes", "ok", facts.server)
    image = cluster.status.image
    tag = image.rpartition("/")[2].partition(":")[2]
    if "@sha256:" in image:
        yield Finding("image", "ok", image)
    elif image:
        moves = "" if tag not in ("", "latest", "local") else ", and this tag is made to change"
        text = f"{image} is not pinned by a digest{moves}"
        yield Finding("image", "advice", text, "spec.image with @sha256:..., or image.digest of the chart")
    images = {pod.image for pod in facts.seen.pods if pod.image}
    if len(images) > 1:
        yield Finding("image", "advice", f"pods run {len(images)} images: {', '.join(sorted(images))}", "muster status")
    if condition_status(cluster.status.conditions, ConditionType.UPGRADE_AVAILABLE) == "True":
        yield Finding("image", "advice", "the operator brings a newer one", "kubectl describe coordinatorcluster")


def _protection(facts: Facts) -> Iterator[Finding]:
    spec, meta = facts.seen.cluster.spec, facts.seen.cluster.metadata
    protected: list[tuple[str, bool, Any]] = [("coordinatorcluster", spec.deletion_protection, meta)]
    protected += [("offsetstopic", each.spec.deletion_protection, each.metadata) for each in facts.seen.topics]
    for kind, is_on, of in protected:
        if not is_on:
            text = f"{kind} {of.name} can be deleted by mistake"
            yield Finding("protection", "advice", text, patch(kind, of, {"deletionProtection": True}))
    if spec.deletion_policy == "Delete":
        fix = patch("coordinatorcluster", meta, {"deletionPolicy": "Retain"})
        yield Finding("protection", "advice", "spec.deletionPolicy is Delete: volumes go with the cluster", fix)
    if spec.settings.get("muster.flush.os", "0") != "0":
        text = "muster.flush.os: a commit that was answered is not on a disk yet; a power loss of a majority loses it"
        yield Finding("durability", "advice", text, "leave it out of spec.settings, unless that is what you want")


def _listener_fix(listener: Listener, field: str) -> str:
    return f"spec.listeners[name={listener.name}].{field} (docs/access.md)"


def _pod_labels(facts: Facts) -> dict[str, str]:
    name = facts.seen.cluster.metadata.name
    return {
        **facts.seen.cluster.spec.pod_template.labels,
        "app.kubernetes.io/name": "muster-coordinator",
        CLUSTER_LABEL: name,
    }


def _selects(selector: Json | None, labels: dict[str, str]) -> bool:
    """Compares the selector's labels; one with expressions is taken for one that selects, because it may."""
    return selector is not None and dict(selector.get("matchLabels") or {}).items() <= labels.items()
