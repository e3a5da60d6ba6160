"""OffsetCommit and OffsetFetch: simple groups, members, errors, versions."""

from __future__ import annotations

from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, form, stable, topic
from tests.conformance.registry import script
from tests.conformance.session import Session


@script(versions=range(2, 11))
async def simple_group_commits_and_fetches(s: Session, version: int) -> None:
    await commit(s, version, topics=[topic("t", (0, 5), (3, 2**40), (9, 0)), topic("u", (1, 1, None), (2, 2, ""))])
    await fetch(s, version, {"t": [0, 3, 9], "u": [1, 2]})
    await fetch(s, version)
    await describe(s)
    await s.ask("list_groups", 5)


@script(versions=range(1, 11))
async def fetch_of_an_unknown_group(s: Session, version: int) -> None:
    await fetch(s, version, {"t": [0, 1], "missing": [7]})
    if version >= 2:
        await fetch(s, version)


@script(versions=range(1, 11))
async def fetch_of_partitions_without_an_offset(s: Session, version: int) -> None:
    await commit(s)
    await fetch(s, version, {"t": [0, 1], "u": [0], "missing": [0]})
    await fetch(s, version, {})


@script(versions=range(1, 11))
async def fetch_with_the_empty_group_id(s: Session, version: int) -> None:
    """All scripts share this group: no other has committed an offset of the topic for it."""
    await fetch(s, version, {"u": [0]}, group="")


@script(versions=range(2, 11))
async def commit_with_the_empty_group_id(s: Session, version: int) -> None:
    await commit(s, version, group_id="")
    await fetch(s, version, {"t": [0]}, group="")


@script(versions=range(2, 11))
async def commit_with_a_generation_to_an_unknown_group(s: Session, version: int) -> None:
    await commit(s, version, generation_id_or_member_epoch=1, member_id="x")
    await commit(s, version, generation_id_or_member_epoch=0, member_id="")
    await describe(s)


@script(versions=range(2, 11))
async def commit_of_unknown_topics_and_partitions(s: Session, version: int) -> None:
    await commit(s, version, topics=[topic("t", (0, 5), (99, 1)), topic("missing", (0, 1))])
    await fetch(s, 7)


@script(versions=range(2, 11))
async def commit_of_unknown_partitions_only(s: Session, version: int) -> None:
    await commit(s, version, topics=[topic("t", (99, 1)), topic("missing", (0, 1), (1, 1))])
    await describe(s)


@script()
async def commit_of_an_internal_topic(s: Session) -> None:
    await commit(s, topics=[topic("__consumer_offsets", (0, 5))])


@script(versions=(2, 5, 9, 10))
async def commit_of_nothing(s: Session, version: int) -> None:
    await commit(s, version, topics=[])
    await describe(s)


@script()
async def commit_of_a_topic_without_partitions(s: Session) -> None:
    await commit(s, topics=[topic("t"), topic("u", (0, 1))])
    await commit(s, topics=[topic("t")])
    await fetch(s)


@script()
async def commit_of_a_topic_twice(s: Session) -> None:
    await commit(s, topics=[topic("t", (0, 1)), topic("t", (1, 2), (0, 3))])
    await fetch(s)


@script()
async def commit_of_a_partition_twice(s: Session) -> None:
    await commit(s, topics=[topic("t", (0, 1), (0, 2))])
    await fetch(s)


@script(versions=(2, 8, 9, 10))
async def metadata_of_the_largest_size(s: Session, version: int) -> None:
    await commit(s, version, topics=[topic("t", (0, 1, "x" * 4096), (1, 1, "é" * 4096), (2, 1, "😀" * 2048))])
    await fetch(s)


@script(versions=(2, 8, 9, 10))
async def metadata_that_is_too_large(s: Session, version: int) -> None:
    large = {0: "x" * 4097, 2: "😀" * 2049, 3: "é" * 4097}
    await commit(s, version, topics=[topic("t", *((i, 2, large.get(i, "m")) for i in range(5)))])
    await fetch(s)


@script()
async def only_metadata_that_is_too_large(s: Session) -> None:
    await commit(s, topics=[topic("t", (0, 1, "x" * 5000))])
    await fetch(s)


@script(cases={"negative": -1, "very_negative": -(2**63), "largest": 2**63 - 1, "zero": 0})
async def committed_offset_may_be(s: Session, offset: int) -> None:
    await commit(s, topics=[topic("t", (0, offset))])
    await fetch(s)


@script(cases={"given": 7, "unknown": -1, "zero": 0, "negative": -5})
async def leader_epoch(s: Session, epoch: int) -> None:
    partition = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": epoch,
        "committed_metadata": "m",
    }
    await commit(s, 9, topics=[{"name": "t", "partitions": [partition]}])
    await fetch(s, 9)
    await fetch(s, 4, {"t": [0]})


@script()
async def later_commit_replaces_the_earlier_one(s: Session) -> None:
    for offset in (5, 9, 3):
        await commit(s, offset=offset)
    await fetch(s)


@script(cases={"zero": 0, "long": 86_400_000, "negative": -2})
async def commit_with_retention_time(s: Session, retention_ms: int) -> None:
    await commit(s, 4, topics=[topic("t", (0, 5))], retention_time=retention_ms if retention_ms != 0 else 60_000)
    await fetch(s)


@script(versions=range(2, 11))
async def member_commits(s: Session, version: int) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit(version)
    await a.commit(version, generation_id_or_member_epoch=0)
    await a.commit(version, generation_id_or_member_epoch=9)
    await a.commit(version, member_id="nobody")
    await a.commit(version, member_id="", generation_id_or_member_epoch=-1)
    await a.commit(version, generation_id_or_member_epoch=-1)
    await a.commit(version, member_id="")
    await fetch(s)


@script(versions=(2, 6, 7, 9, 10))
async def commit_while_members_join(s: Session, version: int) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await b.park_join()
    await a.commit(version)
    await a.commit(version, generation_id_or_member_epoch=9)
    await b.commit(version, generation_id_or_member_epoch=1)
    await commit(s, version)
    await fetch(s)


@script(versions=(2, 6, 7, 9, 10))
async def commit_while_the_leader_is_to_assign(s: Session, version: int) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    await a.commit(version)
    await a.commit(version, generation_id_or_member_epoch=9)
    await a.commit(version, member_id="nobody")
    await commit(s, version)
    await fetch(s)


@script(versions=(2, 7, 9, 10))
async def commit_to_an_empty_group(s: Session, version: int) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit()
    await a.leave()
    await s.until_state("Empty")
    await a.commit(version)
    await a.commit(version, generation_id_or_member_epoch=-1)
    await commit(s, version, offset=8)
    await commit(s, version, generation_id_or_member_epoch=2)
    await fetch(s)


@script()
async def simple_commit_need_not_match_a_member(s: Session) -> None:
    await commit(s)
    await commit(s, offset=6, member_id="x", group_instance_id="i")
    await commit(s, offset=7, generation_id_or_member_epoch=0)
    await commit(s, offset=8, generation_id_or_member_epoch=3, member_id="x")
    await fetch(s)


@script()
async def commit_of_one_bad_partition_does_not_hold_up_the_others(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit(
        topics=[topic("t", (0, 5), (99, 1), (1, 6, "x" * 5000)), topic("missing", (0, 3)), topic("u", (0, 7))]
    )
    await fetch(s)


@script()
async def group_error_and_unknown_partitions(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit(generation_id_or_member_epoch=9, topics=[topic("t", (0, 5), (99, 1)), topic("missing", (0, 3))])


# -- OffsetFetch ------------------------------------------------------------------------------------------------------


def _group(group: str, topics: dict[str, list[int]] | None) -> dict[str, Any]:
    wanted = None if topics is None else [{"name": n, "partition_indexes": p} for n, p in topics.items()]
    return {"group_id": group, "topics": wanted}


@script(versions=(8, 9, 10))
async def fetch_of_several_groups(s: Session, version: int) -> None:
    for suffix in ("-1", "-2"):
        await commit(s, group_id=s.group + suffix)
    groups = [_group(s.group + "-1", {"t": [0]}), _group(s.group + "-2", None), _group("missing", {"t": [0]})]
    await s.ask("offset_fetch", version, groups=groups)


@script(versions=(8, 9, 10))
async def fetch_of_one_group_twice(s: Session, version: int) -> None:
    await commit(s)
    await s.ask("offset_fetch", version, groups=[_group(s.group, {"t": [0]}), _group(s.group, {"t": [1]})])


@script(versions=(8, 9, 10))
async def fetch_of_no_group(s: Session, version: int) -> None:
    await s.ask("offset_fetch", version, groups=[])


@script()
async def fetch_with_a_member_id_and_epoch(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await a.commit()
    for member_id, epoch in ((a.member_id, 1), (a.member_id, 9), ("nobody", 1), ("", -1), (None, 5)):
        group = _group(s.group, {"t": [0]}) | {"member_id": member_id, "member_epoch": epoch}
        await s.ask("offset_fetch", 9, groups=[group])


@script(versions=(7, 8, 9, 10))
async def fetch_of_stable_offsets(s: Session, version: int) -> None:
    await commit(s)
    await fetch(s, version, {"t": [0, 1]}, require_stable=True)
    await fetch(s, version, require_stable=True)


@script()
async def fetch_of_a_partition_twice(s: Session) -> None:
    await commit(s)
    await fetch(s, 7, {"t": [0, 0, 1]})


@script()
async def fetch_of_a_group_with_members(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    await fetch(s, 9, {"t": [0]})
    await fetch(s)
    await a.commit(topics=[topic("t", (0, 1)), topic("u", (2, 2))])
    await fetch(s)


@script()
async def fetch_of_a_negative_partition(s: Session) -> None:
    await fetch(s, 9, {"t": [-1]})
    await commit(s, topics=[topic("t", (-1, 5))])
