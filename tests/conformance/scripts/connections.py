"""A client that closes its side of the connection behind its request."""

from __future__ import annotations

from tests.conformance.members import Member, topic
from tests.conformance.registry import script
from tests.conformance.session import Session


@script(versions=range(5))
async def half_closed_behind_find_coordinator(s: Session, version: int) -> None:
    await s.ask_and_end("find_coordinator", version, key=s.group, key_type=0, coordinator_keys=[s.group])


@script(versions=(2, 9, 10))
async def half_closed_behind_a_commit(s: Session, version: int) -> None:
    fields = {"group_id": s.group, "generation_id_or_member_epoch": -1, "retention_time": -1}
    topics = [topic("t", (0, 5)) | {"topic_id": s.server.topic_ids["t"]}]
    await s.ask_and_end("offset_commit", version, topics=topics, **fields)
    await s.ask("offset_fetch", 7, group_id=s.group, topics=None)


@script()
async def half_closed_behind_a_join_that_waits(s: Session) -> None:
    a = Member(s, "a", version=3)
    await s.ask_and_end("join_group", 3, **a.join_fields())


@script()
async def half_closed_behind_a_fetch_that_waits(s: Session) -> None:
    partitions = [{"partition": 0, "partition_max_bytes": 1000, "last_fetched_epoch": -1}]
    topics = [{"topic": "t", "partitions": partitions}]
    await s.ask_and_end("fetch", 11, replica_id=-1, max_wait=300, min_bytes=1, topics=topics)
