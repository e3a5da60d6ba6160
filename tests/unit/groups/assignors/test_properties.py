"""What every assignment must be, whatever was drawn: complete, disjoint, balanced, and close to the one before."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.java_assignors import DrawnGroup, MemberSpec, spec_of

from muster_coordinator.groups.consumer.assignors.spec import Assignment, AssignorError, GroupSpec
from muster_coordinator.groups.consumer.assignors.table import ASSIGNORS, assign

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
SEEDS = st.integers(0, 2**32)


def check(spec: GroupSpec, assignment: dict[str, Assignment]) -> None:
    """Every partition of a topic with a subscriber is with one of its subscribers, and with no second one."""
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, own in assignment.items():
        for topic_id, partitions in own.items():
            assert partitions, "a topic without partitions"
            assert topic_id in spec.topics[member_id]
            for partition in partitions:
                assert owners.setdefault((topic_id, partition), member_id) == member_id
            assert len(set(partitions)) == len(partitions)
    subscribed = {topic_id for topics in spec.topics.values() for topic_id in topics}
    assert owners.keys() == {
        (topic_id, each) for topic_id in subscribed for each in range(spec.partition_counts[topic_id])
    }
    assert assignment.keys() == spec.topics.keys()


def sizes(assignment: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, own.values())) for own in assignment.values()]


def pairs(own: Assignment) -> set[tuple[bytes, int]]:
    return {(topic_id, partition) for topic_id, partitions in own.items() for partition in partitions}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(seed=SEEDS)
def test_assignment_is_complete_disjoint_and_stays_when_nothing_changes(name: str, seed: int) -> None:
    group = DrawnGroup(Random(seed))
    for _ in range(3):
        spec = group.spec()
        assignment = assign(name, spec)
        check(spec, assignment)
        if spec.homogeneous and name == "uniform":
            assert max(sizes(assignment)) - min(sizes(assignment)) <= 1
        group.take_over(assignment)
        again = assign(name, group.spec())
        if spec.homogeneous or name == "range":
            assert all(again[member_id] is own for member_id, own in assignment.items())
        group.change()


@given(seed=SEEDS)
def test_uniform_takes_from_a_member_only_what_is_beyond_its_share(seed: int) -> None:
    group = DrawnGroup(Random(seed))
    group.homogeneous = True
    group.members = {name: each._replace(topics=group._common) for name, each in group.members.items()}
    group.take_over(assign("uniform", group.spec()))
    group._add_member()
    spec = group.spec()
    share = sum(spec.partition_counts[topic_id] for topic_id in group._common) // len(spec.topics)
    for member_id, own in assign("uniform", spec).items():
        lost = pairs(spec.assignments[member_id]) - pairs(own)
        assert not lost or len(pairs(own)) >= share
        assert not (lost and pairs(own) - pairs(spec.assignments[member_id])), "gave and took at once"


def test_range_gives_neighbours_and_static_members_come_first() -> None:
    members = {
        "a": MemberSpec((A, B)),
        "z": MemberSpec((A, B), instance_id="one"),
        "b": MemberSpec((A, B), instance_id="two"),
    }
    assert assign("range", spec_of(members, True, {A: 7, B: 2})) == {
        "z": {A: (0, 1, 2), B: (0,)},
        "b": {A: (3, 4), B: (1,)},
        "a": {A: (5, 6)},
    }


def test_range_of_members_that_subscribe_differently_counts_subscribers_of_each_topic() -> None:
    members = {"a": MemberSpec((A,)), "b": MemberSpec((A, B)), "c": MemberSpec((B, C))}
    assert assign("range", spec_of(members, False, {A: 3, B: 3, C: 1})) == {
        "a": {A: (0, 1)},
        "b": {A: (2,), B: (0, 1)},
        "c": {B: (2,), C: (0,)},
    }


def test_range_compares_names_as_java_does() -> None:
    """U+1F600 comes before U+FF5E in UTF-16, and behind it by code point."""
    members = {"\uff5e": MemberSpec((A,)), "\U0001f600": MemberSpec((A,))}
    assert assign("range", spec_of(members, True, {A: 1})) == {"\U0001f600": {A: (0,)}, "\uff5e": {}}


def test_uniform_balances_members_that_subscribe_differently() -> None:
    members = {"a": MemberSpec((A,), {A: tuple(range(6))}), "b": MemberSpec((A, B)), "c": MemberSpec((B,))}
    assignment = assign("uniform", spec_of(members, False, {A: 6, B: 6}))
    assert sizes(assignment) == [5, 4, 3], "subscribers of one topic differ by one at most, as in Kafka"
    assert set(assignment["a"][A]) < set(range(6))


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("homogeneous", [True, False])
def test_partitions_that_a_topic_does_not_have_any_more_are_taken_away(name: str, homogeneous: bool) -> None:
    members = {"a": MemberSpec((A,), {A: (0, 1, 2, 9)}), "b": MemberSpec((A,), {A: (3, 4)})}
    spec = spec_of(members, homogeneous, {A: 3})
    assignment = assign(name, spec)
    check(spec, assignment)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_group_without_members_or_subscriptions_is_assigned_nothing(name: str) -> None:
    assert assign(name, spec_of({}, True, {})) == {}
    for homogeneous in (True, False):
        members = {"a": MemberSpec((), {A: (0,)}), "b": MemberSpec(())}
        assert assign(name, spec_of(members, homogeneous, {A: 1})) == {"a": {}, "b": {}}


def test_partition_that_two_members_had_is_refused() -> None:
    members = {"a": MemberSpec((A,), {A: (0, 1)}), "b": MemberSpec((A,), {A: (0, 1)})}
    with pytest.raises(AssignorError, match="left unassigned"):
        assign("uniform", spec_of(members, True, {A: 2}))
