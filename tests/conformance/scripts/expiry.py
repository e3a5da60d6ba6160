"""Offsets and groups that expire, on servers that look for them every second (KIP-211)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, stable, topic
from tests.conformance.producers import producer_id
from tests.conformance.registry import script
from tests.conformance.session import Session

SETTINGS = {"offsets.retention.check.interval.ms": "1000"}


async def _until_fetched(s: Session, holds: Callable[[Any], bool]) -> None:
    """Wait, unrecorded, until the group's committed offsets are as wanted, or for 10 s."""
    for _ in range(100):
        answer = await s.quietly("offset_fetch", 5, group_id=s.group, topics=None)
        if holds(answer):
            return
        await asyncio.sleep(0.1)


@script(versions=(2, 3, 4))
async def commit_with_a_retention_time_expires(s: Session, version: int) -> None:
    await commit(s, version, retention_time=1)
    await s.until(lambda group: group.group_state == "Dead", "group removed")
    await fetch(s, 5)
    await describe(s)


@script()
async def commit_without_a_retention_time_stays(s: Session) -> None:
    await commit(s, 4)
    await asyncio.sleep(2.5)
    await fetch(s, 5)
    await describe(s)


@script()
async def expired_offset_goes_and_the_others_stay(s: Session) -> None:
    await commit(s, topics=[topic("u", (0, 7))])
    await commit(s, 4, 5, retention_time=1)
    await _until_fetched(s, lambda answer: len(answer.topics) == 1)
    await fetch(s, 5)
    await describe(s)


@script()
async def subscribed_topic_does_not_expire(s: Session) -> None:
    a = Member(s, "a", version=3, topics=("t",))
    await stable(a)
    await a.commit(4, topics=[topic("t", (0, 5)), topic("u", (0, 7))], retention_time=1)
    await _until_fetched(s, lambda answer: len(answer.topics) == 1)
    await fetch(s, 5)
    await describe(s)


@script()
async def nothing_expires_while_members_join(s: Session) -> None:
    a, b = Member(s, "a", version=3), Member(s, "b", version=3)
    await stable(a)
    await a.commit(4, topics=[topic("u", (0, 7))], retention_time=1500)
    await b.park_join()
    await asyncio.sleep(3)
    await fetch(s, 5)


@script()
async def nothing_expires_in_a_group_of_another_type_with_members(s: Session) -> None:
    a = Member(s, "a", version=3, protocol_type="connect", protocols=(("x", b""),))
    await stable(a)
    await a.commit(4, retention_time=1)
    await asyncio.sleep(2.5)
    await fetch(s, 5)


@script()
async def empty_group_without_offsets_is_removed(s: Session) -> None:
    a = Member(s, "a", version=3)
    await stable(a)
    await a.leave()
    await s.until(lambda group: group.group_state == "Dead", "group removed")
    await describe(s)
    await s.ask("list_groups", 5)


@script()
async def group_of_a_pending_member_is_removed(s: Session) -> None:
    a = Member(s, "a")
    await a.join()
    with suppress(TimeoutError):  # it may be gone before the first look, and what follows is the same then
        async with asyncio.timeout(5):
            await s.until_exists()
    await s.until(lambda group: group.group_state == "Dead", "group removed")
    await a.join()


@script()
async def expired_offset_with_an_open_transaction_stays(s: Session) -> None:
    await commit(s, 4, 5, retention_time=1500)
    await s.ask(
        "txn_offset_commit",
        3,
        transactional_id=s.name,
        group_id=s.group,
        producer_id=producer_id(s),
        generation_id=-1,
        topics=[topic("t", (0, 9))],
    )
    await asyncio.sleep(3)
    await fetch(s, 5)
    await describe(s)
