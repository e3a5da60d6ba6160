"""The groups of a cluster as it shows them, for comparing a mirror with the Kafka cluster that it follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.support.kafka import KafkaClient, schema

WAIT_S = 60.0
POLL_S = 0.05


async def until(holds: Callable[[], Awaitable[Any]], what: str, timeout_s: float = WAIT_S) -> Any:
    """Ask again and again until the answer is true, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (answer := await holds()):
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        await asyncio.sleep(POLL_S)
    return answer


async def groups_of(port: int, names: Iterable[str]) -> dict[str, Any]:
    """The description and all offsets of each group, by its name, as one connection to the server shows them."""
    names = tuple(names)
    describe, fetch = schema("describe_groups", 5), schema("offset_fetch", 8)
    client = await KafkaClient.connect(port)
    try:
        described = await client.call(describe.DescribeGroupsRequest(groups=names, include_authorized_operations=False))
        fetched = await client.call(
            fetch.OffsetFetchRequest(
                groups=tuple(fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names),
                require_stable=False,
            )
        )
    finally:
        await client.close()
    offsets = {group.group_id: _offsets(group) for group in fetched.groups}
    return {group.group_id: (_description(group), offsets[group.group_id]) for group in described.groups}


def _description(group: Any) -> Any:
    members = sorted(
        (m.member_id, m.group_instance_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment)
        for m in group.members
    )
    return (int(group.error_code), group.group_state, group.protocol_type, group.protocol_data, members)


def _offsets(group: Any) -> Any:
    partitions = sorted(
        (topic.name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, int(p.error_code))
        for topic in group.topics
        for p in topic.partitions
    )
    return (int(group.error_code), partitions)


async def listed(port: int) -> set[tuple[str, str]] | None:
    """(group, protocol type) of ListGroups; None while the server loads."""
    m = schema("list_groups", 4)
    client = await KafkaClient.connect(port)
    try:
        answer = await client.call(m.ListGroupsRequest(states_filter=()))
    finally:
        await client.close()
    return None if answer.error_code else {(group.group_id, group.protocol_type) for group in answer.groups}
