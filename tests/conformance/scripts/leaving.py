"""LeaveGroup: single and in batches, dynamic, static and pending members."""

from __future__ import annotations

from typing import Any

from tests.conformance.members import Member, commit, describe, form, stable
from tests.conformance.registry import script
from tests.conformance.session import Session


async def _leave(s: Session, version: int, *members: dict[str, Any], group: str | None = None) -> None:
    fields: dict[str, Any] = {"group_id": s.group if group is None else group}
    fields |= {"members": list(members)} if version >= 3 else {"member_id": members[0]["member_id"]}
    await s.ask("leave_group", version, **fields)


def _who(member: Member, **changes: Any) -> dict[str, Any]:
    return {"member_id": member.member_id, "group_instance_id": member.instance} | changes


@script(versions=range(6))
async def leave_an_unknown_group(s: Session, version: int) -> None:
    await _leave(s, version, {"member_id": "x"})


@script(versions=range(6))
async def leave_with_the_empty_group_id(s: Session, version: int) -> None:
    await _leave(s, version, {"member_id": "x"}, group="")


@script(versions=range(6))
async def leave_with_an_unknown_member_id(s: Session, version: int) -> None:
    a = Member(s, "a")
    await stable(a)
    await _leave(s, version, {"member_id": "nobody"})
    await a.heartbeat()


@script(versions=range(6))
async def leave_twice(s: Session, version: int) -> None:
    a = Member(s, "a")
    await stable(a)
    await _leave(s, version, _who(a))
    await _leave(s, version, _who(a))
    await describe(s)


@script(versions=range(3, 6))
async def leave_of_nobody(s: Session, version: int) -> None:
    await stable(Member(s, "a"))
    await _leave(s, version)
    await describe(s)


@script(versions=range(3, 6))
async def leave_of_an_unknown_group_of_several(s: Session, version: int) -> None:
    await _leave(s, version, {"member_id": "x"}, {"member_id": "", "group_instance_id": "i"}, {"member_id": ""})


@script()
async def batch_of_valid_and_unknown_members(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await stable(a, b, c)
    await _leave(s, 5, _who(b), {"member_id": "nobody"}, _who(c), {"member_id": "", "group_instance_id": "i"})
    await describe(s)
    await a.join()
    await describe(s)


@script()
async def batch_that_names_a_member_twice(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    await _leave(s, 5, _who(b), _who(b))
    await describe(s)


@script()
async def whole_group_leaves_in_one_batch(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    await _leave(s, 5, _who(a), _who(b))
    await describe(s)


@script()
async def pending_member_leaves(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await b.leave()
    await b.join()
    await describe(s)


@script()
async def pending_members_leave_in_a_batch(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await stable(a)
    await b.ask_for_id()
    await c.ask_for_id()
    await _leave(s, 5, _who(b), {"member_id": "nobody"}, _who(c))
    await a.heartbeat()
    await describe(s)


@script()
async def pending_member_leaves_with_an_instance_id(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await _leave(s, 5, _who(b, group_instance_id="i"))
    await _leave(s, 5, _who(b))
    await describe(s)


@script()
async def static_member_is_removed_by_its_instance_id(s: Session) -> None:
    a, b = Member(s, "a", instance="i-a"), Member(s, "b", instance="i-b")
    await stable(a, b)
    await _leave(s, 5, {"member_id": "", "group_instance_id": "i-b"})
    await describe(s)
    await b.heartbeat()


@script(versions=range(3, 6))
async def static_member_leaves_with_both_ids(s: Session, version: int) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await _leave(s, version, _who(a))
    await describe(s)


@script()
async def static_member_leaves_with_a_wrong_member_id(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await _leave(s, 5, _who(a, member_id="other"))
    await _leave(s, 5, _who(a, group_instance_id="unknown"))
    await _leave(s, 5, _who(a, group_instance_id=None))
    await describe(s)


@script()
async def leave_with_neither_id(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await _leave(s, 5, {"member_id": "", "group_instance_id": None})
    await _leave(s, 5, {"member_id": "", "group_instance_id": ""})
    await describe(s)


@script()
async def leave_with_a_reason(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await _leave(s, 5, _who(a, reason="because"))
    await describe(s)


@script()
async def leave_while_the_leader_is_to_assign(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await _leave(s, 5, _who(b))
    await describe(s)
    await a.sync()
    await a.join()


@script()
async def leave_of_a_simple_group(s: Session) -> None:
    await commit(s)
    await _leave(s, 5, {"member_id": "x"})
    await describe(s)


@script()
async def offsets_stay_when_the_last_member_leaves(s: Session) -> None:
    from tests.conformance.members import fetch

    a = Member(s, "a")
    await stable(a)
    await a.commit()
    await a.leave()
    await s.until_state("Empty")
    await fetch(s)
