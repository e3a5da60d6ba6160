"""What ends the first rebalance of a group before its delay does, on servers whose delay is longer than a script waits:
members that join or leave do not, the end of a session does."""

from __future__ import annotations

from tests.conformance.members import Member, describe
from tests.conformance.registry import script
from tests.conformance.servers import MIN_SESSION_MS
from tests.conformance.session import Parked, Session

SETTINGS = {"group.initial.rebalance.delay.ms": "60000"}
LONGER_THAN_A_SESSION_S = 10.0


async def _pending(s: Session, session_ms: int) -> Member:
    """A member that was given its id."""
    member = Member(s, "pending", session_ms=session_ms)
    await member.ask_for_id()
    return member


async def _joining(s: Session, name: str, version: int = 9, instance: str | None = None) -> tuple[Member, Parked]:
    member = Member(s, name, version=version, instance=instance)
    await member.ask_for_id()
    return member, await member.park_join()


@script()
async def session_of_a_pending_member_ends_the_first_rebalance(s: Session) -> None:
    await _pending(s, MIN_SESSION_MS)
    a, first = await _joining(s, "a")
    b, second = await _joining(s, "b", version=3)
    s.note("answered before the delay", await first.within(LONGER_THAN_A_SESSION_S))
    await a.joined_by(first)
    await b.joined_by(second)
    await describe(s)


@script()
async def session_of_one_pending_member_waits_for_that_of_another(s: Session) -> None:
    await _pending(s, MIN_SESSION_MS)
    await _pending(s, 2 * MIN_SESSION_MS)
    a, first = await _joining(s, "a", instance="i")
    s.note("answered before the delay", await first.within(LONGER_THAN_A_SESSION_S))
    await a.joined_by(first)
    await describe(s)


@script()
async def session_of_a_pending_member_ends_the_first_rebalance_after_a_static_restart(s: Session) -> None:
    await _pending(s, MIN_SESSION_MS)
    a, first = await _joining(s, "a", instance="i")
    again, second = await _joining(s, "a", instance="i")
    await a.joined_by(first)
    s.note("answered before the delay", await second.within(LONGER_THAN_A_SESSION_S))
    await again.joined_by(second)
    await describe(s)


@script()
async def pending_member_that_leaves_does_not_end_the_first_rebalance(s: Session) -> None:
    pending = await _pending(s, 30 * MIN_SESSION_MS)
    _, first = await _joining(s, "a")
    await pending.leave()
    await s.settle()
    s.note("answered", first.is_answered)
    await describe(s)


@script()
async def pending_member_that_joins_does_not_end_the_first_rebalance(s: Session) -> None:
    pending = await _pending(s, 30 * MIN_SESSION_MS)
    _, first = await _joining(s, "a")
    second = await pending.park_join()
    s.note("answered", (first.is_answered, second.is_answered))
    await describe(s)


@script()
async def member_that_leaves_does_not_end_the_first_rebalance(s: Session) -> None:
    a, first = await _joining(s, "a")
    _, second = await _joining(s, "b")
    await a.leave()
    await a.joined_by(first)
    s.note("answered", second.is_answered)
    await describe(s)
