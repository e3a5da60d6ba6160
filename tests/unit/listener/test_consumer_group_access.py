"""Guards of ConsumerGroupHeartbeat and ConsumerGroupDescribe, and the way of the latter to its shards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.listener.test_access import DESCRIBE, GROUP, NO, READ, TOPIC, YES, Right, ask

from muster_coordinator.requests import consumer_groups as c

JOIN = c.ConsumerGroupHeartbeatRequest("g", "mem", 0, None, None, 1, ("yes",), None, None, (), "c", "h", 1)
OK = c.ConsumerGroupHeartbeatResponse(0)


@pytest.mark.parametrize(
    ("rights", "names", "code"),
    [
        ((), ("yes",), 30),
        (((GROUP, "g", READ),), ("yes",), 29),
        (((GROUP, "g", READ), (TOPIC, "yes", DESCRIBE)), ("yes", "no"), 29),
        (((GROUP, "g", READ), (TOPIC, "yes", DESCRIBE)), ("yes",), 0),
        (((GROUP, "g", READ),), None, 0),
    ],
)
def test_member_reads_its_group_and_describes_what_it_names(
    rights: tuple[Right, ...], names: tuple[str, ...] | None, code: int
) -> None:
    asked = ask(msgspec.structs.replace(JOIN, subscribed_topic_names=names), *rights, coordinator=OK)
    assert asked.got[0].error_code == code
    assert len(asked.handed) == (code == 0)


def test_expressions_find_only_what_the_member_may_describe() -> None:
    asked = ask(JOIN, (GROUP, "g", READ), (TOPIC, "yes", DESCRIBE), coordinator=OK)
    may_describe = asked.handed[0].may_describe
    assert [may_describe("yes"), may_describe("no")] == [True, False]


def member(*topics: tuple[bytes, str]) -> c.DescribedConsumerMember:
    target = tuple([(topic_id, name, (0,)) for topic_id, name in topics])
    return c.DescribedConsumerMember("mem", None, None, 1, "c", "h", (), None, (), target)


def described(request: c.ConsumerGroupDescribeRequest) -> Any:
    members = {"shown": (member((YES, "yes")),), "hidden": (member((YES, "yes"), (NO, "no")),)}
    groups = [c.DescribedConsumerGroup(each.group_id, members=members[each.group_id]) for each in request.groups]
    return c.ConsumerGroupDescribeResponse(tuple(groups))


def test_group_is_described_to_who_may_describe_it_and_all_of_its_topics() -> None:
    groups = tuple([c.DescribeConsumerGroupRequest(name) for name in ("shown", "hidden", "other")])
    rights = [(GROUP, "shown", DESCRIBE), (GROUP, "hidden", DESCRIBE), (TOPIC, "yes", DESCRIBE)]
    asked = ask(c.ConsumerGroupDescribeRequest(groups, True), *rights, coordinator=described)
    answered = {each.group_id: each for each in asked.got[0].groups}
    assert {name: each.error_code for name, each in answered.items()} == {"other": 30, "shown": 0, "hidden": 29}
    assert answered["hidden"].members == ()
    assert "not authorized to describe" in (answered["hidden"].error_message or "")
    assert answered["shown"].authorized_operations == 1 << DESCRIBE
    assert answered["hidden"].authorized_operations == answered["other"].authorized_operations == -(2**31)
    assert list(answered) == ["other", "shown", "hidden"]
