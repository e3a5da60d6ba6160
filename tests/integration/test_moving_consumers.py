"""A live group of the consumer protocol (KIP-848) moves from a real Kafka to Muster, through a gateway, and back: a
member of librdkafka and one of Java in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_gateway_transactions import INPUT
from tests.integration.test_movable_groups import until
from tests.integration.test_moving_groups import PREFIX, commits_go_on, offsets_at, site
from tests.support.java_consumers import JavaConsumer
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.live_groups import LiveGroups, Modern
from tests.support.mirrored import until as eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]

GROUP = f"{PREFIX}modern"
HEARTBEAT = "consumer.heartbeat.interval.ms"
BOUNDS = {"group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.min.session.timeout.ms": "6000"}
QUICK = {"group.consumer.heartbeat.interval.ms": "300", "group.consumer.session.timeout.ms": "8000", **BOUNDS}
SET_FOR_THE_GROUP = 250
JOINED_S = 180
"""Longest wait for Java's member, which has to be compiled first: on a busy machine that takes a minute."""


async def call(bootstrap: str, request: Any) -> Any:
    client = await KafkaClient.connect(int(bootstrap.rpartition(":")[2]))
    try:
        return await client.call(request)
    finally:
        await client.close()


async def described(bootstrap: str) -> Any:
    """The whole answer of ConsumerGroupDescribe, but for the order of members."""
    m = schema("consumer_group_describe", 1)
    answer = await call(
        bootstrap, m.ConsumerGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False)
    )
    (group,) = answer.groups
    return (
        group.error_code,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        sorted(group.members, key=lambda each: each.member_id),
    )


async def configure(bootstrap: str) -> None:
    m = schema("incremental_alter_configs", 1)
    changes = (m.AlterableConfig(name=HEARTBEAT, config_operation=0, value=str(SET_FOR_THE_GROUP)),)
    resource = m.AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=changes)
    answer = await call(bootstrap, m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    assert [int(each.error_code) for each in answer.responses] == [0]


async def configured(bootstrap: str) -> tuple[str, int]:
    """(value, source) of the group's interval of heartbeats."""
    m = schema("describe_configs", 4)
    resource = m.DescribeConfigsResource(resource_type=32, resource_name=GROUP, configuration_keys=(HEARTBEAT,))
    asked = m.DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    (result,) = (await call(bootstrap, asked)).results
    return result.configs[0].value, int(result.configs[0].config_source)


async def test_live_group_of_consumers_moves_without_a_revocation_and_goes_back(tmp_path: Path) -> None:
    pods = [f"{name}={value}" for name, value in QUICK.items()]
    async with site(tmp_path, QUICK, pods) as it:
        await configure(it.kafka.bootstrap)
        groups = LiveGroups(it.bootstrap, INPUT, PREFIX, [Modern])
        (member,) = groups.members
        with groups:
            await until(lambda: member.assigned and member.commits > 20, "commits")
            java = JavaConsumer(it.bootstrap, INPUT, GROUP)
            try:
                await _moves(it, groups, java)
            finally:
                java.stop()


async def _moves(it: Any, groups: LiveGroups, java: JavaConsumer) -> None:
    (member,) = groups.members

    async def is_stable() -> bool:
        _, state, _, _, _, members = await described(it.kafka.bootstrap)
        return state == "Stable" and len(members) == 2 and bool(java.owns)

    await eventually(is_stable, "both have their share", JOINED_S)
    revoked, events, before = member.revoked, len(java.events), await described(it.kafka.bootstrap)
    await it.pods.move(GROUP)
    fenced_ms = (await it.pods.status(GROUP)).fenced_ms
    assert await described(it.bootstrap) == before
    read, longest_s = len(java.values), member.longest_s
    await commits_go_on([member], "at Muster")
    await until(lambda: len(java.values) > read + 50, "records of Java's member")
    await asyncio.sleep(4 * SET_FOR_THE_GROUP / 1000)  # some heartbeats of each
    assert await described(it.bootstrap) == before, "it was assigned anew"
    assert (member.revoked, len(java.events), member.errors) == (revoked, events, [])
    assert not any("refused" in each for each in java.said)
    assert await configured(it.bootstrap) == (str(SET_FOR_THE_GROUP), 8)
    everything = sorted([*member.values, *java.values], key=int)
    assert everything == sorted(set(everything), key=int), "a record was read twice"

    await it.pods.move(GROUP, back=True)
    await commits_go_on([member], "at Kafka again")
    await eventually(is_stable, "both are members at Kafka again", JOINED_S)
    await asyncio.to_thread(groups.stop_feeding)
    values = set(groups.values)
    await until(lambda: {*member.values, *java.values} >= values, ["all records", member])
    again = len(member.values) + len(java.values) - len(values)
    print(f"{groups.produced} records; fence {fenced_ms} ms; longest commit {longest_s:.3f} s; {again} read again")

    async def is_committed() -> bool:
        found = await offsets_at(it.kafka.bootstrap, groups.members)
        return {group: sum(at) for group, at in found.items()} == {GROUP: groups.produced}

    await eventually(is_committed, "all is committed at Kafka", 30)
