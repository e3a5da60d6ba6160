"""A client outside the pods' network reaches every pod through ports of the node, over a failover and a rollout."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from hack import kubernetes_machine as machine
from tests.support.kube import install_operator, kubectl
from tests.support.muster_cluster import wait_until
from tests.support.platform_team import INTERNAL, Cared, Load, Outside, cared_for, listeners

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME, FIRST_PORT = "muster-external", "ext", 31940


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Outside]:
    if machine.has_kind():
        pytest.skip("ports of kind's node are behind its container; those of hack/localkube's are not")
    install_operator()
    with cared_for(NAMESPACE, NAME, pods=3, listeners=listeners(FIRST_PORT)):
        yield Outside(NAMESPACE, NAME)


def node_address() -> str:
    (node,) = json.loads(kubectl("get", "nodes", "-o", "json").stdout)["items"]
    return next(str(each["address"]) for each in node["status"]["addresses"] if each["type"] == "InternalIP")


def told(bootstrap: str) -> dict[int, tuple[str, int]]:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers
    return {number: (each.host, each.port) for number, each in brokers.items()}


def test_client_outside_is_told_the_node_ports_and_one_inside_the_pods_addresses(cluster: Outside) -> None:
    expected = {number: (node_address(), FIRST_PORT + number) for number in range(3)}
    assert cluster.bootstrap() == ",".join(f"{host}:{port}" for host, port in expected.values())
    assert told(cluster.bootstrap()) == expected
    assert {host for host, _ in told(Cared.bootstrap(cluster)).values()} == {pod.address for pod in cluster.pods()}


def test_client_outside_commits_on_while_a_leader_is_lost(cluster: Outside) -> None:
    load = Load.begin(cluster, "outside")
    leader = cluster.partitions()[0].leader
    before = next(pod for pod in cluster.pods() if pod.name == leader)
    cluster.delete(before)
    wait_until(lambda: any(p.name == leader and p.uid != before.uid for p in cluster.pods()), "the pod is replaced")
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()


def test_deleted_service_is_back_at_once_with_its_port(cluster: Outside) -> None:
    cluster.kubectl("delete", "service", f"{NAME}-outside-1", f"{NAME}-bootstrap")
    services = ("get", "service", f"{NAME}-outside-1", f"{NAME}-bootstrap", "-o", "name")
    wait_until(lambda: len(cluster.kubectl(*services, check=False).split()) == 2, "both are there again", 20.0)
    cluster.wait_whole()
    assert told(cluster.bootstrap())[1] == (node_address(), FIRST_PORT + 1)


def test_listener_that_is_taken_away_leaves_no_service(cluster: Outside) -> None:
    cluster.patch(listeners=[INTERNAL])
    cluster.wait_whole()
    names = {each["metadata"]["name"] for each in cluster.objects("services")}
    assert names == {f"{NAME}-pods", f"{NAME}-bootstrap"}
    assert "listeners" not in cluster.status()
