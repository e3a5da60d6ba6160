"""Groups of the consumer protocol (KIP-848), where members of both protocols do not mix."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.members import Member, commit, describe, topic
from tests.conformance.registry import script
from tests.conformance.session import Session

SETTINGS = {
    "group.consumer.migration.policy": "disabled",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "uniform,range",
}
A, B = str(uuid.UUID(int=5)), str(uuid.UUID(int=6))


async def beat(s: Session, member_id: str, epoch: int, version: int = 1, **fields: Any) -> int:
    """Returns the member epoch."""
    answer = await s.ask(
        "consumer_group_heartbeat",
        version,
        client_id="consumer",
        group_id=s.group,
        member_id=member_id,
        member_epoch=epoch,
        **fields,
    )
    return int(answer.member_epoch)


async def enter(s: Session, member_id: str, *topics: str, **fields: Any) -> int:
    joining: dict[str, Any] = {"rebalance_timeout": 30_000, "subscribed_topic_names": topics, "topic_partitions": ()}
    return await beat(s, member_id, 0, **(joining | fields))


def owned(s: Session, topic: str, *partitions: int) -> tuple[dict[str, Any], ...]:
    return ({"topic_id": s.server.topic_ids[topic], "partitions": partitions},)


async def show(s: Session) -> None:
    for version in (0, 1):
        await s.ask("consumer_group_describe", version, group_ids=(s.group,), include_authorized_operations=True)
    await describe(s)
    await s.ask("list_groups", 5, states_filter=(), types_filter=("consumer",))


@script(versions=(0, 1))
async def consumer_joins_goes_on_and_leaves(s: Session, version: int) -> None:
    epoch = await enter(s, A, "u", version=version)
    await beat(s, A, epoch, version)
    await show(s)
    await beat(s, A, -1, version)
    await show(s)


@script()
async def consumers_share_and_partitions_wait_for_their_revocation(s: Session) -> None:
    first = await enter(s, A, "u")
    second = await enter(s, B, "u")
    await show(s)
    await beat(s, A, first)
    await beat(s, A, first, topic_partitions=owned(s, "u", 0, 1, 2))
    await beat(s, B, second)
    await show(s)
    first = await beat(s, A, first, topic_partitions=owned(s, "u", 0, 1))
    await beat(s, B, second)
    await show(s)
    await beat(s, B, -1)
    await beat(s, A, first)


@script()
async def epochs_of_a_consumer(s: Session) -> None:
    epoch = await enter(s, A, "u")
    await beat(s, A, epoch + 1)
    await beat(s, A, epoch - 1)
    await beat(s, A, epoch, rebalance_timeout=30_000, subscribed_topic_names=("u",), topic_partitions=owned(s, "u", 0))
    await enter(s, A, "u")
    await beat(s, B, epoch)
    await beat(s, B, -1)


@script()
async def consumer_of_an_unknown_group(s: Session) -> None:
    await beat(s, A, 1)
    await beat(s, A, -1)
    await show(s)


@script(
    cases={
        "no_time_out": {"rebalance_timeout": -1},
        "no_partitions": {"topic_partitions": None},
        "partitions": {"topic_partitions": ({"topic_id": uuid.UUID(int=9), "partitions": (0,)},)},
        "no_subscription": {"subscribed_topic_names": None},
        "empty_instance": {"instance_id": ""},
        "empty_rack": {"rack_id": ""},
        "unknown_assignor": {"server_assignor": "sticky"},
        "bad_expression": {"subscribed_topic_regex": "(u", "subscribed_topic_names": None},
        "no_topics": {"subscribed_topic_names": ()},
        "unknown_topic": {"subscribed_topic_names": ("nothing",)},
        "range": {"server_assignor": "range", "rack_id": "r"},
    }
)
async def consumer_joins_with(s: Session, fields: dict[str, Any]) -> None:
    await enter(s, A, "u", **fields)
    await show(s)


@script(cases={"leaving": -1, "leaving_to_come_back": -2, "below": -3})
async def epoch_of_a_dynamic_consumer(s: Session, epoch: int) -> None:
    await beat(s, A, epoch)
    await beat(s, "", epoch, 0)


@script()
async def static_consumer_restarts(s: Session) -> None:
    epoch = await enter(s, A, "u", instance_id="i")
    await enter(s, B, "u", instance_id="i")
    await beat(s, B, epoch, instance_id="i")
    await beat(s, B, -2, instance_id="i")
    await beat(s, A, -2, instance_id="j")
    await beat(s, A, -2, instance_id="i")
    await show(s)
    await enter(s, B, "u", instance_id="i")
    await show(s)
    await beat(s, A, epoch, instance_id="i")
    await beat(s, B, -1, instance_id="i")
    await show(s)


@script()
async def consumer_subscribes_to_other_topics(s: Session) -> None:
    epoch = await enter(s, A, "u", "topic.with-all_1")
    await beat(s, A, epoch, subscribed_topic_names=("u",))
    epoch = await beat(s, A, epoch, topic_partitions=owned(s, "u", 0, 1, 2))
    await show(s)


@script()
async def commits_and_fetches_of_a_consumer(s: Session) -> None:
    epoch = await enter(s, A, "u")
    for member_id, number in ((A, epoch), (A, epoch - 1), (A, epoch + 1), (B, epoch), ("", -1)):
        await commit(s, 9, 7, member_id=member_id, generation_id_or_member_epoch=number, topics=[topic("u", (0, 7))])
    await commit(s, 8, 7, member_id=A, generation_id_or_member_epoch=epoch, topics=[topic("u", (0, 7))])
    topics = ({"name": "u", "partition_indexes": (0,)},)
    for member, number in ((A, epoch), (A, epoch + 1), (B, epoch), (None, -1)):
        group = {"group_id": s.group, "member_id": member, "member_epoch": number, "topics": topics}
        await s.ask("offset_fetch", 9, groups=(group,), require_stable=False)
    await s.ask("delete_groups", 2, groups_names=(s.group,))
    await beat(s, A, -1)
    await s.ask("delete_groups", 2, groups_names=(s.group,))
    await show(s)


@script()
async def classic_member_and_a_consumer_group(s: Session) -> None:
    await enter(s, A, "u")
    await Member(s, "classic").join()
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=2, member_id=A, group_instance_id=None)
    await s.ask("leave_group", 5, group_id=s.group, members=({"member_id": A, "group_instance_id": None},))
    await show(s)
