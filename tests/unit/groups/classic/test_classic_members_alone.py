"""A group of the consumer protocol of which only classic members are left, which the policy does not let downgrade."""

from __future__ import annotations

import pytest
from tests.unit.groups.consumer.consumer_harness import id_of
from tests.unit.groups.mixed_clients import subscription_of
from tests.unit.groups.two_kinds import TwoKinds

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.embedded import read_assignment

T = id_of("t")
INTERVAL_MS = 1_000
PROTOCOLS = (("range", subscription_of(frozenset(), 0)),)


def _alone(interval_ms: int = 0) -> tuple[TwoKinds, str]:
    """A consumer and a classic member share two partitions; then the consumer leaves. Its id is that of the latter."""
    h = TwoKinds(consumer_config=ConsumerGroupConfig(assignment_interval_ms=interval_ms, migration_policy="upgrade"))
    h.join_consumer("a")
    h.advance(interval_ms)
    member = h.join_dynamic("g", protocols=PROTOCOLS).response.member_id
    h.advance(interval_ms)
    h.beat("a", 2, topic_partitions=())
    _join(h, member)
    assert len(_share(h, member)) == 1
    h.beat("a", -1)
    assert [(each.member_id, each.member_epoch) for each in h.described().members] == [(member, 3)]
    return h, member


def _join(h: TwoKinds, member: str) -> int:
    generation = h.join("g", member, protocols=PROTOCOLS).response.generation_id
    assert isinstance(generation, int)
    return generation


def _share(h: TwoKinds, member: str) -> tuple[int, ...]:
    (epoch,) = [each.member_epoch for each in h.described().members if each.member_id == member]
    ((_, partitions),) = read_assignment(h.sync("g", epoch, member).response.assignment).partitions
    return partitions


def test_member_is_told_to_join_when_the_last_consumer_has_gone() -> None:
    h, member = _alone()
    assert h.described().group_state == "Assigning"
    assert h.heartbeat("g", 3, member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert _join(h, member) == 4
    assert _share(h, member) == (0, 1)
    assert h.heartbeat("g", 4, member) == ErrorCode.NONE


def test_member_is_told_to_join_when_a_topic_has_grown() -> None:
    h, member = _alone()
    epoch = _join(h, member)
    h.consumer_topics.change("other", 1)
    assert h.heartbeat("g", epoch, member) == ErrorCode.NONE
    h.consumer_topics.change("t", 3)
    assert h.heartbeat("g", epoch, member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert _join(h, member) == epoch + 1
    assert _share(h, member) == (0, 1, 2)


def test_topics_that_are_not_known_disturb_nobody() -> None:
    h, member = _alone()
    epoch = _join(h, member)
    h.consumer_topics.change("t", 0)
    assert h.heartbeat("g", epoch, member) == ErrorCode.NONE
    h.consumer_topics.change("t", 2)
    assert h.heartbeat("g", epoch, member) == ErrorCode.NONE
    assert _share(h, member) == (0, 1)


def test_next_leader_looks_at_the_topics() -> None:
    h, member = _alone()
    epoch = _join(h, member)
    h.consumer_topics.change("t", 3)
    h.reload()
    assert h.heartbeat("g", epoch, member) == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_is_not_told_to_join_within_the_assignment_interval() -> None:
    h, member = _alone(INTERVAL_MS)
    epoch = _join(h, member)
    h.consumer_topics.change("t", 3)
    assert h.heartbeat("g", epoch, member) == ErrorCode.NONE
    h.advance(INTERVAL_MS)
    assert h.heartbeat("g", epoch, member) == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_was_told_to_join_and_does_not_is_out() -> None:
    h, member = _alone()
    assert h.heartbeat("g", 3, member) == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(7):
        h.heartbeat("g", 3, member)
        h.advance(9_000)
    assert not h.described().members


@pytest.mark.parametrize("grown", [False, True])
def test_consumer_takes_the_group_on_where_there_is_one(grown: bool) -> None:
    h = TwoKinds()
    h.join_consumer("a")
    h.join_consumer("b")
    member = h.join_dynamic("g", protocols=PROTOCOLS).response.member_id
    epoch = h.described().assignment_epoch
    if grown:
        h.consumer_topics.change("t", 3)
    else:
        h.beat("b", -1)
    assert h.heartbeat("g", epoch, member) == ErrorCode.NONE
    h.beat("a", next(each.member_epoch for each in h.described().members if each.member_id == "a"))
    assert h.heartbeat("g", epoch, member) == ErrorCode.REBALANCE_IN_PROGRESS
