"""Every version of the group APIs, asked of a group of the consumer protocol, with each of their errors."""

from __future__ import annotations

from typing import Any

from tests.conformance.members import Member, assignment, commit, describe, fetch, stable, subscription, topic
from tests.conformance.registry import script
from tests.conformance.scripts import consumer_groups
from tests.conformance.scripts.consumer_groups import A, B, beat, enter, owned, show_one_version
from tests.conformance.session import Session

SETTINGS = consumer_groups.SETTINGS
STAYS_AWAY = -2
NO_MEMBER = "nobody"
WITH_INSTANCES = {"heartbeat": 3, "leave_group": 3, "sync_group": 3, "offset_commit": 7}
"""First version of each API in which a static member says its instance id."""
SEVERAL_GROUPS_SINCE, MEMBERS_FETCH_SINCE = 8, 9


async def shared(s: Session) -> int:
    """A group of two: A is static and has all three partitions of `u`, B joins and gets what A does not want. Returns
    A's epoch."""
    epoch = await enter(s, A, "u", instance_id="i")
    await enter(s, B, "t", server_assignor="uniform")
    return await beat(s, A, epoch, instance_id="i", topic_partitions=owned(s, "u", 0, 1, 2))


def identities(epoch: int) -> list[tuple[str, int]]:
    """(member id, epoch): the right ones, and each kind of wrong ones."""
    return [(A, epoch), (A, epoch - 1), (A, epoch + 1), (A, 0), (A, -1), (NO_MEMBER, epoch), ("", epoch), ("", -1)]


# -- OffsetCommit, OffsetFetch ----------------------------------------------------------------------------------------


@script(versions=range(2, 11))
async def group_of_consumers_is_committed_to(s: Session, version: int) -> None:
    epoch = await shared(s)
    for offset, (member_id, number) in enumerate(identities(epoch)):
        identity = {"member_id": member_id, "generation_id_or_member_epoch": number}
        await commit(s, version, topics=[topic("u", (0, offset), (2, offset)), topic("t", (0, offset))], **identity)
    if version >= WITH_INSTANCES["offset_commit"]:
        for instance in ("i", "j", ""):
            identity = {"member_id": A, "generation_id_or_member_epoch": epoch, "group_instance_id": instance}
            await commit(s, version, topics=[topic("u", (1, 20))], **identity)
    await commit(s, version, topics=[topic("missing", (0, 1))], member_id=A, generation_id_or_member_epoch=epoch)
    await fetch(s, 9)


@script(versions=range(2, 11))
async def emptied_group_of_consumers_is_committed_to(s: Session, version: int) -> None:
    epoch = await enter(s, A, "u")
    await beat(s, A, -1)
    for offset, (member_id, number) in enumerate(identities(epoch)):
        identity = {"member_id": member_id, "generation_id_or_member_epoch": number}
        await commit(s, version, topics=[topic("u", (0, offset))], **identity)
    await fetch(s, 9)


@script(versions=range(1, 11))
async def offsets_of_a_group_of_consumers_are_fetched(s: Session, version: int) -> None:
    epoch = await shared(s)
    await commit(s, 9, topics=[topic("u", (0, 7))], member_id=A, generation_id_or_member_epoch=epoch)
    await fetch(s, version, {"u": [0, 1], "t": [0], "missing": [0]})
    if version >= 2:
        await fetch(s, version)
    if version < MEMBERS_FETCH_SINCE:
        return
    for member_id, number in [*identities(epoch), (None, -1), (None, epoch)]:
        name = {"name": "u", "partition_indexes": (0, 1)}
        group = {"group_id": s.group, "member_id": member_id, "member_epoch": number, "topics": (name,)}
        await s.ask("offset_fetch", version, groups=(group,), require_stable=True)


@script(versions=range(SEVERAL_GROUPS_SINCE, 11))
async def offsets_of_several_groups_are_fetched_of_which_one_has_consumers(s: Session, version: int) -> None:
    epoch = await shared(s)
    names = [(s.group, A, epoch), (s.group, A, epoch + 1), (f"{s.group}-none", A, epoch), (f"{s.group}-none", None, -1)]
    groups = [
        {"group_id": name, "member_id": who, "member_epoch": number, "topics": None} for name, who, number in names
    ]
    await s.ask("offset_fetch", version, groups=groups, require_stable=False)


# -- JoinGroup, SyncGroup, Heartbeat, LeaveGroup ----------------------------------------------------------------------


@script(versions=range(10))
async def classic_members_join_a_group_of_consumers(s: Session, version: int) -> None:
    """Which takes none, by its migration policy."""
    await shared(s)
    for changes in (
        {},
        {"member_id": A},
        {"member_id": NO_MEMBER},
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocols": [{"name": "range", "metadata": b"\xff"}]},
        {"session_timeout": 1},
        {"group_id": ""},
        {"group_instance_id": "i"} if version >= 5 else {},
    ):
        await s.ask(
            "join_group", version, **Member(s, "classic", version=version, topics=("u",)).join_fields(**changes)
        )
    await show_one_version(s)


@script(versions=range(6))
async def consumers_sync_as_classic_members(s: Session, version: int) -> None:
    epoch = await shared(s)
    assigned = {"member_id": A, "assignment": assignment("u", 0)}
    for member_id, number in identities(epoch):
        asked = {"group_id": s.group, "member_id": member_id, "generation_id": number}
        for assignments in ((), (assigned,)):
            protocol = {"protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
            await s.ask("sync_group", version, **asked, **protocol)
    if version >= WITH_INSTANCES["sync_group"]:
        for instance in ("i", "j"):
            protocol = {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": instance}
            asked = {"group_id": s.group, "member_id": A, "generation_id": epoch, "assignments": ()}
            await s.ask("sync_group", version, **asked, **protocol)


@script(versions=range(5))
async def consumers_send_heartbeats_as_classic_members(s: Session, version: int) -> None:
    epoch = await shared(s)
    for member_id, number in identities(epoch):
        await s.ask("heartbeat", version, group_id=s.group, member_id=member_id, generation_id=number)
    if version >= WITH_INSTANCES["heartbeat"]:
        for member_id, instance in ((A, "i"), (B, "i"), (A, "j"), ("", "i")):
            who = {"member_id": member_id, "group_instance_id": instance, "generation_id": epoch}
            await s.ask("heartbeat", version, group_id=s.group, **who)


@script(versions=range(6))
async def consumers_leave_as_classic_members(s: Session, version: int) -> None:
    await shared(s)
    if version < WITH_INSTANCES["leave_group"]:
        for member_id in (NO_MEMBER, "", B, B, A):
            await s.ask("leave_group", version, group_id=s.group, member_id=member_id)
            await show_one_version(s)
        return
    wrong = [(NO_MEMBER, None), ("", None), (A, "j"), (B, "i"), ("", "j")]
    for members in (wrong, [(B, None), (B, None)], [("", "i"), (A, "i")]):
        leaving = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in members]
        await s.ask("leave_group", version, group_id=s.group, members=leaving)
        await show_one_version(s)


# -- DescribeGroups, ListGroups, DeleteGroups, OffsetDelete -----------------------------------------------------------


@script(versions=range(7))
async def group_of_consumers_is_described_as_a_classic_one(s: Session, version: int) -> None:
    await shared(s)
    await describe(s, version)
    await describe(s, version, groups=[s.group, f"{s.group}-none", "", s.group])
    if version >= 3:
        await describe(s, version, include_authorized_operations=True)
    for member_id in (A, B):
        await beat(s, member_id, -1)
    await describe(s, version)


@script(versions=range(6))
async def group_of_consumers_is_listed(s: Session, version: int) -> None:
    epoch = await enter(s, A, "u")
    await s.ask("list_groups", version)
    if version >= 4:
        for states in (("Stable",), ("Reconciling", "Assigning"), ("stable",), ("Empty", "Dead"), ("nonsense",)):
            await s.ask("list_groups", version, states_filter=states)
    if version >= 5:
        for types in (("consumer",), ("Consumer", "classic"), ("classic",), ("share",), ("nonsense",)):
            await s.ask("list_groups", version, types_filter=types)
        await s.ask("list_groups", version, types_filter=("consumer",), states_filter=("stable",))
    await enter(s, B, "u")
    await s.ask("list_groups", version)
    await beat(s, A, epoch, topic_partitions=owned(s, "u", 0, 1))
    for member_id in (A, B):
        await beat(s, member_id, -1)
    await s.ask("list_groups", version)


@script(versions=range(3))
async def groups_of_consumers_are_deleted(s: Session, version: int) -> None:
    await shared(s)
    await s.ask("delete_groups", version, groups_names=(s.group, f"{s.group}-none", "", s.group))
    for member_id in (A, B):
        await beat(s, member_id, -1)
    await s.ask("delete_groups", version, groups_names=(s.group, s.group))
    await s.ask("delete_groups", version, groups_names=(s.group,))
    await show_one_version(s)


# -- ConsumerGroupHeartbeat -------------------------------------------------------------------------------------------

JOINING_WRONG: dict[str, dict[str, Any]] = {
    "group": {"group_id": ""},
    "time_out": {"rebalance_timeout": 0},
    "partitions": {"topic_partitions": None},
    "subscription": {"subscribed_topic_names": None},
    "instance": {"instance_id": ""},
    "rack": {"rack_id": ""},
    "assignor": {"server_assignor": "sticky"},
    "empty_assignor": {"server_assignor": ""},
    "topic_without_a_name": {"subscribed_topic_names": ("",)},
}


@script(versions=(0, 1))
async def consumers_that_join_wrongly(s: Session, version: int) -> None:
    for fields in JOINING_WRONG.values():
        joining = {"rebalance_timeout": 30_000, "subscribed_topic_names": ("u",), "topic_partitions": ()}
        asked = {"group_id": s.group, "member_id": A, "member_epoch": 0} | joining | fields
        await s.ask("consumer_group_heartbeat", version, client_id="consumer", **asked)
    await show_one_version(s)


@script(versions=(0, 1))
async def consumers_with_every_wrong_epoch(s: Session, version: int) -> None:
    epoch = await enter(s, A, "u", version=version)
    for member_id, number in identities(epoch):
        if number > 0 and member_id:
            await beat(s, member_id, number, version)
    for number in (-3, -2):
        await beat(s, A, number, version)
    await beat(s, NO_MEMBER, -1, version)
    await beat(s, A, epoch, version, instance_id="i")
    await beat(s, A, epoch, version, rebalance_timeout=-1, subscribed_topic_names=(), topic_partitions=())
    await show_one_version(s)


@script(versions=(0, 1))
async def static_consumers_that_are_wrong(s: Session, version: int) -> None:
    epoch = await enter(s, A, "u", version=version, instance_id="i")
    await enter(s, B, "u", version=version, instance_id="i")  # it has not been released
    await enter(s, A, "u", version=version, instance_id="i")
    for member_id, instance, number in (
        (B, "i", epoch),
        (A, "j", epoch),
        (A, "i", epoch + 1),
        (B, "i", STAYS_AWAY),
        (A, "j", STAYS_AWAY),
        (A, "i", STAYS_AWAY),
        (A, "i", epoch),
    ):
        await beat(s, member_id, number, version, instance_id=instance)
    await enter(s, B, "u", version=version, instance_id="i")
    for member_id in (A, B):
        await beat(s, member_id, -1, version, instance_id="i")
    await show_one_version(s)


@script(versions=(0, 1))
async def consumers_beyond_the_size_of_the_group(s: Session, version: int) -> None:
    members = [f"m-{number}" for number in range(4)]
    for member_id in members:
        await enter(s, member_id, "u", version=version)
    await enter(s, members[0], "u", version=version)  # it is a member already
    await beat(s, members[0], -1, version)
    await enter(s, members[3], "u", version=version)


@script(versions=(0, 1))
async def consumer_says_what_it_has(s: Session, version: int) -> None:
    epoch = await enter(s, A, "u", version=version)
    for partitions in ((0,), (0, 1, 2), (0, 99), ()):
        await beat(s, A, epoch, version, topic_partitions=owned(s, "u", *partitions))
    await beat(s, A, epoch, version, topic_partitions=owned(s, "t", 0))
    await beat(s, A, epoch - 1, version, topic_partitions=owned(s, "u", 0))
    await beat(s, A, epoch - 1, version, topic_partitions=owned(s, "t", 0))


@script(cases={"group": "(u", "star": "*", "class": "[z-a]", "back": "(u)\\1", "ahead": "(?=u)"})
async def expression_that_is_none(s: Session, expression: str) -> None:
    await enter(s, A, subscribed_topic_names=None, subscribed_topic_regex=expression)
    epoch = await enter(s, B, "u")
    await beat(s, B, epoch, subscribed_topic_regex=expression)
    await show_one_version(s)


# -- ConsumerGroupDescribe --------------------------------------------------------------------------------------------


@script(versions=(0, 1))
async def groups_of_every_kind_are_described_as_consumers(s: Session, version: int) -> None:
    await shared(s)
    classic = f"{s.group}-classic"
    own, s.group = s.group, classic
    await stable(Member(s, "classic"))
    s.group = own
    for operations in (False, True):
        for names in ((own,), (classic,), (f"{own}-none",), ("",), (own, own), ("", own), ()):
            await s.ask("consumer_group_describe", version, group_ids=names, include_authorized_operations=operations)


@script(versions=(0, 1))
async def group_is_described_at_every_step_of_a_rebalance(s: Session, version: int) -> None:
    async def shown() -> None:
        asked = (s.group,)
        await s.ask("consumer_group_describe", version, group_ids=asked, include_authorized_operations=False)

    first = await enter(s, A, "u", rack_id="r", version=version)
    await shown()
    second = await enter(s, B, "u", "t", instance_id="i", version=version)
    await shown()
    await beat(s, A, first, version)
    await shown()
    await beat(s, A, first, version, topic_partitions=owned(s, "u", 0, 1))
    await shown()
    await beat(s, B, second, version, instance_id="i")
    await shown()
    await beat(s, B, STAYS_AWAY, version, instance_id="i")
    await shown()
    await beat(s, A, -1, version)
    await shown()


@script(versions=(0, 1))
async def classic_group_of_consumers_becomes_described_as_one(s: Session, version: int) -> None:
    """An empty classic group becomes one of consumers, and a classic one again."""
    member = Member(s, "classic", protocols=(("range", subscription("u")),))
    await stable(member)
    await member.leave()
    for joins in (True, False):
        if joins:
            await enter(s, A, "u", version=version)
        else:
            await beat(s, A, -1, version)
        await s.ask("consumer_group_describe", version, group_ids=(s.group,), include_authorized_operations=True)
        await describe(s)
    again = Member(s, "classic")
    await again.ask_for_id()
    await s.until_exists()
    await s.ask("consumer_group_describe", version, group_ids=(s.group,), include_authorized_operations=True)
