"""ListGroups, DescribeGroups, DeleteGroups, OffsetDelete."""

from __future__ import annotations

from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, form, stable, subscription, topic
from tests.conformance.registry import script
from tests.conformance.session import Session


async def _list(s: Session, version: int = 5, **filters: Any) -> None:
    await s.ask("list_groups", version, **filters)


@script(versions=range(6))
async def list_groups(s: Session, version: int) -> None:
    s.group = s.name + "-stable"
    await stable(Member(s, "a"))
    await commit(s, group_id=s.name + "-simple")
    await _list(s, version)


async def _groups_in_all_states(s: Session) -> None:
    name = s.name
    await commit(s, group_id=f"{name}-simple")
    s.group = f"{name}-preparing"
    a = Member(s, "a")
    await stable(a)
    b = Member(s, "b")
    await b.ask_for_id()
    await b.park_join()
    s.group = f"{name}-completing"
    await form(Member(s, "c"))
    s.group = f"{name}-stable"
    await stable(Member(s, "d", protocol_type="connect"))
    s.group = f"{name}-empty"
    e = Member(s, "e")
    await stable(e)
    await e.commit()
    await e.leave()
    await s.until_state("Empty")


@script(
    cases={
        "Stable": ["Stable"],
        "stable_in_lower_case": ["stable"],
        "Empty": ["Empty"],
        "Preparing": ["PreparingRebalance"],
        "Completing": ["COMPLETINGREBALANCE"],
        "Dead": ["Dead"],
        "several": ["Stable", "Empty"],
        "unknown": ["Nonsense"],
        "unknown_and_known": ["Nonsense", "Stable"],
        "consumer_group_states": ["Assigning", "Reconciling"],
        "with_spaces": [" Stable "],
        "none": [],
        "empty_text": [""],
    }
)
async def list_groups_in_state(s: Session, states: list[str]) -> None:
    await _groups_in_all_states(s)
    await _list(s, 4, states_filter=states)
    await _list(s, 5, states_filter=states)


@script(
    cases={
        "classic": ["classic"],
        "Classic": ["Classic"],
        "consumer": ["consumer"],
        "share": ["share"],
        "streams": ["streams"],
        "unknown": ["nonsense"],
        "several": ["consumer", "classic"],
        "unknown_and_known": ["nonsense", "classic"],
        "empty_text": [""],
    }
)
async def list_groups_of_type(s: Session, types: list[str]) -> None:
    await commit(s)
    await _list(s, 5, types_filter=types)
    await _list(s, 5, types_filter=types, states_filter=["Empty"])


# -- DescribeGroups ---------------------------------------------------------------------------------------------------


@script(versions=range(7))
async def describe_an_unknown_group(s: Session, version: int) -> None:
    await describe(s, version)


@script(versions=range(7))
async def describe_the_empty_group_id(s: Session, version: int) -> None:
    await describe(s, version, groups=["no-such-group-1", "", "no-such-group-2"])


@script(versions=range(7))
async def describe_groups(s: Session, version: int) -> None:
    await stable(Member(s, "a", instance="i"), Member(s, "b"))
    await describe(s, version, groups=[s.group, "missing", s.group])


@script(versions=range(3, 7))
async def describe_with_authorized_operations(s: Session, version: int) -> None:
    await commit(s)
    await describe(s, version, include_authorized_operations=True, groups=[s.group, "missing"])


@script(versions=(0, 6))
async def describe_nothing(s: Session, version: int) -> None:
    await describe(s, version, groups=[])


@script()
async def describe_groups_in_all_states(s: Session) -> None:
    await _groups_in_all_states(s)
    names = [f"{s.name}-{state}" for state in ("simple", "preparing", "completing", "stable", "empty")]
    await describe(s, 5, groups=names)
    await describe(s, 6, groups=names)


# -- DeleteGroups -----------------------------------------------------------------------------------------------------


@script(versions=range(4))
async def delete_groups(s: Session, version: int) -> None:
    await commit(s)
    await s.ask("delete_groups", version, groups_names=[s.group])
    await fetch(s)
    await describe(s)
    await s.ask("delete_groups", version, groups_names=[s.group])


@script(versions=range(4))
async def delete_an_unknown_group(s: Session, version: int) -> None:
    await s.ask("delete_groups", version, groups_names=[s.group])


@script(versions=range(4))
async def delete_the_empty_group_id(s: Session, version: int) -> None:
    await s.ask("delete_groups", version, groups_names=["no-such-group", "-"])


@script(versions=range(4))
async def delete_a_group_with_members(s: Session, version: int) -> None:
    await stable(Member(s, "a"))
    await s.ask("delete_groups", version, groups_names=[s.group])
    await describe(s)


@script()
async def delete_groups_in_all_states(s: Session) -> None:
    await _groups_in_all_states(s)
    names = [f"{s.name}-{state}" for state in ("simple", "preparing", "completing", "stable", "empty", "missing")]
    await s.ask("delete_groups", 2, groups_names=names)
    await describe(s, 6, groups=names)


@script()
async def delete_one_group_twice_in_a_request(s: Session) -> None:
    await commit(s)
    await s.ask("delete_groups", 2, groups_names=[s.group, s.group])


@script(versions=range(4))
async def delete_nothing(s: Session, version: int) -> None:
    await s.ask("delete_groups", version, groups_names=[])


@script()
async def deleted_group_can_be_used_again(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit()
    await a.leave()
    await s.until_state("Empty")
    await s.ask("delete_groups", 2, groups_names=[s.group])
    await a.heartbeat()
    await stable(Member(s, "b"))
    await fetch(s)
    await describe(s)


@script()
async def group_of_a_pending_member_can_be_deleted(s: Session) -> None:
    a = Member(s, "a")
    await a.join()
    await s.until_state("Empty")
    await s.ask("delete_groups", 2, groups_names=[s.group])
    await describe(s)
    await a.join()


# -- OffsetDelete -----------------------------------------------------------------------------------------------------


async def _delete_offsets(s: Session, topics: dict[str, list[int]], group: str | None = None) -> None:
    wanted = [{"name": n, "partitions": [{"partition_index": i} for i in found]} for n, found in topics.items()]
    await s.ask("offset_delete", 0, group_id=s.group if group is None else group, topics=wanted)


@script()
async def delete_offsets_of_a_simple_group(s: Session) -> None:
    await commit(s, topics=[topic("t", (0, 1), (1, 2)), topic("u", (0, 3))])
    await _delete_offsets(s, {"t": [0, 5], "u": [0]})
    await fetch(s)


@script()
async def delete_offsets_of_unknown_topics(s: Session) -> None:
    await commit(s)
    await _delete_offsets(s, {"missing": [0], "t": [99, 0]})
    await fetch(s)


@script()
async def delete_offsets_of_unknown_topics_only(s: Session) -> None:
    await commit(s)
    await _delete_offsets(s, {"missing": [0, 1]})


@script()
async def delete_offsets_of_an_unknown_group(s: Session) -> None:
    await _delete_offsets(s, {"t": [0]})


@script()
async def delete_unknown_topics_of_an_unknown_group(s: Session) -> None:
    await _delete_offsets(s, {"missing": [0]})


@script()
async def delete_offsets_with_the_empty_group_id(s: Session) -> None:
    await _delete_offsets(s, {"t": [0]}, group="")


@script()
async def delete_no_offsets(s: Session) -> None:
    await commit(s)
    await _delete_offsets(s, {})
    await _delete_offsets(s, {"t": []})


@script()
async def delete_offsets_of_topics_that_members_subscribe_to(s: Session) -> None:
    a = Member(s, "a", topics=("t",))
    await stable(a)
    await a.commit(topics=[topic("t", (0, 1)), topic("u", (0, 2))])
    await _delete_offsets(s, {"t": [0, 1], "u": [0, 1], "missing": [0]})
    await fetch(s)


@script()
async def delete_offsets_of_a_group_with_members_of_another_type(s: Session) -> None:
    a = Member(s, "a", protocol_type="connect", protocols=(("x", b""),))
    await stable(a)
    await a.commit()
    await _delete_offsets(s, {"t": [0]})
    await fetch(s)


@script()
async def delete_offsets_of_an_empty_group_of_another_type(s: Session) -> None:
    a = Member(s, "a", protocol_type="connect", protocols=(("x", b""),))
    await stable(a)
    await a.commit()
    await a.leave()
    await s.until_state("Empty")
    await _delete_offsets(s, {"t": [0]})
    await fetch(s)


@script()
async def delete_offsets_of_an_empty_consumer_group(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit()
    await a.leave()
    await s.until_state("Empty")
    await _delete_offsets(s, {"t": [0]})
    await fetch(s)


@script()
async def delete_offsets_where_subscriptions_cannot_be_parsed(s: Session) -> None:
    a = Member(s, "a", protocols=(("range", b""),))
    await stable(a)
    await a.commit()
    await _delete_offsets(s, {"t": [0], "u": [0]})
    await fetch(s)


@script()
async def delete_offsets_while_members_join(s: Session) -> None:
    a, b = Member(s, "a", topics=("t",)), Member(s, "b", topics=("u",))
    await stable(a)
    await a.commit(topics=[topic("t", (0, 1)), topic("u", (0, 2))])
    await b.ask_for_id()
    await b.park_join()
    await _delete_offsets(s, {"t": [0], "u": [0]})


@script()
async def delete_offsets_while_the_leader_is_to_assign(s: Session) -> None:
    await commit(s, topics=[topic("t", (0, 1)), topic("u", (0, 2))])
    await form(Member(s, "a", topics=("t",)))
    await _delete_offsets(s, {"t": [0], "u": [0]})


@script()
async def subscription_of_all_members_counts(s: Session) -> None:
    a, b = Member(s, "a", topics=("t",)), Member(s, "b", protocols=(("range", subscription("u", "t")),))
    await stable(a, b)
    await a.commit(topics=[topic("t", (0, 1)), topic("u", (0, 2)), topic("topic.with-all_1", (0, 3))])
    await _delete_offsets(s, {"t": [0], "u": [0], "topic.with-all_1": [0]})


@script()
async def group_stays_after_its_last_offset_was_deleted(s: Session) -> None:
    a = Member(s, "a", topics=("u",))
    await stable(a)
    await a.commit()
    await _delete_offsets(s, {"t": [0]})
    await fetch(s)
    await describe(s)
