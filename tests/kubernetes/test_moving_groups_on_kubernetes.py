"""Groups that move from Kafka pods to a cluster of pods by a ConsumerGroup, while their members consume.

Clients of the test are on this machine: they reach Services by a route to the node.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.kubernetes.test_gateway import PARTITIONS, READY_S, Fronted, commit, committed, kafka_image, route_to
from tests.support.kube import install_operator, kubectl
from tests.support.kube_kafka import KafkaPods
from tests.support.muster_cluster import wait_until
from tests.support.record_load import RecordLoad

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

NAMESPACE, NAME = "muster-moving", "front"
APPLIED = 100
OPERATOR = "app.kubernetes.io/name=muster-operator"
OPERATOR_KILLS = 10 if os.environ.get("MUSTER_TEST_LONG") else 1
"""How often a group moves there and back, the operator killed each time."""


class Moving(Fronted):
    """Groups that begin with k- can move, from when `movable` is declared."""

    movable = False

    def upstream(self) -> dict[str, Any]:
        return {**super().upstream(), **({"movableGroups": ["k-"]} if self.movable else {})}

    def declare_group(self, group: str, coordinator: str, **more: Any) -> None:
        spec = {"clusterRef": {"name": self.name}, "group": group, "coordinator": coordinator, **more}
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": group}, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def group(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "consumergroup", name, "-o", "json"))
        return found

    def wait_for_reason(self, name: str, reason: str) -> None:
        """Wait until Ready has this reason, about what is declared now."""

        def holds() -> bool:
            found = self.group(name)
            ready = next(each for each in found["status"]["conditions"] if each["type"] == "Ready")
            generation = found["metadata"]["generation"]
            return (ready["reason"], ready.get("observedGeneration")) == (reason, generation)

        wait_until(holds, f"{name} is {reason}", READY_S)

    def wait_reset(self, name: str, id_: str) -> dict[str, Any]:
        """The group's status when this reset is done."""

        def is_done() -> bool:
            reset = self.group(name)["status"].get("reset", {})
            return (reset.get("id"), reset.get("phase")) == (id_, "Done")

        wait_until(is_done, f"reset {id_} is done", READY_S)
        return dict(self.group(name)["status"])

    def summary(self) -> str:
        groups = self.kubectl("get", "consumergroups", "-o", "yaml", check=False)
        operator = kubectl("-n", "muster-system", "logs", "-l", "app.kubernetes.io/name=muster-operator", "--tail=60")
        return "\n".join([super().summary(), groups, operator.stdout])


@pytest.fixture(scope="module")
def moving(custom_resources: None) -> Iterator[Moving]:
    image = kafka_image()
    install_operator()
    kubectl("create", "namespace", NAMESPACE)
    kafka = KafkaPods(NAMESPACE, image, PARTITIONS)
    cluster = Moving(kafka, NAMESPACE, NAME)
    try:
        kafka.start(0)
        kafka.create_topic("orders", [[0], [0]])
        cluster.declare()
        cluster.wait_ready(READY_S)
        with route_to(cluster.gateway_bootstrap().rpartition(":")[0]):
            yield cluster
    finally:
        print(cluster.summary())
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_live_group_moves_when_pods_and_gateways_have_their_settings_and_loses_nothing(moving: Moving) -> None:
    bootstrap = moving.gateway_bootstrap()
    with RecordLoad(bootstrap, "orders", "k-orders") as load:
        load.wait_received(100)
        moving.declare_group("k-orders", "Muster")
        moving.wait_for_reason("k-orders", "GroupNotMovable")
        moving.movable = True
        moving.declare()
        moving.wait_for_reason("k-orders", "AtMuster")
        load.goes_on(300)
        status = moving.group("k-orders")["status"]
    assert load.received() == load.acknowledged()
    assert load.assignments == 1, "neither the pods and gateways that were replaced nor the move was a rebalance"
    assert (status["coordinator"], status["lastMove"]["done"]) == ("Muster", True)
    print("requests waited (ms):", status["lastMove"]["fencedMs"])
    total = sum(committed_everywhere(moving, "k-orders"))
    assert total == len(load.received()), "what was committed after the move is at Muster"
    events = moving.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "AtMuster" in events


def committed_everywhere(moving: Moving, group: str) -> list[int]:
    places = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    admin = AdminClient({"bootstrap.servers": moving.gateway_bootstrap()})
    asked = [ConsumerGroupTopicPartitions(group, places)]
    answer = admin.list_consumer_group_offsets(asked, request_timeout=60)[group].result()
    return [each.offset for each in answer.topic_partitions]


def status_of_move(group: dict[str, Any]) -> dict[str, Any]:
    """The status without `WrittenBack`: Kafka takes no offsets while the sessions of the members last that it had."""
    status: dict[str, Any] = group["status"]
    return status | {"conditions": [each for each in status["conditions"] if each["type"] != "WrittenBack"]}


def test_the_same_manifest_moves_once_and_its_deletion_changes_nothing(moving: Moving) -> None:
    moving.declare_group("k-orders", "Muster")
    moving.wait_for_reason("k-orders", "AtMuster")
    before = status_of_move(moving.group("k-orders"))
    for _ in range(APPLIED):
        moving.declare_group("k-orders", "Muster")
    assert status_of_move(moving.group("k-orders")) == before
    moving.kubectl("delete", "consumergroup", "k-orders", "--timeout=30s")
    moving.declare_group("k-orders", "Muster")
    moving.wait_for_reason("k-orders", "AtMuster")


def test_group_of_offsets_alone_moves_too_and_one_that_is_to_stay_stays(moving: Moving) -> None:
    commit(moving.gateway_bootstrap(), "k-empty", 41)
    commit(moving.gateway_bootstrap(), "k-stays", 43)
    moving.declare_group("k-empty", "Muster")
    moving.declare_group("k-stays", "Kafka")
    moving.wait_for_reason("k-empty", "AtMuster")
    moving.wait_for_reason("k-stays", "AtKafka")
    commit(moving.gateway_bootstrap(), "k-empty", 44)
    commit(moving.gateway_bootstrap(), "k-stays", 45)
    at_kafka = AdminClient({"bootstrap.servers": moving.kafka.bootstrap})
    at_muster = AdminClient({"bootstrap.servers": moving.bootstrap()})
    assert (committed(at_muster, "k-empty"), committed(at_kafka, "k-stays")) == (44, 45)
    wait_until(lambda: committed(at_kafka, "k-empty") == 44, "Muster has written the offset back to Kafka")


def test_declared_reset_is_carried_out_once_however_often_it_is_applied(moving: Moving) -> None:
    group, at = "m-reset", moving.gateway_bootstrap()

    def declare(id_: str, by: int) -> None:
        moving.declare_group(group, "Muster", reset={"id": id_, "to": "shiftBy", "shiftBy": by})

    def now() -> int:
        return committed(AdminClient({"bootstrap.servers": moving.bootstrap()}), group)

    commit(at, group, 20)
    declare("one", -5)
    status = moving.wait_reset(group, "one")
    assert now() == 15
    assert status["reset"]["offsets"] == [{"topic": "orders", "partition": 0, "before": 20, "after": 15}]
    commit(at, group, 25)
    for _ in range(APPLIED):
        declare("one", -5)
    assert (now(), moving.group(group)["status"]) == (25, status)
    declare("two", -5)
    assert [each["id"] for each in moving.wait_reset(group, "two")["pastResets"]] == ["one"]
    assert now() == 20
    assert "ResetDone" in moving.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")


def test_members_of_a_live_group_are_parked_for_a_reset_and_read_again(moving: Moving) -> None:
    moving.kafka.create_topic("again", [[0], [0]])
    with RecordLoad(moving.gateway_bootstrap(), "again", "m-parked") as load:
        load.wait_received(100)
        moving.declare_group("m-parked", "Muster", reset={"id": "again", "to": "earliest", "members": "Park"})
        status = moving.wait_reset("m-parked", "again")
        before = sum(each["before"] for each in status["reset"]["offsets"])
        load.goes_on(before + 100)
    assert {each["after"] for each in status["reset"]["offsets"]} == {0}
    counts = Counter(load.received())
    assert before > 0
    assert sum(count > 1 for count in counts.values()) >= before, "what was committed is read again"
    assert max(counts.values()) == 2, "once"
    assert load.assignments == 2
    assert set(load.acknowledged()) <= counts.keys(), "nothing is missing"


@pytest.mark.timeout(900 + 120 * OPERATOR_KILLS)
def test_live_group_goes_back_with_one_rebalance_and_loses_nothing(moving: Moving) -> None:
    """The operator is killed in the middle of each way: whoever comes after it finds how far the pods are."""
    moments = random.Random(7)

    def move(coordinator: str) -> None:
        moving.declare_group("k-back", coordinator)
        time.sleep(moments.uniform(0, 2))  # the steps between which it dies are over in milliseconds
        kubectl("-n", "muster-system", "delete", "pod", "-l", OPERATOR, "--grace-period=0", "--force")
        moving.wait_for_reason("k-back", f"At{coordinator}")

    with RecordLoad(moving.gateway_bootstrap(), "orders", "k-back") as load:
        load.wait_received(100)
        for _ in range(OPERATOR_KILLS):
            move("Muster")
            load.goes_on(200)
            move("Kafka")
            load.goes_on(200)
        status = moving.group("k-back")["status"]
    assert set(load.received()) == set(load.acknowledged())
    assert load.assignments <= 1 + OPERATOR_KILLS
    assert (status["coordinator"], status["lastMove"]["to"]) == ("Kafka", "Kafka")
