"""Members of both protocols in one group: upgrade, classic members by translation, downgrade."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from tests.conformance.members import Member, assignment, commit, describe, fetch, subscription, topic
from tests.conformance.registry import script
from tests.conformance.scripts.consumer_groups import A, B, beat, enter, owned, show
from tests.conformance.servers import MIN_SESSION_MS
from tests.conformance.session import Session

SETTINGS = {
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "range",  # sorts members by id: the random ones come behind those of consumers
}
NOBODY = b""


def subscribed(
    *topics: str, version: int = 0, has: tuple[tuple[str, tuple[int, ...]], ...] = (), rack: str = ""
) -> bytes:
    """ConsumerProtocolSubscription with what the member has (v1+), its generation (v2+) and its rack (v3+)."""
    data = struct.pack(">h", version) + subscription(*topics)[2:-4] + struct.pack(">i", -1)
    if version >= 1:
        data += struct.pack(">i", len(has))
        for name, partitions in has:
            numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
            data += struct.pack(">h", len(name)) + name.encode() + numbers
    if version >= 2:
        data += struct.pack(">i", 1)
    if version >= 3:
        data += struct.pack(">h", len(rack)) + rack.encode() if rack else struct.pack(">h", -1)
    return data


def classic(s: Session, name: str = "classic", **fields: Any) -> Member:
    return Member(s, name, **({"topics": ("u",)} | fields))


def having(member: Member, *partitions: int, version: int = 1) -> Member:
    """From now on it says that it has these of `u`."""
    has = (("u", partitions),) if partitions else ()
    names = [name for name, _ in member.protocols]
    member.protocols = tuple([(name, subscribed("u", version=version, has=has)) for name in names])
    return member


async def settled(s: Session, member: Member, *partitions: int, data: bytes | None = None) -> None:
    """A Stable classic group of this member, which has these partitions of `u`."""
    await member.ask_for_id()
    await member.join()
    given = assignment("u", *partitions) if data is None else data
    await member.sync(assignments=[{"member_id": member.member_id, "assignment": given}])
    await s.until_state("Stable")


async def again(member: Member) -> None:
    """The member joins and syncs in a consumer group, and tells what its heartbeat says."""
    await member.join()
    whole = [{"member_id": member.member_id, "assignment": assignment("u", 0, 1, 2)}] if member.is_leader else []
    await member.sync(assignments=whole)
    await member.heartbeat()


# -- upgrade ----------------------------------------------------------------------------------------------------------


@script()
async def consumer_joins_a_classic_group_and_leaves_it_to_it(s: Session) -> None:
    member = classic(s)
    await settled(s, member, 0, 1, 2)
    await member.commit(9, topics=[topic("u", (0, 7))])
    first = await enter(s, A, "u")
    await show(s)
    await member.heartbeat()
    await member.sync()
    await member.commit(9, topics=[topic("u", (1, 8))])
    await again(member)
    await beat(s, A, first)
    await show(s)
    await again(member)
    await member.commit(9, topics=[topic("u", (1, 8))])
    await fetch(s, 9, {"u": [0, 1, 2]}, group=s.group)
    await beat(s, A, -1)
    await show(s)
    await describe(s, 5)
    await member.heartbeat()
    await member.commit(9, topics=[topic("u", (1, 9))])
    await again(member)
    await describe(s, 5)


@script(versions=(0, 1, 2, 3))
async def cooperative_member_gives_back_what_the_consumer_gets(s: Session, version: int) -> None:
    member = having(classic(s), version=version)
    await settled(s, member, 0, 1, 2)
    first = await enter(s, A, "u")
    having(member, 0, 1, 2, version=version)
    await member.heartbeat()
    await again(member)
    await beat(s, A, first)
    await show(s)
    having(member, 0, version=version)
    await again(member)
    await show(s)
    await beat(s, A, first)
    await beat(s, A, first, topic_partitions=())
    await show(s)


@script()
async def consumer_joins_a_group_in_its_first_rebalance(s: Session) -> None:
    member = classic(s)
    await member.ask_for_id()
    await member.park_join()
    await enter(s, A, "u")


@script()
async def consumer_joins_a_group_whose_members_join_anew(s: Session) -> None:
    first, second = classic(s, "first"), classic(s, "second")
    await settled(s, first, 0, 1, 2)
    await second.ask_for_id()
    parked = await second.park_join()
    await describe(s, 5)
    await enter(s, A, "u")
    await second.joined_by(parked)
    await show(s)
    await first.heartbeat()
    await again(first)
    await again(second)
    await show(s)


@script()
async def consumer_joins_a_group_that_waits_for_its_leader(s: Session) -> None:
    first, second = classic(s, "first"), classic(s, "second")
    for member in (first, second):
        await member.ask_for_id()
    joins = [await member.park_join() for member in (first, second)]
    for member, join in zip((first, second), joins, strict=True):
        await member.joined_by(join)
    follower = second if first.is_leader else first
    parked = await follower.park_sync()
    await enter(s, A, "u")
    await parked.answer()
    await show(s)


@script(
    cases={
        "text": b"of classic",
        "nothing": NOBODY,
        "unknown_topic": assignment("nothing", 0),
        "user_data": assignment("u", 0)[:-4] + struct.pack(">i", 1) + b"x",
        "empty_user_data": assignment("u", 0)[:-4] + struct.pack(">i", 0),
        "negative_version": struct.pack(">h", -1) + assignment("u", 0)[2:],
        "later_version": struct.pack(">h", 9) + assignment("u", 0)[2:],
        "cut": assignment("u", 0)[:-5],
    }
)
async def consumer_joins_a_group_with_an_assignment_of(s: Session, data: bytes) -> None:
    await settled(s, classic(s), data=data)
    await enter(s, A, "u")
    await show(s)


@script(
    cases={
        "empty": b"",
        "negative_version": struct.pack(">h", -1) + subscription("u")[2:],
        "cut": subscription("u")[:-1],
    }
)
async def consumer_joins_a_group_with_metadata(s: Session, metadata: bytes) -> None:
    await settled(s, classic(s, protocols=(("range", metadata),)), 0)
    await enter(s, A, "u")
    await show(s)


@script()
async def consumer_joins_a_group_of_another_kind(s: Session) -> None:
    await settled(s, classic(s, protocol_type="connect"), 0)
    await enter(s, A, "u")
    await beat(s, A, 1)
    await show(s)


@script()
async def consumer_takes_the_place_of_a_classic_static_member(s: Session) -> None:
    member = classic(s, instance="i")
    await settled(s, member, 0, 1, 2)
    epoch = await enter(s, A, "u", instance_id="i")
    await show(s)
    await member.heartbeat()
    await member.sync()
    await beat(s, A, epoch, instance_id="i")


@script()
async def consumer_cannot_be_served_after_the_conversion(s: Session) -> None:
    await settled(s, classic(s), 0, 1, 2)
    await enter(s, A, "u", subscribed_topic_names=None, subscribed_topic_regex="(u")
    await show(s)
    await describe(s, 5)


# -- JoinGroup --------------------------------------------------------------------------------------------------------


@script(versions=range(10))
async def classic_member_joins_a_consumer_group(s: Session, version: int) -> None:
    await enter(s, A, "u")
    member = classic(s, version=version)
    await member.ask_for_id()
    await again(member)
    await show(s)


@script(
    cases={
        "another_type": {"protocol_type": "connect"},
        "no_type": {"protocol_type": ""},
        "no_protocols": {"protocols": []},
        "no_metadata": {"protocols": [{"name": "range", "metadata": b""}]},
        "negative_version": {
            "protocols": [{"name": "range", "metadata": struct.pack(">h", -1) + subscription("u")[2:]}]
        },
        "later_version": {
            "protocols": [{"name": "range", "metadata": struct.pack(">h", 9) + subscribed("u", version=3)[2:]}]
        },
        "cut": {"protocols": [{"name": "range", "metadata": subscription("u")[:-1]}]},
        "second_is_bad": {
            "protocols": [{"name": "range", "metadata": subscription("u")}, {"name": "sticky", "metadata": b""}]
        },
        "rack": {"protocols": [{"name": "range", "metadata": subscribed("u", version=3, rack="r")}]},
        "no_topics": {"protocols": [{"name": "range", "metadata": subscription()}]},
        "unknown_topic": {"protocols": [{"name": "range", "metadata": subscription("nothing")}]},
        "short_session": {"session_timeout": 1},
        "own_id": {"member_id": "mine"},
        "instance_and_own_id": {"member_id": "mine", "group_instance_id": "i"},
        "an_instance": {"group_instance_id": "i"},
        "id_of_the_consumer": {"member_id": A},
    }
)
async def classic_member_joins_a_consumer_group_with(s: Session, fields: dict[str, Any]) -> None:
    await enter(s, A, "u")
    member = classic(s)
    if "member_id" not in fields and "group_instance_id" not in fields:
        await member.join()
    await member.join(**fields)
    await show(s)
    await member.sync(**{name: value for name, value in fields.items() if name == "group_instance_id"})


@script()
async def protocols_of_classic_members_in_a_consumer_group(s: Session) -> None:
    both = tuple([(name, subscription("u")) for name in ("range", "sticky")])
    await enter(s, A, "u")
    first, second = classic(s, "first", protocols=both), classic(s, "second", protocols=both[1:])
    await first.ask_for_id()
    await again(first)
    await second.ask_for_id()
    await again(second)
    third = classic(s, "third", protocols=both[:1])
    await third.join()
    first.protocols = both[:1]
    await first.join()
    first.protocols = both[1:]
    await again(first)


@script()
async def classic_member_joins_again_with_another_subscription(s: Session) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await again(member)
    member.protocols = (("range", subscription("u", "t")),)
    await again(member)
    await show(s)


@script()
async def consumer_joins_with_the_id_of_a_classic_member(s: Session) -> None:
    await enter(s, A, "u")
    member = classic(s)
    member.member_id = B
    await again(member)
    await enter(s, B, "u")
    await show(s)
    await member.heartbeat()
    await member.join()
    await beat(s, B, member.generation)
    await show(s)


@script()
async def too_many_members_of_both_kinds(s: Session) -> None:
    """group.max.size is 4: a larger group is not made a classic one."""
    await enter(s, A, "u")
    members = [classic(s, f"m{number}") for number in range(5)]
    for member in members:
        member.member_id = member.name
        await member.join()
    await beat(s, A, -1)
    await show(s)
    await members[0].leave()
    await describe(s, 5)


# -- SyncGroup, Heartbeat, LeaveGroup ---------------------------------------------------------------------------------


@script(
    cases={
        "older_generation": {"generation_id": 1},
        "newer_generation": {"generation_id": 9},
        "no_generation": {"generation_id": -1},
        "another_type": {"protocol_type": "connect"},
        "another_protocol": {"protocol_name": "sticky"},
        "no_type": {"protocol_type": None},
        "unknown_member": {"member_id": "x"},
        "no_member": {"member_id": ""},
        "the_consumer": {"member_id": A},
        "instance": {"group_instance_id": "i"},
        "assignments": {"assignments": [{"member_id": A, "assignment": b"of all"}]},
    }
)
async def classic_member_of_a_consumer_group_syncs_with(s: Session, fields: dict[str, Any]) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await member.join()
    await member.sync(**fields)
    unknown_to_heartbeats = ("protocol_type", "protocol_name", "assignments")
    await member.heartbeat(**{name: value for name, value in fields.items() if name not in unknown_to_heartbeats})


@script(versions=range(6))
async def classic_member_of_a_consumer_group_syncs(s: Session, version: int) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await member.join()
    await member.sync(version)


@script(versions=range(5))
async def classic_member_of_a_consumer_group_sends_heartbeats(s: Session, version: int) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await enter(s, B, "u")
    await member.heartbeat(version)
    await again(member)
    await member.heartbeat(version)


@script(versions=range(6))
async def classic_member_leaves_a_consumer_group(s: Session, version: int) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await member.leave(version)
    await show(s)
    await member.heartbeat()


@script()
async def administrator_removes_members_of_both_kinds(s: Session) -> None:
    await enter(s, A, "u", instance_id="a")
    await enter(s, B, "u")
    member, static = classic(s), classic(s, "static", instance="i")
    await member.ask_for_id()
    await member.join()
    await static.join()
    members = [("", "i"), ("x", "i"), ("x", None), (B, None), (member.member_id, None)]
    leaving = [{"member_id": each, "group_instance_id": instance} for each, instance in members]
    await s.ask("leave_group", 5, group_id=s.group, members=leaving)
    await show(s)


@script()
async def administrator_leaves_classic_members_only(s: Session) -> None:
    await enter(s, A, "u", instance_id="a")
    await enter(s, B, "u")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    leaving = [{"member_id": each, "group_instance_id": instance} for each, instance in (("", "a"), (B, None))]
    await s.ask("leave_group", 5, group_id=s.group, members=leaving)
    await show(s)
    await describe(s, 5)
    await again(member)


# -- static members ---------------------------------------------------------------------------------------------------


@script()
async def classic_static_member_restarts_in_a_consumer_group(s: Session) -> None:
    await enter(s, A, "u")
    old, new = classic(s, "old", instance="i"), classic(s, "new", instance="i")
    await again(old)
    await again(new)
    await old.heartbeat()
    await old.sync()
    await old.join()
    await show(s)


@script(cases={"the_same": ("u",), "others": ("u", "t")})
async def classic_static_member_takes_the_place_of_the_last_consumer(s: Session, topics: tuple[str, ...]) -> None:
    await enter(s, A, "u", instance_id="i")
    other = classic(s, "other")
    await other.ask_for_id()
    await again(other)
    await beat(s, A, 2, instance_id="i", topic_partitions=())
    await again(other)
    member = classic(s, "back", instance="i", topics=topics)
    await member.join()
    await describe(s, 5)
    await show(s)
    await member.sync()
    await member.heartbeat()
    await beat(s, A, 3, instance_id="i")


@script()
async def lone_consumer_comes_back_as_a_classic_static_member(s: Session) -> None:
    await enter(s, A, "u", instance_id="i")
    await beat(s, A, -2, instance_id="i")
    member = classic(s, "back", instance="i")
    await member.join()
    await describe(s, 5)
    await member.sync()
    await member.heartbeat()


@script()
async def lone_consumer_with_an_expression_comes_back_as_a_classic_static_member(s: Session) -> None:
    await enter(s, A, subscribed_topic_names=None, subscribed_topic_regex="u", instance_id="i")
    member = classic(s, "back", instance="i")
    await member.join()
    await describe(s, 5)


@script()
async def static_member_goes_from_one_protocol_to_the_other_and_back(s: Session) -> None:
    await enter(s, A, "u")
    await enter(s, B, "u", instance_id="i")
    member = classic(s, "back", instance="i")
    await again(member)
    await show(s)
    await enter(s, B, "u", instance_id="i")
    await show(s)


# -- offsets ----------------------------------------------------------------------------------------------------------


@script(versions=range(2, 11))
async def classic_member_of_a_consumer_group_commits(s: Session, version: int) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    for generation in (member.generation, member.generation + 1, member.generation - 1, -1):
        topics = [topic("u", (0, 7))]
        await member.commit(version, generation_id_or_member_epoch=generation, topics=topics)


@script()
async def older_generation_commits_what_the_classic_member_has_kept(s: Session) -> None:
    member = having(classic(s))
    await settled(s, member, 0, 1, 2)
    first = member.generation
    await enter(s, A, "u")
    having(member, 0, 1, 2)
    await again(member)
    having(member, 0, 1)
    await again(member)
    for partitions in ((0,), (2,), (0, 2)):
        committed = [topic("u", *[(each, 7) for each in partitions])]
        await member.commit(9, generation_id_or_member_epoch=first, topics=committed)


@script()
async def offsets_are_fetched_by_classic_members_of_a_consumer_group(s: Session) -> None:
    await enter(s, A, "u")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await commit(s, 9, 7)
    topics = [{"name": "u", "partition_indexes": [0]}]
    for member_id, epoch in ((member.member_id, member.generation), (member.member_id, 1), ("x", 1), (None, -1)):
        asked = {"group_id": s.group, "member_id": member_id, "member_epoch": epoch, "topics": topics}
        await s.ask("offset_fetch", 9, groups=[asked], require_stable=False)


@script()
async def mixed_group_is_not_deleted(s: Session) -> None:
    await settled(s, classic(s), 0)
    await enter(s, A, "u")
    await s.ask("delete_groups", 2, groups_names=[s.group])


# -- time-outs --------------------------------------------------------------------------------------------------------


@script()
async def silent_classic_member_is_out_of_a_consumer_group(s: Session) -> None:
    await enter(s, A, "u")
    member = classic(s, session_ms=MIN_SESSION_MS)
    await member.ask_for_id()
    await again(member)
    await gone(s, 1)
    await show(s)
    await member.heartbeat()


@script()
async def classic_member_that_does_not_sync_is_out(s: Session) -> None:
    await enter(s, A, "u")
    member = classic(s, rebalance_ms=700)
    await member.ask_for_id()
    await member.join()
    await gone(s, 1)
    await show(s)


@script()
async def classic_member_that_does_not_join_anew_is_out(s: Session) -> None:
    await enter(s, A, "u")
    member = classic(s, rebalance_ms=700)
    await member.ask_for_id()
    await again(member)
    await enter(s, B, "u")
    await member.heartbeat()
    await member.heartbeat()
    await gone(s, 2)
    await show(s)


async def gone(s: Session, left: int) -> None:
    """Wait until so many members are left."""
    async with asyncio.timeout(20):
        while True:
            found = await s.quietly(
                "consumer_group_describe", 1, group_ids=(s.group,), include_authorized_operations=False
            )
            if len(found.groups[0].members) == left:
                return
            await asyncio.sleep(0.05)


@script()
async def silent_last_consumer_leaves_a_classic_group(s: Session) -> None:
    """Its rebalance time-out ends it: it does not give back what the classic member is to get."""
    await enter(s, A, "u", rebalance_timeout=700)
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await beat(s, A, 2, topic_partitions=owned(s, "u", 0, 1, 2))
    await s.until_state("PreparingRebalance")
    await describe(s, 5)
    await again(member)


async def into_a_classic_group(s: Session) -> None:
    """A consumer comes into a group of a classic member, and leaves, whatever the policy lets it."""
    member = classic(s)
    await settled(s, member, 0, 1, 2)
    await enter(s, A, "u")
    await show(s)
    await member.heartbeat()
    await again(member)
    await beat(s, A, -1)
    await show(s)
    await describe(s, 5)
    await member.heartbeat()


async def into_a_consumer_group(s: Session) -> None:
    """Classic members come into a group of a consumer, whatever the policy lets them."""
    await enter(s, A, "u", instance_id="i")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await show(s)
    static = classic(s, "back", instance="i")
    await static.join()
    await show(s)
    await describe(s, 5)
    await static.leave()
    await describe(s, 5)
