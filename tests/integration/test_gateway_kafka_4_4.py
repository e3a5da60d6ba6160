"""A real Kafka 4.4.0 behind the gateway, or one that becomes it, and pods that are told nothing of its release."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.group_configs import GROUP_RESOURCE
from tests.support.kafka import KafkaClient, entity, schema
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster
from tests.support.record_load import NotingConsumer, NumberedProducer

VERSION = "4.4.0"
NO_KAFKA = why_no_kafka_yet(VERSION)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(NO_KAFKA), reason=NO_KAFKA or "there is Kafka"),
    pytest.mark.timeout(600),
]

DELETE_GROUPS, HEARTBEAT = 42, "consumer.heartbeat.interval.ms"
AT_MUSTER, AT_KAFKA = "m-group", "k-group"
TOPIC = "orders"
BROKERS = 3
MORE = 200
"""Records that every group has to read between two steps of an upgrade."""
DEADLINE_S = 90.0
"""Pods ask the brokers for their release once a minute."""


async def shown_version(client: KafkaClient) -> int:
    m = schema("api_versions", 4)
    answer = await client.call(m.ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    return int(next(each.max_version for each in answer.api_keys if each.api_key == DELETE_GROUPS))


async def deleted(client: KafkaClient, group: str) -> tuple[int, str | None]:
    """Error code and text of DeleteGroups 3."""
    client.send(entity("delete_groups", 3)(groups_names=(group,)))
    _, answer = await client.receive(entity("delete_groups", 3, "response"))
    (found,) = answer.results
    assert found.group_id == group
    return int(found.error_code), found.error_message


async def refused_config(client: KafkaClient, group: str) -> tuple[int, str | None]:
    m = schema("incremental_alter_configs", 1)
    change = m.AlterableConfig(name=HEARTBEAT, config_operation=0, value="1")
    resource = m.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=(change,))
    answer: Any = await client.call(m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    return int(answer.responses[0].error_code), answer.responses[0].error_message


async def until_judged_as(wanted: tuple[int, str | None], client: KafkaClient) -> None:
    """Wait until pods know the release, and judge as this answer of a broker does."""
    async with asyncio.timeout(DEADLINE_S):
        while (found := await refused_config(client, AT_MUSTER)) != wanted:
            assert found[0] == wanted[0]
            await asyncio.sleep(0.1)


async def test_groups_at_muster_are_deleted_and_judged_as_by_the_kafka_4_4_behind_the_gateway(tmp_path: Path) -> None:
    options = ["--pods", "1", "--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
    async with KafkaBroker(tmp_path / "kafka", {"offsets.topic.num.partitions": "5"}, {"t": 1}, VERSION) as broker:
        with LocalCluster(tmp_path / "muster", *options, "--upstream", f"127.0.0.1:{broker.port}") as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            await asyncio.to_thread(muster.wait_line, "ready")
            kafka = await KafkaClient.connect(broker.port)
            client = await KafkaClient.connect(int(line.split()[1].rpartition(":")[2]))
            try:
                assert await shown_version(client) == await shown_version(kafka) == 3
                for group in (AT_MUSTER, AT_KAFKA):
                    assert await client.commit(group, 5) == 0
                    assert [await deleted(client, group) for _ in range(2)] == [(0, None), (69, None)]
                    assert (await client.fetch(group))[0] == -1
                assert await kafka.commit("same", 5) == 0
                assert [await deleted(kafka, "same") for _ in range(2)] == [(0, None), (69, None)]
                await until_judged_as(await refused_config(kafka, AT_KAFKA), client)
            finally:
                await client.close()
                await kafka.close()


async def refused_by(port: int) -> tuple[int, str | None]:
    """The same answer of the server at this port."""
    client = await KafkaClient.connect(port)
    try:
        return await refused_config(client, AT_KAFKA)
    finally:
        await client.close()


async def test_groups_follow_the_lowest_release_while_brokers_are_upgraded_one_by_one(tmp_path: Path) -> None:
    """Members of the new protocol at Muster and at Kafka read on meanwhile, and those at Muster are not rebalanced."""
    options = ["--pods", "1", "--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
    async with KafkaCluster(tmp_path / "kafka", {TOPIC: 3}, BROKERS) as kafka:
        with LocalCluster(tmp_path / "muster", *options, "--upstream", kafka.bootstrap) as muster:
            gateway = (await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")).split()[1].partition("=")[2]
            await asyncio.to_thread(muster.wait_line, "ready")
            protocol = {"group.protocol": "consumer"}
            members = [NotingConsumer(gateway, TOPIC, group, login=protocol) for group in (AT_MUSTER, AT_KAFKA)]
            producer = NumberedProducer(gateway, TOPIC)
            client = await KafkaClient.connect(int(gateway.rpartition(":")[2]))
            try:
                before = await refused_by(kafka.ports[0])
                for number in range(BROKERS):
                    for member in members:
                        await asyncio.to_thread(member.goes_on, MORE)
                    assert await refused_config(client, AT_MUSTER) == before
                    await asyncio.to_thread(kafka.kill, number, signal.SIGTERM)
                    kafka.start(number, VERSION)
                    await kafka.wait_in_sync()
                now = await refused_by(kafka.ports[0])
                assert now != before
                await until_judged_as(now, client)
                for member in members:
                    await asyncio.to_thread(member.goes_on, MORE)
            finally:
                await client.close()
                producer.stop()
            sent = producer.acknowledged()
            for member in members:
                await asyncio.to_thread(member.wait_received, len(sent))
                member.stop()
    assert members[0].assignments == 1
    assert [sorted(set(member.received())) for member in members] == [sent, sent]
