"""Life on three nodes in three zones: one of them is lost, is cut off, is drained, and nothing is lost with it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hack import kubernetes_machine as machine
from tests.support.kube import install_operator, kubectl
from tests.support.muster_cluster import Partition, wait_until
from tests.support.platform_team import READY_S, Cared, Load, cared_for, operator_that_acts

from muster_operator.kube.pod_info import ZONE_LABEL

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME = "muster-nodes", "wide"
LOCALKUBE = os.environ.get("MUSTER_TEST_LOCALKUBE", "")
"""Name of a cluster of hack/localkube: its nodes can be lost."""
HOSTNAME = "kubernetes.io/hostname"
FIRST = "node-1"
"""Has the control plane; and the operator, unless a test says otherwise: what is lost is coordinators then."""


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    """Two pods on each node."""
    if not LOCALKUBE or len(kubectl("get", "nodes", "-o", "name").stdout.split()) != 3:
        pytest.skip("needs three nodes that can be lost: make test-kubernetes-nodes")
    install_operator()
    operators_on(FIRST)
    with cared_for(NAMESPACE, NAME, pods=6) as made:
        yield made


def operators_on(*nodes: str) -> None:
    """One on each. Several are kept apart, so that none may be on one of these nodes before."""
    needed = {"key": HOSTNAME, "operator": "In", "values": nodes}
    apart = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": "muster-operator"}}, "topologyKey": HOSTNAME}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]} if len(nodes) > 1 else None,
    }
    spec = {"replicas": len(nodes), "template": {"spec": {"affinity": affinity}}}
    operator = ("-n", "muster-system", "deployment/muster-operator")
    kubectl("patch", *operator, "-p", json.dumps({"spec": spec}))
    kubectl("rollout", "status", *operator, "--timeout=50s")


def node_of_operator_that_acts() -> str:
    """Empty while none does."""
    pods = json.loads(kubectl("-n", "muster-system", "get", "pods", "-o", "json").stdout)["items"]
    nodes = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}
    return nodes.get(operator_that_acts(NAMESPACE).rpartition("/")[2], "")


def on_node(verb: str, node: str) -> None:
    machine.call(machine.LOCALKUBE, verb, node, NAME=LOCALKUBE)


def nodes_of_pods(cluster: Cared) -> dict[str, str]:
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in cluster.objects("pods")}


def pods_of(cluster: Cared, node: str) -> set[str]:
    return {pod for pod, its in nodes_of_pods(cluster).items() if its == node}


def led_by(cluster: Cared, pods: set[str]) -> dict[int, Partition]:
    return {index: each for index, each in cluster.partitions().items() if each.leader in pods}


def all_copies_follow(cluster: Cared) -> bool:
    return cluster.condition("FullyReplicated").get("status") == "True" and not cluster.condition("Degraded")


@pytest.mark.parametrize("suffix", ["", "-2", "-3"])
def test_node_has_a_link_address_of_its_own(cluster: Cared, suffix: str) -> None:
    """A bridge that takes that of a port changes it when a pod goes, and is not reached until all neighbours know."""
    asked = ["ip", "netns", "exec", LOCALKUBE + suffix, "cat", "/sys/class/net/br0/addr_assign_type"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "3", "NET_ADDR_SET of linux/netdevice.h"


def wait_for_all(cluster: Cared) -> None:
    cluster.wait_whole()
    wait_until(lambda: all_copies_follow(cluster), "every copy follows its leader", READY_S)


def test_replicas_of_each_partition_are_in_three_zones(cluster: Cared) -> None:
    nodes = json.loads(kubectl("get", "nodes", "-o", "json").stdout)["items"]
    zones = {each["metadata"]["name"]: each["metadata"]["labels"][ZONE_LABEL] for each in nodes}
    assert sorted(zones.values()) == ["zone-1", "zone-2", "zone-3"]
    places = {pod: zones[node] for pod, node in nodes_of_pods(cluster).items()}
    assert sorted(places.values()) == ["zone-1", "zone-1", "zone-2", "zone-2", "zone-3", "zone-3"]
    for each in cluster.objects("offsetspartitions"):
        assert len({places[one["pod"]] for one in each["status"]["replicas"]}) == 3, each["status"]["replicas"]


@contextmanager
def away(cluster: Cared, verb: str, node: str, load_name: str) -> Iterator[set[str]]:
    """The node is gone while this is entered, under a load; yields its pods once others lead what they led and they are
    named. Then it is back, all is as before, and nothing was lost."""
    cluster.wait_at_home()
    gone = pods_of(cluster, node)
    led = led_by(cluster, gone)
    assert len(gone) == 2
    assert led
    load = Load.begin(cluster, load_name)
    on_node(verb, node)
    try:
        wait_until(lambda: not led_by(cluster, gone), "others lead", READY_S)
        after = cluster.partitions()
        assert all(after[index].epoch > before.epoch for index, before in led.items())
        load.goes_on()
        wait_until(lambda: cluster.condition("Degraded").get("message", "").count(node) == 2, "the node is named")
        yield gone
    finally:
        on_node("back", node)
    wait_for_all(cluster)
    cluster.wait_at_home()
    load.goes_on()
    load.end_with_nothing_lost()
    assert pods_of(cluster, node) == gone, "volumes stay on their node, and so do their pods"


@pytest.mark.parametrize(("verb", "node"), [("lose", "node-2"), ("cut", "node-3")])
def test_node_that_is_gone_takes_no_commit_with_it_is_named_and_comes_back(
    cluster: Cared, verb: str, node: str
) -> None:
    """Everything on it is killed; or everything on it runs on, led partitions included, and reaches nobody."""
    with away(cluster, verb, node, verb) as gone:
        assert all(pod in cluster.condition("Degraded")["message"] for pod in gone)
        assert cluster.condition("Ready")["reason"] == "PodsNotReady"
        assert cluster.condition("Ready")["message"].startswith("4 of 6 pods are ready; not ready: ")
        assert {each.state for each in cluster.partitions().values()} == {"Led"}


def test_node_that_is_lost_with_the_operator_that_acts_costs_no_commit_and_another_acts(cluster: Cared) -> None:
    operators_on("node-2", "node-3")
    wait_until(lambda: node_of_operator_that_acts() in ("node-2", "node-3"), "one of them acts")
    node = node_of_operator_that_acts()
    with away(cluster, "lose", node, "operator"):
        wait_until(lambda: node_of_operator_that_acts() not in ("", node), "another operator acts", READY_S)
    operators_on(FIRST)


def test_node_that_is_drained_gives_up_its_leaders_first_and_then_one_pod(cluster: Cared) -> None:
    """The second pod stays: the first one has its volume there, and comes back when the node does."""
    cluster.wait_at_home()
    node = "node-2"
    there = pods_of(cluster, node)
    first, second = sorted(there)
    load = Load.begin(cluster, "drained")
    kubectl("cordon", node)
    try:
        wait_until(lambda: not led_by(cluster, there), "others lead", READY_S)
        wait_until(lambda: all_copies_follow(cluster), "its pods run on until they are evicted", READY_S)
        before = cluster.pod(first)
        assert "Success" in cluster.evict(first)
        wait_until(lambda: cluster.replaced(before), "its pod is gone")
        wait_until(lambda: first in cluster.condition("Degraded").get("message", ""), "its pod is named")
        assert "disruption budget" in cluster.evict(second)
        load.goes_on()
    finally:
        kubectl("uncordon", node)
    wait_for_all(cluster)
    load.goes_on()
    load.end_with_nothing_lost()
