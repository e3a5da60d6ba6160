"""SyncGroup and Heartbeat: checks, assignments, states."""

from __future__ import annotations

from typing import Any

from tests.conformance.members import Member, describe, form, stable
from tests.conformance.registry import script
from tests.conformance.session import Session


@script(versions=range(6))
async def sync_of_an_unknown_group(s: Session, version: int) -> None:
    await Member(s, "a").sync(version, member_id="x", generation_id=1)


@script(versions=range(6))
async def sync_with_the_empty_group_id(s: Session, version: int) -> None:
    await Member(s, "a").sync(version, group_id="", member_id="x", generation_id=1)


@script(versions=range(6))
async def sync_errors(s: Session, version: int) -> None:
    a = Member(s, "a")
    await form(a)
    await a.sync(version, member_id="nobody")
    await a.sync(version, generation_id=7)
    await a.sync(version, generation_id=0)
    await a.sync(version)
    await a.sync(version, generation_id=7)
    await a.sync(version, member_id="nobody")
    await a.sync(version)
    await describe(s)


@script(
    cases={
        "no_type": {"protocol_type": None},
        "no_name": {"protocol_name": None},
        "neither": {"protocol_type": None, "protocol_name": None},
        "other_type": {"protocol_type": "connect"},
        "other_name": {"protocol_name": "roundrobin"},
        "empty_type": {"protocol_type": ""},
        "right": {},
        "no_type_and_unknown_member": {"protocol_type": None, "member_id": "nobody"},
        "other_type_and_wrong_generation": {"protocol_type": "connect", "generation_id": 9},
        "no_type_and_empty_group": {"protocol_type": None, "group_id": ""},
    }
)
async def sync_with_protocol(s: Session, changes: dict[str, Any]) -> None:
    a = Member(s, "a")
    await form(a)
    await a.sync(**changes)
    await describe(s)


@script()
async def sync_while_members_join(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await b.park_join()
    await a.sync()
    await a.sync(generation_id=9)
    await a.sync(member_id="nobody")


@script()
async def sync_of_an_empty_group(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.leave()
    await s.until_state("Empty")
    await a.sync()
    await a.sync(member_id="x", generation_id=2)


@script()
async def follower_syncs_before_the_leader(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    waiting = await b.park_sync()
    s.note("waits", not waiting.is_answered)
    await a.sync()
    await waiting.answer()


@script()
async def follower_syncs_after_the_leader(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await a.sync()
    await b.sync()
    await describe(s)


@script()
async def member_without_an_assignment_gets_an_empty_one(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await a.sync(assignments=[{"member_id": a.member_id, "assignment": b"all"}])
    await b.sync()
    await describe(s)


@script()
async def assignment_of_somebody_who_is_no_member_is_ignored(s: Session) -> None:
    a = Member(s, "a")
    await form(a)
    await a.sync(assignments=[*a.assignments(), {"member_id": "stranger", "assignment": b"x"}])
    await describe(s)


@script()
async def leader_assigns_nothing(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await a.sync(assignments=[])
    await b.sync()
    await describe(s)


@script()
async def last_of_two_assignments_of_one_member_counts(s: Session) -> None:
    a = Member(s, "a")
    await form(a)
    await a.sync(
        assignments=[{"member_id": a.member_id, "assignment": b"1"}, {"member_id": a.member_id, "assignment": b"2"}]
    )
    await describe(s)


@script()
async def follower_that_sends_assignments_changes_nothing(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    waiting = await b.park_sync(assignments=[{"member_id": b.member_id, "assignment": b"mine"}])
    s.note("waits", not waiting.is_answered)
    await a.sync()
    await waiting.answer()


@script()
async def leader_syncs_again_in_stable_and_changes_nothing(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.sync(assignments=[{"member_id": a.member_id, "assignment": b"other"}])
    await describe(s)


# -- Heartbeat --------------------------------------------------------------------------------------------------------


@script(versions=range(5))
async def heartbeat_of_an_unknown_group(s: Session, version: int) -> None:
    await Member(s, "a").heartbeat(version, member_id="x", generation_id=1)


@script(versions=range(5))
async def heartbeat_with_the_empty_group_id(s: Session, version: int) -> None:
    await Member(s, "a").heartbeat(version, group_id="", member_id="x", generation_id=1)


@script(versions=range(5))
async def heartbeat_errors_in_stable(s: Session, version: int) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.heartbeat(version)
    await a.heartbeat(version, member_id="nobody")
    await a.heartbeat(version, member_id="")
    await a.heartbeat(version, generation_id=0)
    await a.heartbeat(version, generation_id=9)
    await a.heartbeat(version, generation_id=-1)


@script()
async def heartbeat_while_members_join(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await b.park_join()
    await a.heartbeat()
    await a.heartbeat(generation_id=9)
    await b.heartbeat(generation_id=1)


@script()
async def heartbeat_while_the_leader_is_to_assign(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await a.heartbeat()
    await b.heartbeat()
    await b.heartbeat(generation_id=0)


@script()
async def heartbeat_of_an_empty_group(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.leave()
    await s.until_state("Empty")
    await a.heartbeat()


@script()
async def heartbeat_of_a_simple_group(s: Session) -> None:
    from tests.conformance.members import commit

    await commit(s)
    await Member(s, "a").heartbeat(member_id="x", generation_id=0)
