"""Offsets by topic id: version 10 of OffsetCommit and OffsetFetch. The area "offsets" has it beside the others; this is
about the ids themselves."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, stable, topic
from tests.conformance.registry import script
from tests.conformance.session import Session

ZERO = uuid.UUID(int=0)
UNKNOWN = uuid.UUID(int=78)


def _by(topic_id: uuid.UUID, *offsets: tuple[int, int]) -> dict[str, Any]:
    return topic("", *offsets) | {"topic_id": topic_id}


def _wanted(*topics: tuple[uuid.UUID, list[int]]) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partition_indexes": partitions} for topic_id, partitions in topics]


async def _fetch(s: Session, *topics: tuple[uuid.UUID, list[int]], **more: Any) -> None:
    await s.ask("offset_fetch", 10, groups=[{"group_id": s.group, "topics": _wanted(*topics)}], **more)


@script()
async def commit_by_name_is_fetched_by_id(s: Session) -> None:
    await commit(s, 9, topics=[topic("t", (0, 5), (1, 6)), topic("u", (0, 7))])
    await fetch(s, 10, {"t": [0, 1, 2], "u": [0]})
    await fetch(s, 10)


@script()
async def commit_by_id_is_fetched_by_name(s: Session) -> None:
    await commit(s, 10, topics=[topic("t", (0, 5), (1, 6)), topic("u", (0, 7))])
    await fetch(s, 9, {"t": [0, 1, 2], "u": [0]})
    await fetch(s, 1, {"t": [0]})
    await fetch(s, 9)


@script(cases={"zero": ZERO, "unknown": UNKNOWN})
async def commit_by_an_id_that_is(s: Session, topic_id: uuid.UUID) -> None:
    await commit(s, 10, topics=[_by(topic_id, (0, 5), (1, 6))])
    await describe(s)


@script()
async def commit_by_unknown_ids_beside_known_ones(s: Session) -> None:
    await commit(s, 10, topics=[_by(UNKNOWN, (0, 1)), topic("t", (0, 2)), _by(ZERO, (3, 3)), topic("u", (0, 4))])
    await fetch(s, 10)


@script()
async def commit_by_an_unknown_id_and_of_an_unknown_partition(s: Session) -> None:
    await commit(s, 10, topics=[_by(UNKNOWN, (0, 1)), topic("t", (0, 2), (99, 3)), topic("u", (99, 4))])
    await commit(s, 10, topics=[_by(UNKNOWN, (0, 1)), topic("u", (99, 4))])
    await fetch(s, 10)


@script()
async def commit_by_one_id_twice(s: Session) -> None:
    await commit(s, 10, topics=[topic("t", (0, 1)), topic("t", (1, 2), (0, 3))])
    await fetch(s, 10)


@script()
async def unknown_id_comes_before_the_error_of_the_group(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit(10, generation_id_or_member_epoch=9, topics=[_by(UNKNOWN, (0, 1))])
    await a.commit(10, generation_id_or_member_epoch=9, topics=[_by(UNKNOWN, (0, 1)), topic("t", (0, 5))])
    await a.commit(10, member_id="nobody", topics=[topic("t", (0, 5)), _by(UNKNOWN, (0, 1))])


@script()
async def commit_of_an_internal_topic_by_id(s: Session) -> None:
    await commit(s, 10, topics=[topic("__consumer_offsets", (0, 5))])
    await fetch(s, 10, {"__consumer_offsets": [0]})
    await fetch(s, 9)


@script(cases={"zero": ZERO, "unknown": UNKNOWN})
async def fetch_by_an_id_that_is(s: Session, topic_id: uuid.UUID) -> None:
    await commit(s)
    await _fetch(s, (topic_id, [0, 1]))
    await _fetch(s, (topic_id, [0]), (s.server.topic_ids["t"], [0]))
    await _fetch(s, (topic_id, []))


@script()
async def fetch_by_an_unknown_id_of_an_unknown_group(s: Session) -> None:
    await _fetch(s, (UNKNOWN, [0]))
    await _fetch(s)


@script()
async def fetch_of_stable_offsets_by_id(s: Session) -> None:
    await commit(s, 10)
    await _fetch(s, (s.server.topic_ids["t"], [0, 1]), (UNKNOWN, [0]), require_stable=True)


@script()
async def fetch_by_id_of_several_groups_of_which_one_is_unknown(s: Session) -> None:
    await commit(s, 10, topics=[topic("t", (0, 5)), topic("u", (1, 6))])
    t, u = s.server.topic_ids["t"], s.server.topic_ids["u"]
    groups = [
        {"group_id": s.group, "topics": _wanted((t, [0]), (u, [0, 1]))},
        {"group_id": "missing", "topics": _wanted((t, [0]), (UNKNOWN, [3]))},
        {"group_id": s.group + "-2", "topics": None},
    ]
    await s.ask("offset_fetch", 10, groups=groups)


@script()
async def member_commits_and_fetches_by_id(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit(10, topics=[topic("t", (0, 8), (1, 9))])
    groups = [
        {"group_id": s.group, "member_id": a.member_id, "member_epoch": 1}
        | {"topics": _wanted((s.server.topic_ids["t"], [0, 1, 2]))}
    ]
    await s.ask("offset_fetch", 10, groups=groups)
