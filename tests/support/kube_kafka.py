"""Kafka brokers as pods of the tests' Kubernetes, of an image that hack/image builds. Broker 0 is the controller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import JVM_FLAGS
from tests.support.kube import kubectl
from tests.support.muster_cluster import wait_until

START_S = 180.0
CLUSTER_ID = "bXVzdGVyLXRlc3Qta2Fma2E"
SCRIPT = """
printf '%s' "$PROPERTIES" >/tmp/kafka.properties
java {flags} kafka.tools.StorageTool format --cluster-id={id} -c /tmp/kafka.properties
exec java {flags} kafka.Kafka /tmp/kafka.properties
"""


@dataclass(frozen=True)
class Door:
    """A second listener, of TLS and logins by PLAIN. `key` and `certificate`: PEM. `passwords`: by user."""

    key: bytes
    certificate: bytes
    passwords: Mapping[str, str]

    def properties(self) -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": _one_line(self.key),
            "ssl.keystore.certificate.chain": _one_line(self.certificate),
        }


def _one_line(pem: bytes) -> str:
    """A PEM file as a value of a properties file."""
    return pem.decode().strip().replace("\n", "\\n")


class KafkaPods:
    """`partitions`: of `__consumer_offsets`."""

    def __init__(self, namespace: str, image: str, partitions: int, door: Door | None = None) -> None:
        self._namespace = namespace
        self._image = image
        self._partitions = partitions
        self._door = door
        self._addresses: dict[int, str] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{address}:9092" for address in self._addresses.values())

    @property
    def secured_bootstrap(self) -> str:
        return ",".join(f"{address}:9094" for address in self._addresses.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self, number: int) -> None:
        """A pod more, and wait until the cluster names it. A pod's address is its own for good: none restarts."""
        kubectl("apply", "-n", self._namespace, "-f", "-", stdin=json.dumps(self._pod(number)))
        wait_until(lambda: bool(self._address(number)), f"kafka-{number} has an address", START_S)
        self._addresses[number] = self._address(number)
        wait_until(lambda: self._names(number), f"broker {number} is there", START_S)

    def create_topic(self, name: str, replicas: list[list[int]]) -> None:
        """`replicas`: brokers of each partition."""
        topic = NewTopic(name, len(replicas), replica_assignment=replicas)
        admin = self.admin()  # it has to live until the answer is there
        admin.create_topics([topic], operation_timeout=60, request_timeout=START_S)[name].result()

    def _names(self, number: int) -> bool:
        try:
            return number in self.admin().list_topics(timeout=5).brokers
        except KafkaException:
            return False

    def _address(self, number: int) -> str:
        arguments = ("get", "pod", f"kafka-{number}", "-o", "jsonpath={.status.podIP}")
        return kubectl("-n", self._namespace, *arguments).stdout

    def _pod(self, number: int) -> dict[str, Any]:
        controller = self._addresses.get(0, "$(POD_IP)")
        both = number == 0
        properties = {
            "process.roles": "broker,controller" if both else "broker",
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"0@{controller}:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": "PLAINTEXT://0.0.0.0:9092" + (",CONTROLLER://0.0.0.0:9093" if both else ""),
            "advertised.listeners": "PLAINTEXT://$(POD_IP):9092" + (",CONTROLLER://$(POD_IP):9093" if both else ""),
            "log.dirs": "/tmp/kafka",
            "offsets.topic.num.partitions": str(self._partitions),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "false",
            "log.index.size.max.bytes": "1048576",
        }
        if self._door is not None:
            properties["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL"
            properties["listeners"] += ",SASL_SSL://0.0.0.0:9094"
            properties["advertised.listeners"] += ",SASL_SSL://$(POD_IP):9094"
            properties |= self._door.properties()
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        container = {
            "name": "kafka",
            "image": self._image,
            "imagePullPolicy": "Never",
            "command": ["sh", "-ec", SCRIPT.format(flags=" ".join(JVM_FLAGS), id=CLUSTER_ID)],
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "PROPERTIES", "value": text},
            ],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"kafka-{number}", "labels": {"app": "kafka"}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": "Never"},
        }
