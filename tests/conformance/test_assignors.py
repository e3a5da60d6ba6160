"""The assignors beside those of Kafka's own jar: the same assignment, topic by topic and partition by partition, in the
same order. ASSIGNMENTS=10000 makes it long (`make prove-assignors`)."""

from __future__ import annotations

import os
from random import Random

import pytest
from tests.support.java_assignors import DrawnGroup, JavaAssignors, MemberSpec, spec_of
from tests.support.kafka_broker import why_no_kafka_yet

from muster_coordinator.groups.consumer.assignors.spec import Assignment, AssignorError
from muster_coordinator.groups.consumer.assignors.table import ASSIGNORS, assign

ASSIGNMENTS = int(os.environ.get("ASSIGNMENTS") or 300)
ROUNDS = 5
"""How often each group is assigned, with changes in between."""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
]


def in_order(assignment: dict[str, Assignment]) -> dict[str, list[tuple[bytes, tuple[int, ...]]]]:
    return {member_id: list(own.items()) for member_id, own in assignment.items()}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_drawn_groups_are_assigned_as_by_kafka(name: str) -> None:
    with JavaAssignors() as kafka:
        for seed in range(ASSIGNMENTS // ROUNDS):
            group = DrawnGroup(Random(seed))
            for number in range(ROUNDS):
                spec = group.spec()
                theirs, ours = kafka.assign(name, spec), assign(name, spec)
                assert theirs is not None
                changed = {each for each, own in ours.items() if own is not spec.assignments[each]}
                told = f"seed {seed}, round {number}"
                assert {each for each in theirs if not same(theirs[each], spec.assignments[each])} == changed, told
                expected = {each: theirs[each] for each in changed}
                assert in_order({each: ours[each] for each in changed}) == in_order(expected), told
                group.take_over(ours)
                group.change()


def same(one: Assignment, other: Assignment) -> bool:
    return {topic: set(each) for topic, each in one.items()} == {topic: set(each) for topic, each in other.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("homogeneous", [True, False])
def test_topic_that_does_not_exist_is_refused_by_both(name: str, homogeneous: bool) -> None:
    spec = spec_of({"m": MemberSpec((bytes(16),))}, homogeneous, {})
    with JavaAssignors() as kafka:
        assert kafka.assign(name, spec) is None
    with pytest.raises(AssignorError):
        assign(name, spec)
