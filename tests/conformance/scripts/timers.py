"""What happens when nobody sends anything: sessions, rebalance and sync timeouts, the initial delay."""

from __future__ import annotations

import asyncio

from tests.conformance.members import Member, describe, form, stable, subscription, sync_all
from tests.conformance.registry import script
from tests.conformance.servers import MIN_SESSION_MS
from tests.conformance.session import Parked, Session

KEPT_SESSION_MS, BEATS, BEAT_S = 3 * MIN_SESSION_MS, 6, 0.6
"""The beats together last longer than the session, and each may come seconds late on a machine that stalls."""


async def _keep_alive(member: Member, parked: Parked) -> None:
    """Heartbeats, unrecorded, until the parked request is answered."""
    async with asyncio.timeout(15):
        while not parked.is_answered:
            await member.session.quietly(
                "heartbeat",
                3,
                group_id=member.session.group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance,
            )
            await asyncio.sleep(0.1)


@script()
async def silent_member_is_removed(s: Session) -> None:
    a = Member(s, "a", session_ms=MIN_SESSION_MS)
    await stable(a)
    await s.until_state("Empty")
    await describe(s)
    await a.heartbeat()


@script()
async def silent_static_member_is_removed(s: Session) -> None:
    a = Member(s, "a", instance="i", session_ms=MIN_SESSION_MS)
    await stable(a)
    await s.until_state("Empty")
    await describe(s)
    await a.heartbeat()


@script()
async def silent_follower_starts_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b", session_ms=MIN_SESSION_MS)
    await stable(a, b)
    await s.until_state("PreparingRebalance")
    await describe(s)
    await a.heartbeat()
    await a.join()
    await a.sync()
    await describe(s)


@script()
async def silent_leader_is_replaced(s: Session) -> None:
    a, b = Member(s, "a", session_ms=MIN_SESSION_MS), Member(s, "b")
    await stable(a, b)
    await s.until_state("PreparingRebalance")
    await b.join()
    s.note("the other one leads", b.is_leader)


@script()
async def member_that_does_not_rejoin_is_removed_at_the_rebalance_timeout(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=1000), Member(s, "b", rebalance_ms=1000)
    await stable(a, b)
    joining = await a.park_join()
    await a.joined_by(joining)
    await describe(s)
    await b.heartbeat()
    await b.sync()


@script()
async def leader_that_does_not_rejoin_is_replaced_at_the_rebalance_timeout(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=1000), Member(s, "b", rebalance_ms=1000)
    await stable(a, b)
    b.protocols = (("range", subscription("u")),)
    await b.join()
    s.note("the other one leads", b.is_leader)
    await describe(s)
    await a.heartbeat()


@script()
async def static_follower_that_does_not_rejoin_stays(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}", rebalance_ms=1000) for name in "ab")
    await stable(a, b)
    await a.join()
    await describe(s)
    await b.heartbeat()
    await sync_all(a)
    await describe(s)


@script()
async def static_leader_that_does_not_rejoin_stays_and_another_one_leads(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}", rebalance_ms=1000) for name in "ab")
    await stable(a, b)
    b.protocols = (("range", subscription("u")),)
    await b.join()
    s.note("the other one leads", b.is_leader)
    await describe(s)


@script()
async def largest_rebalance_timeout_of_the_members_counts(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=500), Member(s, "b", rebalance_ms=2500)
    await stable(a, b)
    joining = await a.park_join()
    await asyncio.sleep(1)
    s.note("still waits after the shorter timeout", not joining.is_answered)
    await a.joined_by(joining)
    await describe(s)


@script()
async def leader_that_does_not_sync_is_removed(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=1000), Member(s, "b", rebalance_ms=1000)
    await form(a, b)
    waiting = await b.park_sync()
    await waiting.answer()
    await describe(s)
    await a.heartbeat()
    await b.join()
    await describe(s)


@script()
async def follower_that_does_not_sync_is_removed(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=1000), Member(s, "b", rebalance_ms=1000)
    await form(a, b)
    await a.sync()
    await s.until_state("PreparingRebalance")
    await describe(s)
    await b.heartbeat()
    await a.join()
    await describe(s)


@script()
async def nobody_syncs(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=1000), Member(s, "b", rebalance_ms=1000)
    await form(a, b)
    await s.until_state("Empty")
    await describe(s)


@script()
async def everybody_syncs_and_the_sync_timer_does_nothing(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=600), Member(s, "b", rebalance_ms=600)
    await stable(a, b)
    await asyncio.sleep(1.2)
    await describe(s)
    await a.heartbeat()


@script()
async def heartbeats_keep_a_member(s: Session) -> None:
    a = Member(s, "a", session_ms=KEPT_SESSION_MS)
    await stable(a)
    for _ in range(BEATS):
        await asyncio.sleep(BEAT_S)
        await s.quietly("heartbeat", 3, group_id=s.group, generation_id=1, member_id=a.member_id)
    await a.heartbeat()


@script()
async def commits_keep_a_member(s: Session) -> None:
    a = Member(s, "a", session_ms=KEPT_SESSION_MS)
    await stable(a)
    for offset in range(BEATS):
        await asyncio.sleep(BEAT_S)
        await a.commit(offset=offset)
    await a.heartbeat()


@script()
async def parked_sync_keeps_a_member(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b", session_ms=MIN_SESSION_MS)
    await form(a, b)
    waiting = await b.park_sync()
    await asyncio.sleep(2 * MIN_SESSION_MS / 1000)
    await a.sync()
    await waiting.answer()
    await describe(s)


@script()
async def parked_rejoin_keeps_a_member(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=10_000), Member(s, "b", session_ms=MIN_SESSION_MS)
    await stable(a, b)
    b.protocols = (("range", subscription("u")),)
    joining = await b.park_join()
    await asyncio.sleep(2 * MIN_SESSION_MS / 1000)
    s.note("still waits", not joining.is_answered)
    await a.join()
    await b.joined_by(joining)


@script()
async def silent_member_ends_the_wait_of_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b", session_ms=MIN_SESSION_MS)
    await stable(a, b)
    joining = await a.park_join()
    await a.joined_by(joining)
    await describe(s)


@script()
async def silent_static_member_ends_the_wait_of_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b", instance="i", session_ms=MIN_SESSION_MS)
    await stable(a, b)
    joining = await a.park_join()
    await a.joined_by(joining)
    await describe(s)


@script()
async def pending_member_that_never_comes_back_ends_the_wait_of_a_rebalance(s: Session) -> None:
    a, b, c = Member(s, "a"), Member(s, "b", session_ms=2000), Member(s, "c")
    await stable(a)
    await b.join()
    await c.ask_for_id()
    joining = await c.park_join()
    second = await a.park_join()
    s.note("waits for the pending member", not second.is_answered)
    await a.joined_by(second)
    await c.joined_by(joining)
    await b.join()
    await describe(s)


@script()
async def session_timeout_while_the_leader_is_to_assign(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b", session_ms=MIN_SESSION_MS)
    await form(a, b)
    await s.until_state("PreparingRebalance")
    await describe(s)
    await a.sync()
    await a.join()


@script()
async def heartbeats_do_not_keep_a_member_in_a_rebalance(s: Session) -> None:
    a, b = Member(s, "a", rebalance_ms=1500), Member(s, "b", rebalance_ms=1500)
    await stable(a, b)
    joining = await a.park_join()
    await _keep_alive(b, joining)
    await a.joined_by(joining)
    await describe(s)
    await b.heartbeat()


@script()
async def initial_delay_collects_members(s: Session) -> None:
    a, b, c = (Member(s, name) for name in "abc")
    for member in (a, b, c):
        await member.ask_for_id()
    first = await a.park_join()
    second = await b.park_join()
    third = await c.park_join()
    for member, join in ((a, first), (b, second), (c, third)):
        await member.joined_by(join)
    await describe(s)


@script()
async def initial_delay_is_bounded_by_the_rebalance_timeout(s: Session) -> None:
    a = Member(s, "a", rebalance_ms=300)  # which bounds the wait for its sync too: there is no time for a describe
    await form(a)
