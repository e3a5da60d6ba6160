"""Single steps of a consumer group: reconciliation, replay in the order of a compacted log, what is written anew."""

from __future__ import annotations

import pytest
from tests.unit.groups.consumer.consumer_harness import ConsumerHarness, id_of

from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import STABLE, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, Current
from muster_coordinator.groups.consumer.reconciliation import Goal, reconcile
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    ConsumerGroupCurrentValue,
    ConsumerGroupRecord,
    OwnedPartitions,
)

T, U = id_of("t"), id_of("u")


def goal(epoch: int, target: dict[bytes, tuple[int, ...]], *subscribed: bytes, resubscribed: bool = False) -> Goal:
    return Goal(epoch, target, frozenset(subscribed), resubscribed, {T: {5: "other"}})


def test_target_of_a_topic_that_is_not_subscribed_is_not_given() -> None:
    """KAFKA-19431."""
    assert reconcile(Current(2, 1), goal(3, {T: (0,), U: (0,)}, U), ()) == Current(3, 2, STABLE, {U: {0: 3}}, {})


def test_partition_of_another_is_waited_for_and_the_rest_given() -> None:
    assert reconcile(Current(2, 1), goal(3, {T: (5, 6)}, T), ()) == Current(
        3, 2, UNRELEASED_PARTITIONS, {T: {6: 3}}, {}
    )


def test_kept_partitions_keep_the_epoch_at_which_they_came() -> None:
    before = Current(2, 1, STABLE, {T: {0: 1, 1: 2}}, {})
    told = reconcile(before, goal(3, {T: (0,)}, T), None)
    assert told == Current(2, 2, UNREVOKED_PARTITIONS, {T: {0: 1}}, {T: {1: 2}})
    assert reconcile(told, goal(3, {T: (0,)}, T), ((T, (0,)),)) == Current(3, 2, STABLE, {T: {0: 1}}, {})


def test_unsubscribed_topic_joins_what_is_still_to_be_given_back() -> None:
    before = Current(2, 2, UNREVOKED_PARTITIONS, {T: {0: 2}, U: {0: 2}}, {U: {1: 1}})
    after = reconcile(before, goal(3, {T: (0,)}, T, resubscribed=True), None)
    assert after == Current(2, 2, UNREVOKED_PARTITIONS, {T: {0: 2}}, {U: {0: 2, 1: 1}})


def test_member_in_a_state_of_a_later_release_has_to_begin_anew() -> None:
    with pytest.raises(GroupError, match="unknown state"):
        reconcile(Current(2, 1, 127), goal(3, {T: (0,)}, T), None)
    assert reconcile(Current(2, 1, 127), goal(3, {T: (0,)}, T), ()).state == STABLE


def test_older_record_of_one_member_does_not_free_what_a_later_one_gave_to_another() -> None:
    """KAFKA-19862: in a compacted log the tombstone of `a` may come after the record of `b`."""
    group = ConsumerGroup("g")
    owned = (OwnedPartitions(T, (0,), (1,)),)
    for member_id in "ab":
        value = ConsumerGroupCurrentValue(1, 0, STABLE, owned, ())
        group.replay(ConsumerGroupRecord(CURRENT_TYPE, "g", member_id, value))
    group.replay(ConsumerGroupRecord(CURRENT_TYPE, "g", "a", None))
    assert group.owners == {T: {0: "b"}}
    group.replay(ConsumerGroupRecord(CURRENT_TYPE, "g", "b", None))
    assert group.owners == {}


def test_static_member_that_comes_back_with_other_topics_takes_the_place_of_the_one_before() -> None:
    """[testStaticMemberRejoinsWithNewSubscribedTopics]"""
    h = ConsumerHarness(t=2, u=1)
    h.join("a", "t", instance_id="i")
    h.leave("a", -2, instance_id="i")
    back = h.join("a2", "t", "u", instance_id="i")
    assert back.member_epoch == 3
    assert {topic: sorted(each) for topic, each in back.assignment or ()} == {T: [0, 1], U: [0]}
    assert list(h.group.targets) == list(h.group.members) == ["a2"]


def test_static_member_that_has_left_is_not_fenced_for_what_it_did_not_give_back() -> None:
    h = ConsumerHarness(t=2)
    h.join("a", "t", instance_id="i", rebalance_timeout_ms=1_000)
    h.join("b", "t")
    h.beat("a", 2, instance_id="i")
    h.leave("a", -2, instance_id="i")
    h.advance(2_000)
    assert "a" in h.group.members
    assert h.beat("b", 3).assignment == ((T, (1,)),)


def test_targets_that_stay_are_not_written_again() -> None:
    h = ConsumerHarness(ConsumerGroupConfig(assignment_interval_ms=0), t=2)
    h.join("a", "t")
    h.join("b", "t")
    h.join("c", "t")
    assert h.record_types == [5, 3, 7, 6, 8]
