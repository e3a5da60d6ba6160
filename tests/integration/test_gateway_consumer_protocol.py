"""Consumers of the new protocol (KIP-848) of librdkafka through the gateway: records are Kafka's, and their group is at
Muster or, by its name, at Kafka."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(300),
]

TOPIC, PARTITIONS, MORE = "in", 4, 6
AT_MUSTER, AT_KAFKA = "m-readers", "k-readers"
OPTIONS = ["--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
QUICK = ["--config", "group.consumer.heartbeat.interval.ms=200"]


class Readers:
    """Consumers of one group, and what they have read."""

    def __init__(self, bootstrap: str, group: str, count: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 0,
        }
        self.read: Counter[str] = Counter()
        self.consumers = [Consumer(settings) for _ in range(count)]
        for consumer in self.consumers:
            consumer.subscribe([TOPIC])

    def poll(self) -> None:
        for consumer in self.consumers:
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                self.read[(message.value() or b"").decode()] += 1

    def until_shared(self, partitions: int) -> None:
        """Each of the partitions has one owner."""
        self.until(
            lambda: sorted(each.partition for c in self.consumers for each in c.assignment()) == list(range(partitions))
        )

    def until_read(self, count: int) -> None:
        self.until(lambda: len(self.read) >= count)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline, [consumer.assignment() for consumer in self.consumers]
            self.poll()


def produce(bootstrap: str, first: int, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(TOPIC, str(number), partition=number % partitions)
    assert producer.flush(60) == 0


def described(bootstrap: str, group: str) -> tuple[object, object, int]:
    """(kind, state, members)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([group], request_timeout=20)[group].result()
    return found.type, found.state, len(found.members)


def groups_at(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups(request_timeout=20).result()
    return {each.group_id for each in listed.valid}


def read_and_resume(kafka: str, bootstrap: str) -> None:
    readers = Readers(bootstrap, AT_MUSTER, 2)
    readers.until_shared(PARTITIONS)
    stable = (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE, 2)
    readers.until(lambda: described(bootstrap, AT_MUSTER) == stable)
    produce(bootstrap, 0, 1_000, PARTITIONS)
    readers.until_read(1_000)
    assert set(readers.read.values()) == {1}
    for consumer in readers.consumers:
        consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(TOPIC, MORE)])[TOPIC].result(20)
    readers.until_shared(MORE)  # the topic has grown under the group
    for consumer in readers.consumers:
        consumer.close()

    produce(bootstrap, 1_000, 600, MORE)
    late = Readers(bootstrap, AT_MUSTER, 1)
    late.until_shared(MORE)
    late.until_read(600)
    assert set(late.read) == {str(number) for number in range(1_000, 1_600)}, "it goes on where the others committed"
    late.consumers[0].close()

    others = Readers(bootstrap, AT_KAFKA, 1)
    others.until_read(1_600)
    others.consumers[0].commit(asynchronous=False)
    assert described(kafka, AT_KAFKA)[2] == 1
    others.consumers[0].close()
    assert groups_at(kafka) == {AT_KAFKA}
    assert {AT_KAFKA, AT_MUSTER} <= groups_at(bootstrap)


HEARTBEAT = "consumer.heartbeat.interval.ms"


async def configure(bootstrap: str, group: str) -> None:
    m = schema("incremental_alter_configs", 1)
    changes = (m.AlterableConfig(name=HEARTBEAT, config_operation=0, value="6000"),)
    resource = m.AlterConfigsResource(resource_type=32, resource_name=group, configs=changes)
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    answer: Any = await client.call(m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    await client.close()
    assert [int(each.error_code) for each in answer.responses] == [0]


async def replace_configs(bootstrap: str, group: str, value: str) -> None:
    """Set one config by AlterConfigs, the older call: it takes the others away."""
    m = schema("alter_configs", 2)
    resource = m.AlterConfigsResource(
        resource_type=32, resource_name=group, configs=(m.AlterableConfig(name=HEARTBEAT, value=value),)
    )
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    answer: Any = await client.call(m.AlterConfigsRequest(resources=(resource,), validate_only=False))
    await client.close()
    assert [int(each.error_code) for each in answer.responses] == [0]


async def configured(bootstrap: str, group: str) -> str:
    m = schema("describe_configs", 4)
    resource = m.DescribeConfigsResource(resource_type=32, resource_name=group, configuration_keys=(HEARTBEAT,))
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    answer: Any = await client.call(
        m.DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    )
    await client.close()
    return str(answer.results[0].configs[0].value)


async def listed(bootstrap: str) -> list[str]:
    """The groups with configs of their own, each as often as it is there."""
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    answer: Any = await client.call(schema("list_config_resources", 1).ListConfigResourcesRequest(resource_types=(32,)))
    await client.close()
    assert int(answer.error_code) == 0
    return sorted(str(each.resource_name) for each in answer.config_resources)


async def until_listed(bootstrap: str, *groups: str) -> None:
    """Kafka's controller tells its brokers afterwards."""
    async with asyncio.timeout(60):
        while await listed(bootstrap) != sorted(groups):
            await asyncio.sleep(0.1)


async def test_consumers_of_the_new_protocol_read_through_the_gateway(tmp_path: Path) -> None:
    settings = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}
    async with KafkaCluster(tmp_path / "kafka", {TOPIC: PARTITIONS}, brokers=1, settings=settings) as kafka:
        with LocalCluster(tmp_path / "muster", *OPTIONS, *QUICK, "--upstream", kafka.bootstrap) as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            bootstrap = line.split()[1].removeprefix("bootstrap=")
            await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
            await asyncio.to_thread(read_and_resume, kafka.bootstrap, bootstrap)
            await configure(bootstrap, AT_MUSTER)
            found = [await configured(address, AT_MUSTER) for address in (bootstrap, kafka.bootstrap)]
            assert found == ["6000", "1000"]
            await until_listed(bootstrap, AT_MUSTER)
            await configure(kafka.bootstrap, AT_MUSTER)  # which nobody at Kafka has anything of
            await configure(bootstrap, AT_KAFKA)
            await until_listed(kafka.bootstrap, AT_KAFKA, AT_MUSTER)
            await until_listed(bootstrap, AT_KAFKA, AT_MUSTER)
            assert await configured(bootstrap, AT_KAFKA) == "6000"
            await replace_configs(bootstrap, AT_MUSTER, "7000")
            await replace_configs(bootstrap, AT_KAFKA, "8000")
            assert [await configured(bootstrap, group) for group in (AT_MUSTER, AT_KAFKA)] == ["7000", "8000"]
            assert await configured(kafka.bootstrap, AT_MUSTER) == "6000", "the call has not reached Kafka"
