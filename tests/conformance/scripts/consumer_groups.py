"""Groups of the consumer protocol (KIP-848), where members of both protocols do not mix."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from tests.conformance.members import Member, commit, describe, topic
from tests.conformance.registry import script
from tests.conformance.session import Session

SETTINGS = {
    "group.consumer.migration.policy": "disabled",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "uniform,range",
    "group.consumer.max.size": "3",
}
RESOLVED_EPOCH = 3
"""The epoch of a group whose first member came with an expression, once that is resolved."""
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


@script()
async def expression_of_a_consumer(s: Session) -> None:
    epoch = await enter(s, A, subscribed_topic_names=None, subscribed_topic_regex="[u-z]")
    await _until_assigned(s, A, epoch)
    await beat(s, A, epoch + 1)
    await show(s)
    await enter(s, B, subscribed_topic_names=None, subscribed_topic_regex="[u-z]")
    await show(s)


async def _until_assigned(s: Session, member_id: str, epoch: int) -> None:
    """Unrecorded: how long a search takes is not compared."""
    fields = {"group_id": s.group, "member_id": member_id, "member_epoch": epoch}
    async with asyncio.timeout(20):
        while True:
            answer = await s.quietly("consumer_group_heartbeat", 1, **fields)
            if answer.assignment is not None:
                return
            await asyncio.sleep(0.05)


@script()
async def expression_and_names_of_a_consumer(s: Session) -> None:
    epoch = await enter(s, A, "u", subscribed_topic_regex="topic\\..*")
    await until_resolved(s)
    await show_one_version(s)
    await beat(s, A, epoch, subscribed_topic_regex="")
    await show_one_version(s)


async def until_resolved(s: Session) -> None:
    """Expressions are resolved beside the requests: the group's epoch tells of it."""
    for _ in range(100):
        found = await s.quietly("consumer_group_describe", 1, group_ids=(s.group,), include_authorized_operations=False)
        if int(found.groups[0].group_epoch) >= RESOLVED_EPOCH:
            return
        await asyncio.sleep(0.05)


async def show_one_version(s: Session) -> None:
    await s.ask("consumer_group_describe", 1, group_ids=(s.group,), include_authorized_operations=False)


@script()
async def static_consumer_comes_back_with_other_topics(s: Session) -> None:
    await enter(s, A, "u", instance_id="i")
    await enter(s, B, "u")
    await beat(s, A, -2, instance_id="i")
    await enter(s, "back", "t", instance_id="i")
    await show_one_version(s)


@script()
async def administrator_removes_consumers(s: Session) -> None:
    await enter(s, A, "u", instance_id="i")
    await enter(s, B, "u")
    members = [("", "i"), ("", "j"), (B, None), ("x", None), (B, "i")]
    leaving = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
    await s.ask("leave_group", 5, group_id=s.group, members=leaving)
    await show(s)


@script()
async def empty_consumer_group_becomes_a_classic_one(s: Session) -> None:
    await enter(s, A, "u")
    await beat(s, A, -1)
    await Member(s, "classic").ask_for_id()
    await s.until_exists()
    await show(s)


@script()
async def empty_classic_group_becomes_a_consumer_group(s: Session) -> None:
    await commit(s, 9, 7)
    await enter(s, A, "u")
    await show(s)


@script()
async def consumer_and_a_classic_group_with_members(s: Session) -> None:
    member = Member(s, "classic")
    await member.ask_for_id()
    await member.join()
    await enter(s, A, "u")
    await beat(s, A, 1)
    await beat(s, A, -1)
    await show(s)


@script()
async def offsets_of_a_consumer_are_deleted(s: Session) -> None:
    epoch = await enter(s, A, "u")
    topics = [topic("u", (0, 7)), topic("t", (0, 7))]
    await commit(s, 9, 7, member_id=A, generation_id_or_member_epoch=epoch, topics=topics)
    deleted = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("u", "t", "nothing")]
    await s.ask("offset_delete", 0, group_id=s.group, topics=deleted)


@script()
async def consumers_beyond_the_last_partition_get_none(s: Session) -> None:
    for number in range(3):
        await enter(s, str(uuid.UUID(int=20 + number)), "topic.with-all_1", server_assignor="range")
    await show_one_version(s)


@script()
async def older_epoch_commits_what_the_consumer_has_kept(s: Session) -> None:
    """KIP-1251."""
    first = await enter(s, A, "u")
    await enter(s, B, "u")
    await beat(s, A, first)
    await beat(s, A, first, topic_partitions=owned(s, "u", 0, 1))
    for partitions in ((0,), (2,), (0, 2)):
        committed = [topic("u", *[(each, 7) for each in partitions])]
        await commit(s, 9, 7, member_id=A, generation_id_or_member_epoch=first, topics=committed)
