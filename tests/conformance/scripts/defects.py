"""Where a release of Kafka never answers. Muster does; differences.toml says what, and why it is no copy."""

from __future__ import annotations

import struct

from tests.conformance.members import Member, describe, form, subscription, topic
from tests.conformance.registry import script
from tests.conformance.session import Session

NOT_ANSWERED_S = 3.0


@script(
    cases={
        "null_topics": struct.pack(">hi", 0, -1),
        "null_topic": struct.pack(">hih", 0, 1, -1) + struct.pack(">i", -1),
        "too_many_topics": struct.pack(">hi", 0, 1_000_000),
        "topic_that_is_too_long": struct.pack(">hih", 0, 1, 30_000) + b"t" + struct.pack(">i", -1),
    }
)
async def malformed_subscription_with_a(s: Session, metadata: bytes) -> None:
    a = Member(s, "a", version=3, protocols=(("range", metadata),))
    a.remember(await s.ask("join_group", 3, client_id=a.name, timeout_s=NOT_ANSWERED_S, **a.join_fields()))
    await describe(s, 5)
    await a.sync(3)
    await a.commit(topics=[topic("t", (0, 5)), topic("u", (0, 6))])
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "u")]
    await s.ask("offset_delete", 0, group_id=s.group, topics=topics)
    await describe(s, 5)


@script()
async def protocol_named_twice(s: Session) -> None:
    a = Member(s, "a", version=3, protocols=(("range", subscription("t")), ("range", subscription("u"))))
    await s.ask("join_group", 3, timeout_s=NOT_ANSWERED_S, **a.join_fields())


@script()
async def parked_sync_of_a_member_that_leaves(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await form(a, b)
    waiting = await b.park_sync()
    await b.leave()
    s.note("answered", await waiting.within(NOT_ANSWERED_S))
