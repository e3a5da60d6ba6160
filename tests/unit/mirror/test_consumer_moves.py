"""A group of consumers moves from Kafka to Muster as it is, and back without its members."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.simulation.moves.two_sides import GROUP, SESSION_MS, Sides
from tests.unit.groups.consumer.consumer_harness import id_of, request
from tests.unit.groups.mixed_clients import subscription_of

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.bypasses import Bypass
from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.differences import difference_of
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m

JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ("t",),
    "subscribed_topic_regex": "",
    "topic_partitions": (),
}


def has(*partitions: int) -> dict[str, Any]:
    return {"topic_partitions": ((id_of("t"), partitions),)}


@pytest.fixture
def sides() -> Sides:
    """Two members, with two partitions each, at epoch 3."""
    sides = Sides(t=4)
    sides.ask(request("a", 0, **JOIN))
    sides.ask(request("b", 0, **JOIN))
    sides.ask(request("a", 2, **has(0, 1, 2, 3)))
    assert sides.ask(request("a", 2, **has(0, 1))).member_epoch == 3
    assert sides.ask(request("b", 3, topic_partitions=())).assignment == ((id_of("t"), (2, 3)),)
    sides.ask(a_commit("a", 3, 7))
    return sides


def a_commit(member: str, epoch: int, offset: int) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(GROUP, epoch, member, None, -1, (("t", ((0, offset, -1, ""),)),), 9)


def described(sides: Sides) -> c.DescribedConsumerGroup:
    answer = sides.ask_muster(c.DescribeConsumerGroupRequest(GROUP))
    assert isinstance(answer, c.DescribedConsumerGroup)
    return answer


def committed(sides: Sides, member: str, epoch: int, offset: int) -> int:
    ((_, ((_, code),)),) = sides.ask(a_commit(member, epoch, offset)).topics
    return int(code)


# -- to Muster ---------------------------------------------------------------------------------------------------------


def test_members_go_on_with_epochs_and_partitions(sides: Sides) -> None:
    before = sides.kafka.described()
    sides.move()
    assert difference_of(before, GroupAtKafka(described(sides), before.fetched)) == ""
    for member, partitions in (("a", (0, 1)), ("b", (2, 3))):
        answer = sides.ask(request(member, 3, **has(*partitions)))
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 3, None)
    assert committed(sides, "a", 3, 8) == 0
    assert described(sides).group_state == "Stable"
    sides.elect()
    assert sides.ask(request("b", 3)).error_code == 0
    assert described(sides).group_epoch == 3


def test_group_moves_in_the_middle_of_a_rebalance(sides: Sides) -> None:
    sides.ask(request("new", 0, **JOIN))
    assert sides.ask(request("b", 3, **has(2, 3))).assignment == ((id_of("t"), (2,)),)
    sides.move()
    assert (described(sides).group_state, described(sides).group_epoch) == ("Reconciling", 4)
    assert sides.ask(request("new", 4, topic_partitions=())).assignment is None, "b has it still"
    assert sides.ask(request("b", 3, **has(2))).member_epoch == 4
    assert sides.ask(request("a", 3, **has(0, 1))).member_epoch == 4
    assert sides.ask(request("new", 4, topic_partitions=())).assignment == ((id_of("t"), (3,)),)


def test_member_that_holds_up_a_rebalance_has_its_time_again(sides: Sides) -> None:
    sides.ask(request("new", 0, **JOIN))
    sides.ask(request("b", 3, rebalance_timeout_ms=8_000, **has(2, 3)))
    sides.pass_time(1_000)
    sides.move()
    sides.pass_time(7_000)
    assert "b" in [each.member_id for each in described(sides).members]
    sides.ask(request("a", 3, **has(0, 1)))
    sides.ask(request("new", 4))
    sides.pass_time(1_001)
    assert [each.member_id for each in described(sides).members] == ["a", "new"]


def test_sessions_begin_with_the_move(sides: Sides) -> None:
    sides.move()
    sides.pass_time(SESSION_MS // 2)
    sides.ask(request("a", 3))
    sides.pass_time(SESSION_MS // 2 + 1)
    assert [each.member_id for each in described(sides).members] == ["a"]


def test_answer_that_was_lost_before_the_move_is_asked_for_again(sides: Sides) -> None:
    sides.ask(request("new", 0, **JOIN))
    assert sides.ask(request("a", 3, **has(0, 1))).member_epoch == 4  # as nobody hears
    sides.move()
    answer = sides.ask(request("a", 3, **{**JOIN, **has(0, 1)}))
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 4, ((id_of("t"), (0, 1)),))


def test_partitions_that_have_come_are_assigned_by_the_first_heartbeat(sides: Sides) -> None:
    sides.kafka.topics.change("t", 5)
    sides.learn_topics()
    sides.move()
    assert sides.ask(request("a", 3, **has(0, 1))).member_epoch == 4


def test_partition_that_the_pod_does_not_know_stands_in_the_way(sides: Sides) -> None:
    sides.kafka.topics.change("t", 5)
    sides.ask(request("a", 3, **has(0, 1)))
    sides.follow()
    assert sides.start() == "a member has t-4, which this pod does not see at Kafka: not yet, or no more"
    sides.learn_topics()
    sides.move()


def test_configs_of_the_group_come_along(sides: Sides) -> None:
    sides.configs = {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": 7_000}
    sides.move()
    assert sides.ask(request("a", 3)).heartbeat_interval_ms == 7_000
    sides.ask(request("b", 3))
    sides.pass_time(49_000)
    assert len(described(sides).members) == 2
    sides.elect()
    shown = sides.ask_muster(f.DescribeGroupConfigsRequest(GROUP))
    own = {each.name: each.value for each in shown.configs if each.source == f.ConfigSource.GROUP}
    assert own == {name: str(value) for name, value in sides.configs.items()}


def test_config_that_is_out_of_bounds_here_stands_in_the_way(sides: Sides) -> None:
    sides.configs = {"consumer.session.timeout.ms": 90_000}
    (obstacle,) = sides.mirror.machine.moves.obstacles_there(sides.kafka.described(sides.configs))
    assert obstacle.startswith("its consumer.session.timeout.ms is 90000 at Kafka, which is out of bounds here")
    sides.follow()
    assert sides.start() == ""
    for _ in range(20):
        sides.pass_time(200)
        sides.step()
    assert "out of bounds" in sides.given_up[0]
    assert not sides.at_muster


def test_classic_member_of_the_group_comes_along(sides: Sides) -> None:
    protocols = (("range", subscription_of(frozenset(), 1)),)
    joined = sides.ask(m.JoinGroupRequest(GROUP, 9_000, 9_000, "", None, "consumer", protocols, None, "c", "/h", 9))
    member = joined.member_id
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = sides.ask(m.JoinGroupRequest(GROUP, 9_000, 9_000, member, None, "consumer", protocols, None, "c", "/h", 9))
    assert joined.error_code == 0
    sides.move()
    beat = m.HeartbeatRequest(GROUP, joined.generation_id, member, None)
    sides.ask(m.SyncGroupRequest(GROUP, joined.generation_id, member, None, "consumer", "range", (), 5))
    assert sides.ask(beat).error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert [each.member_type for each in described(sides).members].count(c.CLASSIC_MEMBER) == 1
    sides.pass_time(9_001)
    assert member not in [each.member_id for each in described(sides).members]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"group_state": "Assigning"}, "the state is 'Assigning' there and 'Stable' here"),
        ({"group_epoch": 4}, "the group epoch is 4 there and 3 here"),
        ({"assignment_epoch": 4}, "the assignment epoch is 4 there and 3 here"),
        ({"assignor_name": "range"}, "the assignor is 'range' there and 'uniform' here"),
        ({"member_epoch": 2}, "member 'b' is another one there than here"),
        ({"target_assignment": ()}, "member 'b' is another one there than here"),
        ({"assignment": ()}, "member 'b' is another one there than here"),
        ({"members": ()}, "member 'a' is here and not there"),
        ({"error_code": 30}, "the error code of ConsumerGroupDescribe is 30 there and 0 here"),
    ],
)
def test_any_difference_is_named(sides: Sides, changed: dict[str, Any], said: str) -> None:
    sides.follow()
    here = GroupAtKafka(described(sides), sides.kafka.offsets())
    of_group = {name: value for name, value in changed.items() if hasattr(here.described, name)}
    of_member = {name: value for name, value in changed.items() if name not in of_group}
    a, b = here.described.members
    members: Any = (replace(b, **of_member), a)  # the order does not matter
    there = replace(here.described, **{"members": members, **of_group})  # type: ignore[type-var]
    assert difference_of(GroupAtKafka(there, here.fetched), here) == said
    classic = GroupAtKafka(m.DescribedGroup(GROUP, ErrorCode.NONE, group_state="Dead"), here.fetched)
    assert difference_of(classic, here) == "DescribeGroups describes it there, and ConsumerGroupDescribe here"


# -- back --------------------------------------------------------------------------------------------------------------


def moved_back(sides: Sides) -> None:
    """After the sessions of before have ended at Kafka."""
    sides.move()
    for _ in range(3):
        sides.pass_time(SESSION_MS // 2)
        for member in ("a", "b"):
            sides.ask(request(member, 3))
    committed(sides, "a", 3, 8)
    sides.move(back=True)


def test_group_goes_back_with_its_offsets_and_its_members_join_again(sides: Sides) -> None:
    moved_back(sides)
    assert sides.kafka.offsets().topics == (("t", ((0, 8, -1, "", 0),)),)
    assert difference_of(sides.kafka.described(), GroupAtKafka(described(sides), sides.kafka.offsets())) == ""
    assert sides.ask(request("a", 3, **has(0, 1))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(sides, "b", 3, 9) == ErrorCode.UNKNOWN_MEMBER_ID
    answer = sides.ask(request("a", 0, **JOIN))
    assert (answer.error_code, answer.assignment) == (0, ((id_of("t"), (0, 1, 2, 3)),))
    assert sides.ask_muster(request("a", 3)).error_code == ErrorCode.NOT_COORDINATOR


def test_configs_stay_with_the_side_that_serves_the_group(sides: Sides) -> None:
    sides.configs = {"consumer.heartbeat.interval.ms": 7_000}
    moved_back(sides)
    listed = sides.ask_muster(f.ListConfigResourcesRequest())
    assert listed.resources == (), "they are Kafka's"
    answer = sides.ask(request("a", 0, **JOIN))
    sides.configs = {"consumer.heartbeat.interval.ms": 8_000}
    sides.move()
    assert sides.ask(request("a", answer.member_epoch)).heartbeat_interval_ms == 8_000


def test_session_of_before_the_way_back_ends_nothing_of_kafkas(sides: Sides) -> None:
    """Consumers join again with the ids that they had."""
    moved_back(sides)
    sides.ask(request("a", 0, **JOIN))
    sides.follow()
    end = sides.mirror.writer.end_offset
    sides.pass_time(SESSION_MS - 1_000)
    sides.ask(request("a", 5))
    sides.pass_time(2_000)
    assert sides.mirror.writer.end_offset == end
    assert [each.member_id for each in described(sides).members] == ["a"]


def test_group_comes_to_muster_again(sides: Sides) -> None:
    moved_back(sides)
    answer = sides.ask(request("a", 0, **JOIN))
    sides.move()
    assert sides.ask(request("a", answer.member_epoch, **has(0, 1, 2, 3))).member_epoch == answer.member_epoch
    assert sides.mirror.machine.routes.by_group[GROUP].epoch == 3


def test_group_that_has_members_at_kafka_does_not_go_back(sides: Sides) -> None:
    sides.move()
    assert sides.start(back=True).startswith("it has members at Kafka, where it is Stable")


def test_group_that_became_one_of_consumers_at_muster_is_what_kafka_has_again() -> None:
    """A classic group there, which has none of the records of consumers."""
    sides = Sides(t=2)
    sides.kafka.ask(m.OffsetCommitRequest(GROUP, -1, "", None, -1, (("t", ((0, 3, -1, ""),)),), 8))
    sides.move()
    answer = sides.ask(request("a", 0, **JOIN))
    assert committed(sides, "a", answer.member_epoch, 5) == 0
    sides.move(back=True)
    classic = sides.ask_muster(m.DescribeGroupRequest(GROUP, 5))
    here = GroupAtKafka(classic, sides.kafka.offsets())
    assert difference_of(sides.kafka.described(), here) == ""
    assert described(sides).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    sides.move()
    assert sides.ask(request("b", 0, **JOIN)).error_code == 0


# -- who goes past -----------------------------------------------------------------------------------------------------


def test_consumer_that_joins_at_kafka_is_told_until_it_is_gone(sides: Sides) -> None:
    sides.move()
    bypasses = sides.mirror.machine.bypasses
    sides.kafka.ask(request("other", 0, **JOIN))
    sides.follow()
    assert bypasses.news() == (Bypass(GROUP, "client@127.0.0.1", True),)
    assert GROUP in bypasses.with_members
    assert described(sides).group_epoch == 3
    sides.kafka.ask(request("other", -1))
    sides.follow()
    assert GROUP not in bypasses.with_members
