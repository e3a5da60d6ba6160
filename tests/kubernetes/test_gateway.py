"""In front of a Kafka cluster of pods: an unchanged client gets records from Kafka and its group from Muster, while
gateway pods are replaced and a broker is added.

Clients of the test are on this machine: they reach Services by a route to the node.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from hack import kubernetes_machine as machine
from tests.support.kube import install_operator, kubectl
from tests.support.kube_kafka import KafkaPods
from tests.support.muster_cluster import MusterCluster, wait_until
from tests.support.record_load import RecordLoad

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME = "muster-front", "front"
PARTITIONS = 5
"""Of `__consumer_offsets`, of both."""
READY_S = 180


class Fronted(MusterCluster):
    """A cluster with gateways in front of Kafka pods."""

    def __init__(self, kafka: KafkaPods, namespace: str = NAMESPACE, name: str = NAME) -> None:
        super().__init__(namespace, name)
        self.kafka = kafka

    def upstream(self) -> dict[str, Any]:
        return {"bootstrapServers": self.kafka.bootstrap, "servedGroups": ["m-"]}

    def declare(self, **gateway: Any) -> None:
        """Groups that begin with m- are Muster's."""
        spec = {
            "pods": 1,
            "anyTopic": True,
            "listeners": [{"name": "internal", "advertise": "PodIP"}],
            "storage": {"size": "1Gi"},
            "settings": {"group.initial.rebalance.delay.ms": "0"},
            "upstream": self.upstream(),
            "gateway": {"replicas": 2, "brokerIds": 4, **gateway},
        }
        topic = {"clusterRef": {"name": self.name}, "partitions": PARTITIONS, "replicationFactor": 1}
        for kind, name, each in (("CoordinatorCluster", self.name, spec), ("OffsetsTopic", "offsets", topic)):
            body = {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": each}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def gateway_pods(self) -> set[str]:
        """Uids of those that are not about to end."""
        found = self.objects("pods", "-l", f"muster.dev/gateway={self.name}")
        return {each["metadata"]["uid"] for each in found if "deletionTimestamp" not in each["metadata"]}

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason; empty while nothing is said of it."""
        (cluster,) = self.objects("coordinatorclusters")
        said = {each["type"]: each for each in cluster.get("status", {}).get("conditions", ())}
        return (said[kind]["status"], said[kind]["reason"]) if kind in said else ("", "")

    def gateway_bootstrap(self) -> str:
        return self.kubectl("get", "coordinatorcluster", self.name, "-o", "jsonpath={.status.gateway}")

    def summary(self) -> str:
        logs = ("logs", "-l", f"muster.dev/gateway={self.name}", "--tail=40", "--prefix")
        more = self.kubectl("get", "pods,services,deployments", "-o", "wide", check=False)
        return "\n".join([super().summary(), more, self.kubectl(*logs, check=False)])


def kafka_image() -> str:
    """Skips the test where there is none, or where its clients could not reach a gateway."""
    image = os.environ.get("MUSTER_TEST_KAFKA_IMAGE")
    if not image:
        pytest.skip("needs an image of a Kafka broker: Java 17 and Maven for make test-kubernetes")
    if machine.has_kind():
        pytest.skip("addresses of kind's Services are behind its container; those of hack/localkube's are not")
    return image


@pytest.fixture(scope="module")
def fronted(custom_resources: None) -> Iterator[Fronted]:
    image = kafka_image()
    install_operator()
    kubectl("create", "namespace", NAMESPACE)
    kafka = KafkaPods(NAMESPACE, image, PARTITIONS)
    cluster = Fronted(kafka)
    try:
        kafka.start(0)
        kafka.start(1)
        kafka.create_topic("orders", [[0], [1], [0], [1]])
        cluster.declare()
        cluster.wait_ready(READY_S)
        with route_to(cluster.gateway_bootstrap().rpartition(":")[0]):
            yield cluster
    finally:
        print(cluster.summary())
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@contextmanager
def route_to(address: str) -> Iterator[None]:
    """From this machine to a Service, by the node, which all pods have as their gateway."""
    route = (f"{address}/32", "via", node_address())
    subprocess.run(["ip", "route", "replace", *route], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "del", *route], check=False)


def node_address() -> str:
    (node,) = json.loads(kubectl("get", "nodes", "-o", "json").stdout)["items"]
    found: str = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    return found


def nodes_of(bootstrap: str) -> dict[int, tuple[str, int]]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers
    return {number: (each.host, each.port) for number, each in found.items()}


def test_clients_are_told_the_service_for_every_node_and_no_broker(fronted: Fronted) -> None:
    host, _, port = fronted.gateway_bootstrap().rpartition(":")
    assert port == "9092"
    wait_until(
        lambda: nodes_of(fronted.gateway_bootstrap()) == {0: (host, 9100), 1: (host, 9101), 1_000_000: (host, 9500)},
        "both brokers and the pod of Muster are at the Service",
        READY_S,
    )


def test_groups_of_kafka_are_mirrored_and_those_of_muster_are_not_at_kafka(fronted: Fronted) -> None:
    commit(fronted.gateway_bootstrap(), "k-billing", 41)
    commit(fronted.gateway_bootstrap(), "m-billing", 42)
    at_kafka, at_muster = (
        AdminClient({"bootstrap.servers": fronted.kafka.bootstrap}),
        AdminClient({"bootstrap.servers": fronted.bootstrap()}),
    )
    assert committed(at_kafka, "k-billing") == 41
    wait_until(lambda: committed(at_muster, "k-billing") == 41, "Muster shows what Kafka has", READY_S)
    assert committed(at_muster, "m-billing") == 42
    assert fronted.condition("Mirrored") == ("True", "UpstreamFollowed")
    listed = at_kafka.list_consumer_groups(request_timeout=60).result()
    assert {each.group_id for each in listed.valid} == {"k-billing"}


def test_no_record_is_lost_or_twice_while_gateway_pods_are_replaced_and_a_broker_is_added(fronted: Fronted) -> None:
    with RecordLoad(fronted.gateway_bootstrap(), "orders", "m-orders") as load:
        load.wait_received(200)
        before = fronted.gateway_pods()
        fronted.kubectl("rollout", "restart", f"deployment/{NAME}-gateway")
        wait_until(
            lambda: len(fronted.gateway_pods()) == 2 and not fronted.gateway_pods() & before,
            "both gateway pods are others",
            READY_S,
        )
        fronted.wait_ready(READY_S)
        load.goes_on(200)
        fronted.kafka.start(2)
        fronted.kafka.create_topic("more", [[2]])
        wait_until(lambda: 2 in nodes_of(fronted.gateway_bootstrap()), "the new broker is told", READY_S)
        with RecordLoad(fronted.gateway_bootstrap(), "more", "m-more") as another:
            another.wait_received(100)
        assert another.received() == another.acknowledged()
        load.goes_on(200)
    assert load.received() == load.acknowledged()
    assert load.assignments == 1, "no gateway pod that went was a rebalance"
    assert nodes_of(fronted.gateway_bootstrap())[2][1] == 9102


def commit(bootstrap: str, group: str, position: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, position)], asynchronous=False)
    consumer.close()


def committed(admin: AdminClient, group: str) -> int:
    """Asks again while the group's partition is loading, as Kafka's own client does; this one leaves it to its user."""
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0)])]
    answers: list[int] = []

    def is_answered() -> bool:
        try:
            answer = admin.list_consumer_group_offsets(asked, request_timeout=60)[group].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return False
        answers.append(int(answer.topic_partitions[0].offset))
        return True

    wait_until(is_answered, f"the partition of {group} is loaded", READY_S)
    return answers[-1]
