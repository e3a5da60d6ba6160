"""Configs of one group, set by its administrator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.kafka import KafkaClient, schema

GROUP_RESOURCE = 32


async def set_group_configs(bootstrap: str, group: str, configs: Mapping[str, str]) -> None:
    m = schema("incremental_alter_configs", 1)
    changes = tuple([m.AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()])
    resource = m.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    answer: Any = await client.call(m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    await client.close()
    assert [int(each.error_code) for each in answer.responses] == [0]
