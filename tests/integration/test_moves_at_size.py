"""Live groups of five clients move from a real Kafka to Muster under load, one by one, and back: what their members
see, how long their requests wait, and what both logs say.

`make prove-moves` has 50 groups, 200 members, 500 commits a second and three brokers.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.test_movable_groups import until
from tests.integration.test_moving_groups import PREFIX, Site, site
from tests.support.both_logs import commits_on_the_wrong_side, generations
from tests.support.crowd import CLIENTS, Crowd, Group, Member, groups
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.mirrored import until as eventually
from tests.support.moves_under_kills import Feed
from tests.support.offsets_ledger import now_ms

COUNT = int(os.environ.get("MOVE_GROUPS", "5"))
BROKERS = int(os.environ.get("MOVE_BROKERS", "1"))
MEMBERS = 4
"""The number of members in each group. Each has one partition."""
TOPIC, LOGS = "crowd", 5
PERIOD_MS, SESSION_MS, RECORD_EVERY_MS = 400, 30_000, 100
RATE = COUNT * MEMBERS * 1000 / PERIOD_MS
"""Commits a second, if members commit as often as they are to."""
LEASE = "muster.upstream.lease.ms=3000"
"""The default."""
SEEN_MS = 50
"""The end of a move is seen so much later, at most."""
JOINED_S, READ_S = 300, 120

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(900 + 20 * COUNT),
]


@dataclass(frozen=True)
class Moved:
    """`read`: the number of records that the group's members got while its requests waited."""

    group: Group
    fenced_ms: int
    tries: int
    read: int


async def test_groups_of_five_clients_move_under_load_and_go_back(tmp_path: Path) -> None:
    everyone = groups(PREFIX, COUNT, MEMBERS)
    members = [member for group in everyone for member in group.members]
    async with site(tmp_path, pods=[LEASE], count=BROKERS, topics={TOPIC: MEMBERS}) as it:
        with ExitStack() as stack:
            crowds = [_crowd(client, everyone, it) for client in CLIENTS]
            try:
                for crowd in crowds:  # one after the other: clients that start are most of the load
                    stack.enter_context(crowd)
                    await until(crowd.has_joined, f"members of {crowd.client} have a partition each", JOINED_S)
                feed = Feed(it.kafka.bootstrap, topic=TOPIC, partitions=MEMBERS, every_s=RECORD_EVERY_MS / 1000)
                stack.callback(feed.stop)
                await until(lambda: all(len(each.commits) > 5 for each in members), "commits", READ_S)
                rate = await _move_in(it, everyone, feed)
                await _go_back(it, everyone, feed)
            except BaseException:
                print([(crowd.client, list(crowd.said)) for crowd in crowds])
                raise
        wrong, judged = commits_on_the_wrong_side(_brokers(it), _pods(it), LOGS)
        print(judged, "commits judged")
        assert wrong == {}
        assert judged > sum(len(each.commits) for each in members) / 2
        if BROKERS > 1:  # `make prove-moves`; other tests share the processors of this one
            assert rate > 0.8 * RATE, "the load was not there"


def _crowd(client: str, everyone: Sequence[Group], it: Site) -> Crowd:
    mine = [group for group in everyone if group.client == client]
    return Crowd(client, mine, it.bootstrap, TOPIC, PERIOD_MS, SESSION_MS)


def _brokers(it: Site) -> list[Path]:
    return [it.kafka.directory / f"kafka-{number}" for number in range(BROKERS)]


def _pods(it: Site) -> list[Path]:
    return sorted((it.muster.data / "pods").iterdir())


async def _move_in(it: Site, everyone: Sequence[Group], feed: Feed) -> float:
    """No member notices, and nothing is lost. Returns the commits in a second."""
    members = [member for group in everyone for member in group.members]
    seen = [(each.given, each.taken) for each in members]
    before = await asyncio.to_thread(generations, _brokers(it), LOGS)
    begun_ms = now_ms()
    moves = await _move_all(it, everyone, it.bootstrap)
    rate = 1000 * sum(at_ms >= begun_ms for each in members for at_ms, _ in each.commits) / (now_ms() - begun_ms)
    await _until_read(everyone, feed.produced)
    print(f"\n{len(everyone)} groups, {len(members)} members, {BROKERS} brokers: {rate:.0f} commits/s; to Muster:")
    _print(moves, begun_ms)
    assert [(each.given, each.taken) for each in members] == seen, "a group was rebalanced"
    assert [each.refused for each in members if each.refused] == []
    for group in everyone:
        assert len(group.values) == len(set(group.values)), f"{group.name} was given a record twice"
    due = sum(max(each.fenced_ms - SEEN_MS, 0) for each in moves) / RECORD_EVERY_MS
    assert sum(each.read for each in moves) > due / 2, "data waits while requests do"
    names = [each.name for each in everyone]
    after = await asyncio.to_thread(generations, _pods(it), LOGS)
    assert [after[each] for each in names] == [before[each] for each in names]
    return rate


async def _go_back(it: Site, everyone: Sequence[Group], feed: Feed) -> None:
    """One rebalance for each member; offsets are equal, and nothing is missing."""
    members = [member for group in everyone for member in group.members]
    given, begun_ms = [each.given for each in members], now_ms()
    moves = await _move_all(it, everyone, it.kafka.bootstrap, back=True)

    def have_joined() -> bool:
        return all(each.given > count and each.partitions == 1 for each, count in zip(members, given, strict=True))

    await until(have_joined, "all are members at Kafka again", JOINED_S)
    feed.stop()
    await _until_read(everyone, feed.produced)
    print("back to Kafka:")
    _print(moves, begun_ms)
    assert [each.given - count for each, count in zip(members, given, strict=True)] == [1] * len(members)
    for group in everyone:
        assert set(group.values) == set(range(feed.produced)), f"{group.name} lacks records"
    at_kafka = AdminClient({"bootstrap.servers": it.kafka.bootstrap})
    ends = {number: len(range(number, feed.produced, MEMBERS)) for number in range(MEMBERS)}

    async def is_committed() -> bool:
        return all([await asyncio.to_thread(_committed, at_kafka, each.name) == ends for each in everyone])

    await eventually(is_committed, "all is committed at Kafka", READ_S)


async def _move_all(it: Site, everyone: Sequence[Group], bootstrap: str, *, back: bool = False) -> list[Moved]:
    """One by one. Each time what was acknowledged before is what they have at `bootstrap`, or more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    moves = []
    for group in everyone:
        tries = await it.pods.move(group.name, back=back)
        ended_ms = now_ms()
        fenced_ms = (await it.pods.status(group.name)).fenced_ms
        acknowledged = group.acknowledged
        committed = await asyncio.to_thread(_committed, admin, group.name)
        told = (group.name, acknowledged, committed, [each.refused for each in group.members])
        assert all(end <= committed[partition] for partition, end in acknowledged.items()), told
        got = [at_ms for each in group.members for at_ms, _ in tuple(each.records)]
        read = sum(ended_ms - fenced_ms <= at_ms <= ended_ms - SEEN_MS for at_ms in got)
        moves.append(Moved(group, fenced_ms, tries, read))
    return moves


def _committed(admin: AdminClient, group: str) -> dict[int, int]:
    """The offset of each partition."""
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, number) for number in range(MEMBERS)])]
    answer = admin.list_consumer_group_offsets(asked, request_timeout=60)[group].result()
    return {each.partition: each.offset for each in answer.topic_partitions}


async def _until_read(everyone: Sequence[Group], produced: int) -> None:
    """Each group has all of the records that there were."""
    wanted = set(range(produced))
    await until(lambda: all(wanted <= set(each.values) for each in everyone), "all records", READ_S)


def _print(moves: Sequence[Moved], begun_ms: int) -> None:
    """`begun_ms`: when the first one began; of commits those since then count."""
    print(
        "client, groups | fence p50, max (ms) | a member's commits every (ms), longest (ms) | records in fences, tries"
    )
    for client in (*CLIENTS, "all"):
        mine = [each for each in moves if client in (each.group.client, "all")]
        fences = [each.fenced_ms for each in mine]
        members = [member for each in mine for member in each.group.members]
        took = max(ms for each in members for at_ms, ms in each.commits if at_ms >= begun_ms)
        tries, read = sum(each.tries for each in mine), sum(each.read for each in mine)
        print(
            f"{client}, {len(mine)} | {statistics.median(fences):.0f}, {max(fences)} | {_gap(members)}, {took} | "
            f"{read}, {tries}"
        )


def _gap(members: Sequence[Member]) -> int:
    """The usual time between two commits of a member, in ms."""
    gaps = [after - at for each in members for (at, _), (after, _) in zip(each.commits, each.commits[1:], strict=False)]
    return round(statistics.median(gaps))
