"""What Kafka 4.4 added or does otherwise: versions of three APIs, and three rules of consumer groups. A 4.3 closes the
connection of a newer version, and answers by the rules of before; so does Muster unless it is told to follow 4.4."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, stable, topic
from tests.conformance.producers import Producer, producer_id
from tests.conformance.registry import script
from tests.conformance.scripts import consumer_groups
from tests.conformance.scripts.consumer_groups import A, B, beat, enter, owned, show
from tests.conformance.session import UNKNOWN_TOPIC_ID, Session

SETTINGS = consumer_groups.SETTINGS
API_VERSIONS, NAMES_SERVER_SINCE = 18, 5
COMMIT_VERSIONS = (5, 6)
OTHERS = [str(uuid.UUID(int=30 + number)) for number in range(4)]
STAYS_AWAY = -2


# -- ApiVersions ------------------------------------------------------------------------------------------------------


@script(
    cases={
        "itself": ("own", True, "java"),
        "another_cluster": ("other", True, "java"),
        "another_node": ("own", False, "java"),
        "an_empty_cluster": ("", True, "java"),
        "any_node_of_the_cluster": ("own", None, "java"),
        "a_node_of_any_cluster": (None, True, "java"),
        "any": (None, None, "java"),
        "itself_and_has_no_name": ("own", True, ""),
        "another_node_and_has_no_name": ("own", False, ""),
    }
)
async def client_that_looks_for(s: Session, case: tuple[str | None, bool | None, str]) -> None:
    """KIP-1242. Asked where the version is served: in an earlier one nobody can read the answer."""
    cluster, is_node, software = case
    served = await s.quietly("api_versions", 0)
    highest = next(int(each.max_version) for each in served.api_keys if int(each.api_key) == API_VERSIONS)
    s.note("highest", highest)
    if highest < NAMES_SERVER_SINCE:
        return
    (own,) = [text for text, name in s.server.names.items() if name == "<cluster id>"]
    node_id = -1 if is_node is None else s.server.node_id + (not is_node)
    answer = await s.quietly(
        "api_versions",
        NAMES_SERVER_SINCE,
        client_software_name=software,
        client_software_version="4.4.0",
        cluster_id=own if cluster == "own" else cluster,
        node_id=node_id,
    )
    s.note("error_code", answer.error_code)
    s.note("has versions", bool(answer.api_keys))


# -- TxnOffsetCommit by topic id --------------------------------------------------------------------------------------


def _by(topic_id: uuid.UUID, *offsets: tuple[int, int]) -> dict[str, Any]:
    return topic("", *offsets) | {"topic_id": topic_id}


@script(cases={"commits": True, "aborts": False})
async def transaction_by_topic_id(s: Session, committed: bool) -> None:
    p = Producer(s)
    await p.init()
    await p.commit_offset(6, topics=[topic("t", (0, 5), (1, 6)), topic("u", (2, 7))])
    await fetch(s, 10, {"t": [0, 1], "u": [2]}, require_stable=True)
    await p.end(committed, 5)
    await fetch(s, 10, {"t": [0, 1, 2], "u": [2]}, require_stable=True)
    await fetch(s)
    await p.commit_offset(6, 8)
    await p.end(True, 5)
    await fetch(s)


@script(cases={"unknown": UNKNOWN_TOPIC_ID, "zero": uuid.UUID(int=0)})
async def transactional_commit_by_an_id_that_is(s: Session, topic_id: uuid.UUID) -> None:
    p = Producer(s)
    await p.init()
    await p.commit_offset(6, topics=[_by(topic_id, (0, 5), (1, 6))])
    await p.commit_offset(6, topics=[_by(topic_id, (0, 1)), topic("t", (0, 2)), _by(UNKNOWN_TOPIC_ID, (3, 3))])
    await p.commit_offset(6, topics=[topic("u", (99, 2)), _by(topic_id, (0, 1)), topic("t", (1, 4), (77, 4))])
    await p.commit_offset(6, topics=[topic("t", (2, 1)), topic("t", (3, 2), (2, 3))])
    await p.end(True, 5)
    await fetch(s)


@script(versions=COMMIT_VERSIONS)
async def transactional_commit_of_nothing(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.commit_offset(version, topics=[])
    await p.commit_offset(version, topics=[topic("t")])
    await describe(s)


@script(versions=COMMIT_VERSIONS)
async def transactional_commit_of_a_wrong_producer(s: Session, version: int) -> None:
    p = Producer(s)
    await p.commit_offset(version, producer_id=producer_id(s), producer_epoch=0)
    await p.init()
    await p.commit_offset(version, group_id="")
    await p.commit_offset(version, producer_epoch=p.identity[1] + 1)
    await p.init(4, p.identity)
    await p.commit_offset(version, **p.as_fields(p.older()))
    await fetch(s)


@script(versions=COMMIT_VERSIONS)
async def transactional_commit_with_long_metadata(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    offsets = [{"partition_index": n, "committed_offset": n, "committed_metadata": "x" * 4096 * n} for n in (1, 2)]
    await p.commit_offset(version, topics=[topic("t") | {"partitions": offsets}])
    await p.end(True, 5)
    await fetch(s)


@script(versions=COMMIT_VERSIONS)
async def transactional_commit_with_a_generation_to_an_unknown_group(s: Session, version: int) -> None:
    """KIP-1319."""
    p = Producer(s)
    await p.init()
    await p.commit_offset(version, generation_id=3, member_id="m")
    await p.commit_offset(version, generation_id=0)
    await describe(s)
    await p.commit_offset(version)
    await p.end(True, 5)
    await describe(s)


@script(versions=COMMIT_VERSIONS)
async def transactional_commit_of_a_classic_member(s: Session, version: int) -> None:
    p, a = Producer(s), Member(s, "a")
    await stable(a)
    await p.init()
    for generation in (0, 1, 2, -1):
        await p.commit_offset(version, 5, generation_id=generation, member_id=a.member_id)
    await p.commit_offset(version, 6, generation_id=1, member_id="nobody")
    await p.commit_offset(version, 7)
    await p.end(True, 5)
    await fetch(s)


@script(versions=COMMIT_VERSIONS)
async def transactional_commit_of_a_consumer(s: Session, version: int) -> None:
    """An older epoch is good for what the consumer has kept (KIP-1251); another one is refused by the code that the
    version knows (KIP-1319)."""
    p = Producer(s)
    first = await enter(s, A, "u")
    await enter(s, B, "u")
    await beat(s, A, first)
    second = await beat(s, A, first, topic_partitions=owned(s, "u", 0, 1))
    s.note("member epoch has risen", second > first)
    await p.init()
    for epoch in (first, second, second + 1, 0, -1):
        for partitions in ((0,), (2,), (0, 2)):
            committed = [topic("u", *[(each, 10 + epoch) for each in partitions])]
            await p.commit_offset(version, generation_id=epoch, member_id=A, topics=committed)
    await p.commit_offset(version, generation_id=second, member_id="nobody", topics=[topic("u", (0, 1))])
    await p.commit_offset(version, topics=[topic("u", (1, 2))])
    await p.end(True, 5)
    await fetch(s, 9, {"u": [0, 1, 2]})


# -- DeleteGroups -----------------------------------------------------------------------------------------------------


@script(versions=(2, 3))
async def groups_of_both_kinds_are_deleted(s: Session, version: int) -> None:
    names = [f"{s.name}-{kind}" for kind in ("simple", "classic", "consumer", "missing")]
    await commit(s, group_id=names[0])
    s.group = names[1]
    await stable(Member(s, "a"))
    s.group = names[2]
    await enter(s, A, "u")
    await s.ask("delete_groups", version, groups_names=[*names, names[0], ""])
    await beat(s, A, -1)
    await s.ask("delete_groups", version, groups_names=names)


# -- rules of consumer groups -----------------------------------------------------------------------------------------


@script(cases={"uniform": ("uniform", "range"), "range": ("range", "uniform"), "default": (None, "range")})
async def consumer_that_prefers_another_assignor_than(s: Session, case: tuple[str | None, str]) -> None:
    """KAFKA-20434."""
    before, after = case
    epoch = await enter(s, A, "u", server_assignor=before)
    epoch = await beat(s, A, epoch, topic_partitions=owned(s, "u", 0, 1, 2))
    epoch = await beat(s, A, epoch, server_assignor=after)
    await show(s)
    await beat(s, A, epoch, server_assignor=after)
    await show(s)


@script()
async def assignor_that_a_minority_prefers(s: Session) -> None:
    for member_id in (A, B):
        await enter(s, member_id, "u", server_assignor="uniform")
    last = await enter(s, OTHERS[0], "u", server_assignor="uniform")
    await beat(s, OTHERS[0], last, server_assignor="range")
    await show(s)


@script()
async def static_consumer_comes_back_with_another_assignor(s: Session) -> None:
    await enter(s, A, "u", instance_id="i", server_assignor="uniform")
    await beat(s, A, STAYS_AWAY, instance_id="i")
    await enter(s, B, "u", instance_id="i", server_assignor="range")
    await show(s)


@script()
async def consumer_group_that_gets_empty(s: Session) -> None:
    """KAFKA-20442."""
    await enter(s, A, "u")
    await beat(s, A, -1)
    await show(s)
    await enter(s, B, "u")
    await show(s)
    leaving = [{"member_id": B, "group_instance_id": None}]
    await s.ask("leave_group", 5, group_id=s.group, members=leaving)
    await show(s)


@script()
async def consumer_group_that_keeps_a_consumer(s: Session) -> None:
    await enter(s, A, "u")
    await enter(s, B, "u")
    await beat(s, A, -1)
    await show(s)


@script()
async def static_consumer_comes_back_into_a_full_group(s: Session) -> None:
    """KAFKA-20601. `group.consumer.max.size` is 3."""
    await enter(s, A, "u", instance_id="i")
    for member_id in OTHERS[:2]:
        await enter(s, member_id, "u")
    await enter(s, OTHERS[2], "u")
    await enter(s, OTHERS[3], "u", instance_id="j")
    await enter(s, B, "u", instance_id="i")
    await beat(s, A, STAYS_AWAY, instance_id="i")
    await enter(s, OTHERS[2], "u")
    await enter(s, B, "u", instance_id="i")
    await show(s)
