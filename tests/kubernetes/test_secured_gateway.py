"""In front of a Kafka cluster that asks for TLS and logins: the mirror logs in with a Secret, and logins of clients
pass the gateway, which has a certificate of its own.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.kubernetes.test_gateway import PARTITIONS, READY_S, Fronted, committed, kafka_image, node_address, route_to
from tests.support.certificates import HOUR, Authority, pod
from tests.support.kube import install_operator, kubectl
from tests.support.kube_kafka import Door, KafkaPods
from tests.support.muster_cluster import wait_until
from tests.support.record_load import RecordLoad

from muster_operator.certificates.issuing import Issued, new_leaf

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME = "muster-locked", "locked"
PASSWORDS = {"muster": "glass", "alice": "pencil"}
AUTHORITY, GATEWAY, ACCOUNT = "kafka-ca", "gateway-tls", "muster-at-kafka"
"""Secrets."""


class Locked(Fronted):
    def __init__(self, kafka: KafkaPods, authority: Issued, namespace: str = NAMESPACE, name: str = NAME) -> None:
        super().__init__(kafka, namespace, name)
        self.authority = authority

    def upstream(self) -> dict[str, Any]:
        sasl = {"mechanism": "PLAIN", "secret": ACCOUNT}
        servers = {"bootstrapServers": self.kafka.secured_bootstrap, "servedGroups": ["m-"]}
        return {**servers, "tls": {"caSecret": AUTHORITY}, "sasl": sasl}

    def put(self, name: str, content: dict[str, bytes]) -> None:
        data = {file: base64.b64encode(each).decode() for file, each in content.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def put_password(self, password: str) -> None:
        self.put(ACCOUNT, {"username": b"muster", "password": password.encode()})

    def service_address(self) -> str:
        arguments = ("get", "service", f"{self.name}-gateway", "-o", "jsonpath={.spec.clusterIP}")
        return self.kubectl(*arguments, check=False)

    def restarts(self) -> int:
        kinds = ("gateway", "cluster")
        pods = [each for kind in kinds for each in self.objects("pods", "-l", f"muster.dev/{kind}={self.name}")]
        return sum(container["restartCount"] for each in pods for container in each["status"]["containerStatuses"])

    def client(self, directory: Path, password: str = PASSWORDS["alice"]) -> dict[str, str]:
        """Settings of librdkafka."""
        authority = directory / "ca.crt"
        authority.write_bytes(self.authority.certificate)
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": password}
        return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority), **login}


@pytest.fixture(scope="module")
def locked(custom_resources: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """Its account at Kafka has a wrong password at first."""
    image = kafka_image()
    authority = Authority(tmp_path_factory.mktemp("certificates")).issued
    cluster = Locked(KafkaPods(NAMESPACE, image, PARTITIONS, door(authority)), authority)
    with locked_out(cluster):
        yield cluster


@contextmanager
def locked_out(cluster: Locked, **gateway: Any) -> Iterator[None]:
    """The cluster and Kafka in a namespace of their own, with a wrong password for the account at Kafka."""
    install_operator()
    kubectl("create", "namespace", cluster.namespace)
    with ExitStack() as stack:
        stack.callback(kubectl, "delete", "namespace", cluster.namespace, "--wait=false")
        stack.callback(lambda: print(cluster.summary()))
        cluster.kafka.start(0)
        cluster.kafka.create_topic("orders", [[0], [0], [0]])
        cluster.put(AUTHORITY, {"ca.crt": cluster.authority.certificate})
        cluster.put_password("mirror")
        cluster.declare(tls={"secret": GATEWAY}, **gateway)
        wait_until(lambda: bool(cluster.service_address()), "the gateway's Service has an address", READY_S)
        address = cluster.service_address()
        leaf = new_leaf(cluster.authority, pod("gateway"), [address], datetime.now(UTC), HOUR)
        cluster.put(GATEWAY, {"tls.crt": leaf.certificate, "tls.key": leaf.key})
        stack.enter_context(route_to(address))
        yield


def door(authority: Issued) -> Door:
    """Its certificate names every address that a pod may get, those of the node's network: there is no DNS."""
    addresses = [str(each) for each in ipaddress.ip_network(f"{node_address()}/24", strict=False)]
    leaf = new_leaf(authority, pod("kafka"), addresses, datetime.now(UTC), HOUR)
    return Door(leaf.key, leaf.certificate, PASSWORDS)


def test_refused_login_is_told_and_a_corrected_password_counts_without_a_restart(locked: Locked) -> None:
    wait_until(lambda: locked.condition("Mirrored") == ("False", "UpstreamNotFollowed"), "it is told", READY_S)
    locked.put_password(PASSWORDS["muster"])
    wait_until(lambda: locked.condition("Mirrored") == ("True", "UpstreamFollowed"), "Kafka is followed", READY_S)
    locked.wait_ready(READY_S)
    assert locked.restarts() == 0


def test_client_that_logs_in_gets_records_from_kafka_and_its_group_from_muster(locked: Locked, tmp_path: Path) -> None:
    with RecordLoad(locked.gateway_bootstrap(), "orders", "m-orders", locked.client(tmp_path)) as load:
        load.wait_received(200)
    assert load.received() == load.acknowledged()
    kafkas = AdminClient({"bootstrap.servers": locked.kafka.bootstrap})
    listed = kafkas.list_consumer_groups(request_timeout=60).result()
    assert {each.group_id for each in listed.valid} == set()
    musters = AdminClient({"bootstrap.servers": locked.bootstrap()})
    asked = ConsumerGroupTopicPartitions("m-orders", [TopicPartition("orders", number) for number in range(3)])
    answer = musters.list_consumer_group_offsets([asked], request_timeout=60)["m-orders"].result()
    assert sum(each.offset for each in answer.topic_partitions if each.offset > 0) == len(load.received())


def test_group_at_kafka_is_mirrored_over_tls(locked: Locked, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": locked.gateway_bootstrap(), "group.id": "k-billing"}
    consumer = Consumer({**settings, **locked.client(tmp_path), "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 41)], asynchronous=False)
    consumer.close()
    musters = AdminClient({"bootstrap.servers": locked.bootstrap()})
    wait_until(lambda: committed(musters, "k-billing") == 41, "Muster shows what Kafka has", READY_S)


def test_wrong_password_and_plain_text_get_nothing(locked: Locked, tmp_path: Path) -> None:
    errors: list[KafkaError] = []
    where: dict[str, Any] = {"bootstrap.servers": locked.gateway_bootstrap(), "log_level": 0}
    where["error_cb"] = errors.append
    wrong = AdminClient({**where, **locked.client(tmp_path, "wrong")})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=10)
    wrong.poll(1.0)  # calls error_cb
    assert KafkaError._AUTHENTICATION in {each.code() for each in errors}
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": locked.gateway_bootstrap(), "log_level": 0}).list_topics(timeout=5)
