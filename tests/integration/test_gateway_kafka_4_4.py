"""A real Kafka 4.4.0 behind the gateway, and pods that mirror it and are told nothing of its release."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.group_configs import GROUP_RESOURCE
from tests.support.kafka import KafkaClient, entity, schema
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.local_cluster import LocalCluster

VERSION = "4.4.0"
NO_KAFKA = why_no_kafka_yet(VERSION)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(NO_KAFKA), reason=NO_KAFKA or "there is Kafka"),
    pytest.mark.timeout(180),
]

DELETE_GROUPS, HEARTBEAT = 42, "consumer.heartbeat.interval.ms"
AT_MUSTER, AT_KAFKA = "m-group", "k-group"
DEADLINE_S = 60.0


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
                wanted = await refused_config(kafka, AT_KAFKA)
                async with asyncio.timeout(DEADLINE_S):  # until the pod has asked the broker which release it is
                    while (found := await refused_config(client, AT_MUSTER)) != wanted:
                        assert found[0] == wanted[0]
                        await asyncio.sleep(0.1)
            finally:
                await client.close()
                await kafka.close()
