"""Groups from the first join to the last leave, in every version, and rebalances with several connections."""

from __future__ import annotations

from tests.conformance.members import Member, describe, form, stable, subscription, sync_all
from tests.conformance.registry import script
from tests.conformance.session import Session


@script(versions=range(10))
async def one_member_joins_syncs_and_leaves(s: Session, version: int) -> None:
    a = Member(s, "a", version=version)
    await form(a)
    await a.sync(version=min(version, 5))
    await a.heartbeat(version=min(version, 4))
    await describe(s, version=min(version, 6))
    await s.ask("list_groups", min(version, 5))
    await a.leave(version=min(version, 5))
    await describe(s, version=min(version, 6))


@script(versions=range(4))
async def members_of_old_versions_share_a_generation(s: Session, version: int) -> None:
    await stable(Member(s, "a", version=version), Member(s, "b", version=version))
    await describe(s, version=version)


@script()
async def members_of_all_versions_share_a_generation(s: Session) -> None:
    await stable(*(Member(s, f"v{version}", version=version) for version in (0, 3, 5, 9)))
    await describe(s)


@script()
async def first_member_is_the_leader(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await form(a, b, c)
    s.note("leader", a.is_leader)
    await describe(s)
    await sync_all(a, b, c)
    await describe(s)


@script()
async def described_while_it_waits_for_members(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await b.park_join()  # waits for the other's rebalance timeout; a first member would for the short initial delay
    await describe(s)
    await s.ask("list_groups", 5)


@script()
async def described_while_it_waits_for_the_leader(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await describe(s)
    await s.ask("list_groups", 5)
    waiting = await b.park_sync()
    await describe(s)
    await a.sync()
    await waiting.answer()
    await describe(s)


@script()
async def second_member_starts_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    joining = await b.park_join()
    await describe(s)
    await a.heartbeat()
    s.note("second member waits", not joining.is_answered)
    await a.join()
    await b.joined_by(joining)
    await sync_all(a, b)
    await describe(s)


@script()
async def member_that_only_asked_for_an_id_does_not_start_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await a.heartbeat()
    await describe(s)


@script()
async def pending_member_holds_up_a_later_rebalance(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await stable(a)
    await c.ask_for_id()
    await b.ask_for_id()
    first = await b.park_join()
    second = await a.park_join()
    s.note("all members have joined, one is pending", not first.is_answered and not second.is_answered)
    third = await c.park_join()
    for member, join in ((a, second), (b, first), (c, third)):
        await member.joined_by(join)
    await describe(s)


@script()
async def pending_member_that_leaves_ends_the_wait(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await stable(a)
    await c.ask_for_id()
    await b.ask_for_id()
    first = await b.park_join()
    second = await a.park_join()
    await c.leave()
    await a.joined_by(second)
    await b.joined_by(first)
    await describe(s)


@script()
async def pending_member_does_not_hold_up_the_first_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await b.ask_for_id()
    await form(a)
    await sync_all(a)
    await describe(s)


@script()
async def unchanged_follower_rejoins_without_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    await b.join()
    await describe(s)
    await a.heartbeat()


@script()
async def changed_follower_rejoins_with_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    b.protocols = (("range", subscription("t", "u")),)
    joining = await b.park_join()
    await describe(s)
    await a.heartbeat()
    await a.join()
    await b.joined_by(joining)
    await sync_all(a, b)
    await describe(s)


@script()
async def unchanged_leader_rejoins_with_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    joining = await a.park_join()
    await b.heartbeat()
    await b.join()
    await a.joined_by(joining)
    await describe(s)


@script()
async def only_member_rejoins_and_gets_the_next_generation(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.join()
    await a.sync()
    await a.heartbeat()
    await a.heartbeat(generation_id=1)
    await describe(s)


@script()
async def unchanged_member_rejoins_while_the_leader_is_to_assign(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await b.join()
    await a.join()
    await describe(s)


@script()
async def changed_member_rejoins_while_the_leader_is_to_assign(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    syncing = await a.park_sync(assignments=[]) if not a.is_leader else None
    b.protocols = (("range", subscription("u")),)
    joining = await b.park_join()
    s.note("nobody else syncs", syncing is None)
    await describe(s)
    await a.join()
    await b.joined_by(joining)


@script()
async def rebalance_answers_parked_syncs(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await form(a, b)
    waiting = await b.park_sync()
    await c.ask_for_id()
    joining = await c.park_join()
    await waiting.answer()
    again = await a.park_join()
    await b.join()
    await a.joined_by(again)
    await c.joined_by(joining)
    await sync_all(a, b, c)
    await describe(s)


@script()
async def leader_that_leaves_is_replaced(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    await a.leave()
    await describe(s)
    await b.heartbeat()
    await b.join()
    s.note("the other one leads", b.is_leader)
    await b.sync()
    await describe(s)


@script()
async def group_empties_and_is_used_again(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.leave()
    await s.until_state("Empty")
    b = Member(s, "b", protocol_type="other", protocols=(("x", b""),))
    await stable(b)
    await describe(s)


@script()
async def generation_goes_on_after_the_group_was_empty(s: Session) -> None:
    for name in "abc":
        member = Member(s, name)
        await stable(member)
        await member.leave()
        await s.until_state("Empty")
    await describe(s)


@script()
async def join_with_a_member_id_of_an_empty_group(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.leave()
    await a.join()
    await a.heartbeat()
    await a.sync()
    await a.leave()


@script()
async def leave_and_join_in_the_same_rebalance(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await stable(a, b)
    await c.ask_for_id()
    joining = await c.park_join()
    await b.leave()
    await a.join()
    await c.joined_by(joining)
    await sync_all(a, c)
    await describe(s)


@script()
async def parked_member_that_leaves_gets_its_join_answered(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    await stable(a, b)
    await c.ask_for_id()
    joining = await c.park_join()
    await c.leave()
    await joining.answer()
    await describe(s)


@script()
async def first_member_leaves_during_the_initial_delay(s: Session) -> None:
    a = Member(s, "a")
    await a.ask_for_id()
    joining = await a.park_join()
    await a.leave()
    await joining.answer()
    await s.until_state("Empty")
    await describe(s)


@script()
async def five_rebalances_in_a_row(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a, b)
    for _ in range(5):
        joining = await a.park_join()
        await b.join()
        await a.joined_by(joining)
        await sync_all(a, b)
    await describe(s)
