"""Every object that the operator makes is as it was within seconds of an edit and of a deletion, under load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hack import kubernetes_machine as machine
from tests.kubernetes.test_external_access import node_address
from tests.kubernetes.test_users import declare
from tests.support.kube import install_operator, kubectl
from tests.support.muster_cluster import wait_until
from tests.support.platform_team import READY_S, Cared, Load, cared_for, listeners

from muster_operator.kube.certificates import RECORDS
from muster_operator.kube.client import FIELD_MANAGER
from muster_operator.kube.users import USERS

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

NAMESPACE, NAME, USER, GUARDED = "muster-drift", "small", "billing", "guarded"
FIRST_PORT = 31960
SECONDS = 15.0
"""Secrets are looked at each 5 s; the rest is for a busy machine."""

TEMPLATE = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
BUDGET = {"spec": {"maxUnavailable": 2}}
PART_OF = {"metadata": {"labels": {"app.kubernetes.io/part-of": "mine"}}}
SERVICE = {**PART_OF, "spec": {"selector": {"muster.dev/cluster": "x"}}}


@dataclass(frozen=True)
class Made:
    """An object that the operator makes, and an edit of it as a merge patch."""

    kind: str
    name: str
    edit: dict[str, Any]
    subresource: str = ""

    @property
    def named(self) -> str:
        return f"{self.kind}/{self.name}"


def secret(name: str, file: str) -> Made:
    return Made(
        "secrets", name, {"data": {file: "bWluZQ=="}, "metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}
    )


def record(name: str, entry: str) -> Made:
    return Made("secrets", name, {"data": {entry: "bWluZQ=="}})


def of_pods(name: str) -> tuple[Made, ...]:
    return (
        secret(f"{name}-pod-tls", "tls.crt"),
        secret(f"{name}-reader-tls", "ca.crt"),
        Made("services", f"{name}-pods", SERVICE),
        Made("services", f"{name}-bootstrap", SERVICE),
        Made("poddisruptionbudgets", name, BUDGET),
        Made("statefulsets", name, TEMPLATE),
        *(Made("offsetspartitions", f"{name}-{index}", {"status": {"leader": None}}, "status") for index in range(2)),
    )


OBJECTS = (
    *of_pods(NAME),
    *(Made("services", f"{NAME}-outside-{ordinal}", {"spec": {"type": "ClusterIP"}}) for ordinal in range(3)),
    Made("services", f"{NAME}-gateway", SERVICE),
    Made("poddisruptionbudgets", f"{NAME}-gateway", BUDGET),
    Made("deployments", f"{NAME}-gateway", {**PART_OF, "spec": {"template": PART_OF}}),
    record(RECORDS, NAME),
    secret(f"{USER}-muster-user", "password"),
    record(USERS, USER),
    Made("leases", "muster-operator", {"spec": {"holderIdentity": "somebody"}}),
)
"""All but what is made for the pods of the other cluster: its kinds are those of the first one."""


class OfNodePorts(Cared):
    """Its clients know addresses that stay when all pods are made anew, as they are when the StatefulSet is deleted."""

    def bootstrap(self) -> str:
        return ",".join(f"{node_address()}:{FIRST_PORT + number}" for number in range(3))


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    if machine.has_kind():
        pytest.skip("ports of kind's node are behind its container; those of hack/localkube's are not")
    install_operator()
    # The gateway has no pods, so that nobody waits for a broker.
    upstream = {"bootstrapServers": "127.0.0.1:1", "servedGroups": ["drift-"]}
    fronted = {"upstream": upstream, "gateway": {"replicas": 0}, "listeners": listeners(FIRST_PORT)}
    with cared_for(NAMESPACE, NAME, pods=3, partitions=2, **fronted):
        other = Cared(NAMESPACE, GUARDED)
        other.apply(pods=1, partitions=2, factor=1, access={"musterUsers": True})
        declare(other, USER)
        kubectl("-n", NAMESPACE, "wait", "musteruser", USER, "--for=condition=Ready", "--timeout=60s")
        yield OfNodePorts(NAMESPACE, NAME)


def wait_ready() -> None:
    for kind in ("coordinatorcluster", "offsetstopic"):
        kubectl("-n", NAMESPACE, "wait", f"{kind}/{NAME}", "--for=condition=Ready", "--timeout=60s", timeout_s=70)


def live(each: Made) -> dict[str, Any] | None:
    found = kubectl("-n", NAMESPACE, "get", each.named, "-o", "json", check=False)
    return json.loads(found.stdout) if found.returncode == 0 else None


def declared(raw: dict[str, Any]) -> dict[str, Any]:
    """Without what the API server or a controller fills in, which is another value in an object that is made anew."""
    meta = {name: raw["metadata"].get(name) for name in ("labels", "annotations", "ownerReferences")}
    if raw["kind"] == "Deployment":
        meta["annotations"] = {**meta["annotations"], "deployment.kubernetes.io/revision": ""}
    if raw["kind"] == "Lease":
        return {"holder": raw["spec"]["holderIdentity"]}
    spec = {name: each for name, each in raw.get("spec", {}).items() if name not in ("clusterIP", "clusterIPs")}
    if raw["kind"] == "Service" and not raw["metadata"]["name"].startswith(f"{NAME}-outside"):
        spec["ports"] = [{name: each for name, each in port.items() if name != "nodePort"} for port in spec["ports"]]
    is_led = bool(raw.get("status", {}).get("leader"))  # which pod leads may change at any time
    return {"meta": meta, "spec": spec, "data": raw.get("data"), "led": is_led and raw["kind"] == "OffsetsPartition"}


def made_by_the_operator() -> set[str]:
    """All objects of the namespace of which the operator has written more than a status; Events are left alone."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").stdout.split()
    listed = [each for each in kinds if not each.startswith("events")]
    found = kubectl("-n", NAMESPACE, "get", ",".join(listed), "-o", "json", "--show-managed-fields").stdout
    return {
        f"{each['kind'].lower()}s/{each['metadata']['name']}"
        for each in json.loads(found)["items"]
        for entry in each["metadata"].get("managedFields", ())
        if entry["manager"] == FIELD_MANAGER and not entry.get("subresource")
    }


def back(each: Made, before: dict[str, Any], other_than: str = "") -> float:
    """Seconds until it is as it was, as another object where it was deleted."""
    began = time.monotonic()

    def holds() -> bool:
        now = live(each)
        return now is not None and now["metadata"]["uid"] != other_than and declared(now) == declared(before)

    try:
        wait_until(holds, f"{each.named} is as it was", SECONDS)
    finally:
        if not holds():
            print(f"wanted: {before}\nfound: {live(each)}")
    return time.monotonic() - began


def edited(each: Made, before: dict[str, Any]) -> float:
    subresource = (f"--subresource={each.subresource}",) if each.subresource else ()
    done = kubectl(
        "-n", NAMESPACE, "patch", each.named, "--type=merge", "-p", json.dumps(each.edit), *subresource, "-o", "json"
    )
    assert declared(json.loads(done.stdout)) != declared(before), f"an edit of {each.named} that is none"
    return back(each, before)


def deleted(each: Made, before: dict[str, Any]) -> float:
    kubectl("-n", NAMESPACE, "delete", each.named, "--wait=false")
    return back(each, before, before["metadata"]["uid"])


def test_every_object_that_the_operator_makes_is_as_it_was_within_seconds_and_no_commit_is_lost(cluster: Cared) -> None:
    made = made_by_the_operator()
    assert made == {each.named for each in (*OBJECTS, *of_pods(GUARDED))}, "all that the operator makes is in the table"
    load = Load.begin(cluster, "drift")
    for each in OBJECTS:
        before = live(each)
        assert before is not None
        took = edited(each, before), deleted(each, before)
        print(f"{each.named:40} edited: as it was after {took[0]:4.1f} s; deleted: after {took[1]:4.1f} s")
        load.goes_on()
        if each.kind in ("statefulsets", "secrets"):  # what pods need to start
            wait_ready()
    load.end_with_nothing_lost()
    assert made_by_the_operator() == made


def test_pod_restarts_right_after_its_secret_was_deleted(cluster: Cared) -> None:
    wait_ready()
    load = Load.begin(cluster, "drift-restart")
    pod = cluster.pod(f"{NAME}-1")
    cluster.kubectl("delete", "secret", f"{NAME}-pod-tls")
    cluster.delete(pod)
    began = time.monotonic()
    wait_until(lambda: cluster.replaced(pod) and cluster.pod(pod.name).ready, "the pod is there again", READY_S)
    print(f"the pod was ready again after {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 60
    wait_ready()
    load.end_with_nothing_lost()
