"""ConsumerGroupHeartbeat. Names in brackets: tests of Kafka's GroupMetadataManagerTest that say the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.groups.consumer.consumer_harness import GROUP, ConsumerHarness, id_of, request

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.member import STABLE, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from muster_coordinator.requests import consumer_groups as c

T = id_of("t")


def owns(*partitions: int, topic: str = "t") -> tuple[c.TopicPartitions, ...]:
    return ((id_of(topic), partitions),) if partitions else ()


def parts(response: c.ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    assert response.error_code == 0, response
    return None if response.assignment is None else {topic: sorted(each) for topic, each in response.assignment}


def test_first_member_gets_all_at_epoch_2_and_its_records_come_in_kafkas_order() -> None:
    """[testMemberJoinsEmptyConsumerGroup]"""
    h = ConsumerHarness(t=3)
    response = h.join("a", "t")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 2, 5000)
    assert parts(response) == {T: [0, 1, 2]}
    assert h.record_types == [5, 3, 7, 6, 8]
    assert h.group.state == "Stable"


def test_heartbeat_without_news_writes_nothing_and_tells_no_assignment() -> None:
    h = ConsumerHarness(t=3)
    h.join("a", "t")
    response = h.beat("a", 2)
    assert parts(response) is None
    assert h.record_types == []
    assert response.member_epoch == 2


def test_full_request_is_told_the_assignment_again() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", "t")
    fields: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",)}
    assert parts(h.beat("a", 2, topic_partitions=owns(0), **fields)) == {T: [0]}


def test_partition_is_given_on_only_when_its_revocation_is_acknowledged() -> None:
    """[testReconciliationProcess]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t")
    joined = h.join("b", "t")
    assert (joined.member_epoch, parts(joined)) == (3, {})
    assert h.group.current_of("b").state == UNRELEASED_PARTITIONS
    told = h.beat("a", 2)
    assert (told.member_epoch, parts(told)) == (2, {T: [0]})
    assert h.group.current_of("a").state == UNREVOKED_PARTITIONS
    assert h.describe().group_state == "Reconciling"
    assert parts(h.beat("a", 2, topic_partitions=owns(0, 1))) is None
    assert parts(h.beat("b", 3)) is None
    acknowledged = h.beat("a", 2, topic_partitions=owns(0))
    assert acknowledged.member_epoch == 3
    assert parts(h.beat("b", 3)) == {T: [1]}
    assert {h.group.current_of(each).state for each in "ab"} == {STABLE}
    assert h.describe().group_state == "Stable"


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"member_id": ""}, "MemberId can't be empty."),
    ({"group_id": ""}, "GroupId can't be empty."),
    ({"group_id": "  "}, "GroupId can't be empty."),
    ({"instance_id": ""}, "InstanceId can't be empty."),
    ({"rack_id": ""}, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
    ({"topic_partitions": owns(0)}, "TopicPartitions must be empty when (re-)joining."),
    (
        {"subscribed_topic_names": None},
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    ({"member_epoch": -2}, "InstanceId can't be null."),
    ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ({"member_id": "", "member_epoch": -1, "api_version": 0}, "MemberId can't be empty."),
    ({"member_id": "", "member_epoch": 1, "api_version": 0}, "MemberId can't be empty."),
]


@pytest.mark.parametrize(("fields", "message"), INVALID)
def test_invalid_request_is_refused_and_makes_no_group(fields: dict[str, Any], message: str) -> None:
    """[testConsumerHeartbeatRequestValidation]"""
    h = ConsumerHarness(t=1)
    joining = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ("t",), "topic_partitions": ()}
    response = h.send(request(**{"member_id": "a", "epoch": 0, **joining, **fields}))
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert not h.tables.groups


def test_unknown_assignor_is_refused_with_the_known_ones() -> None:
    response = ConsumerHarness(t=1).join("a", "t", server_assignor="sticky")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."


def test_member_without_an_id_gets_one_before_v1() -> None:
    """[testMemberIdGeneration]"""
    h = ConsumerHarness(t=1)
    assert h.join("", "t", api_version=0).member_id == "made-1"
    assert list(h.group.members) == ["made-1"]


def test_unknown_group_and_member_are_told_apart() -> None:
    """[testUnknownGroupId, testUnknownMemberIdJoinsConsumerGroup]"""
    h = ConsumerHarness(t=1)
    assert h.beat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert h.leave("a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    h.join("a", "t")
    for epoch in (1, -1):
        refused = h.beat("b", epoch)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.error_message == f"Member b is not a member of group {GROUP}."


def test_epochs_ahead_and_behind_are_fenced_but_one_that_lost_its_answer_goes_on() -> None:
    """[testConsumerGroupMemberEpochValidation]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t")
    ahead = h.beat("a", 3)
    assert ahead.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert ahead.error_message == (
        "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin."
    )
    h.join("b", "t")
    h.beat("a", 2)
    h.beat("a", 2, topic_partitions=owns(0))
    assert h.group.current_of("a").epoch == 3
    assert h.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.beat("a", 2, topic_partitions=owns(1)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.beat("a", 1, topic_partitions=owns(0)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.beat("a", 2, topic_partitions=owns(0)).member_epoch == 3


def test_member_that_joins_again_is_not_fenced_and_keeps_what_it_has() -> None:
    """KAFKA-19233."""
    h = ConsumerHarness(t=2)
    h.join("a", "t")
    again = h.join("a", "t")
    assert (again.member_epoch, parts(again)) == (2, {T: [0, 1]})


def test_full_group_refuses_new_members_only() -> None:
    """[testConsumerGroupHeartbeatWithMaxSize]"""
    h = ConsumerHarness(ConsumerGroupConfig(max_size=1, assignment_interval_ms=0), t=1)
    h.join("a", "t")
    refused = h.join("b", "t")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert h.beat("a", 2).error_code == 0


def test_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    """[testLeavingMemberBumpsGroupEpoch]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t")
    h.join("b", "t")
    left = h.leave("a")
    assert (left.error_code, left.member_id, left.member_epoch, left.heartbeat_interval_ms) == (0, "a", -1, 0)
    assert h.record_types == [8, 7, 5, 3]
    assert h.describe().group_state == "Assigning"
    assert parts(h.beat("b", 3)) == {T: [0, 1]}


def test_empty_group_goes_on_counting_epochs() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", "t")
    h.leave("a")
    assert (h.group.state, h.group.epoch, h.group.target_epoch) == ("Empty", 3, 2)
    assert h.join("b", "t").member_epoch == 4
    assert not [key for key in h.timers if "a" in key]


def test_session_that_ends_fences_the_member() -> None:
    """[testSessionTimeoutLifecycle, testSessionTimeoutExpiration]"""
    h = ConsumerHarness(t=1)
    h.join("a", "t")
    h.advance(44_000)
    h.beat("a", 2)
    h.advance(44_999)
    assert "a" in h.group.members
    h.advance(1)
    assert "a" not in h.group.members
    assert h.group.epoch == 3


def test_member_that_does_not_revoke_in_time_is_fenced() -> None:
    """[testRebalanceTimeoutExpiration]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t", rebalance_timeout_ms=10_000)
    h.join("b", "t")
    h.beat("a", 2)
    h.advance(9_999)
    assert "a" in h.group.members
    h.advance(1)
    assert list(h.group.members) == ["b"]
    assert parts(h.beat("b", 3)) == {T: [0, 1]}


def test_member_that_revokes_in_time_stays() -> None:
    """[testRebalanceTimeoutLifecycle]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t", rebalance_timeout_ms=10_000)
    h.join("b", "t")
    h.beat("a", 2)
    h.beat("a", 2, topic_partitions=owns(0))
    h.advance(20_000)
    assert sorted(h.group.members) == ["a", "b"]


# -- static members ---------------------------------------------------------------------------------------------------


def test_static_member_comes_back_to_its_partitions_without_a_rebalance() -> None:
    """[testStaticMemberRejoinsWithNewSubscribedTopics and following]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t", instance_id="i")
    h.join("b", "t")
    h.beat("a", 2, instance_id="i")
    h.beat("a", 2, instance_id="i", topic_partitions=owns(0))
    h.beat("b", 3)
    away = h.leave("a", -2, instance_id="i")
    assert (away.error_code, away.member_id, away.member_epoch) == (0, "a", -2)
    assert h.record_types == [8]
    assert parts(h.beat("b", 3)) is None
    back = h.join("a2", "t", instance_id="i")
    assert (back.member_id, back.member_epoch, parts(back)) == ("a2", 3, {T: [0]})
    assert sorted(h.group.members) == ["a2", "b"]
    assert h.group.epoch == 3


def test_static_member_that_is_there_keeps_its_instance_id() -> None:
    """[testShouldThrowUnreleasedInstanceIdExceptionWhenNewMemberJoinsWithInUseInstanceId]"""
    h = ConsumerHarness(t=1)
    h.join("a", "t", instance_id="i")
    for member_id in ("a", "b"):
        refused = h.join(member_id, "t", instance_id="i")
        assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
        assert refused.error_message == (
            f"Static member {member_id} with instance id i cannot join the group because the instance id is owned by "
            "a member."
        )


def test_other_member_of_an_instance_is_fenced_and_an_unknown_one_unknown() -> None:
    """[testShouldThrowFencedInstanceIdExceptionWhenStaticMemberWithDifferentMemberIdLeaves,
    testShouldThrowUnknownMemberIdExceptionWhenUnknownStaticMemberLeaves]"""
    h = ConsumerHarness(t=1)
    h.join("a", "t", instance_id="i")
    for epoch in (2, -1, -2):
        fenced = h.beat("b", epoch, instance_id="i")
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
        assert fenced.error_message == "Static member b with instance id i was fenced by member a."
        unknown = h.beat("b", epoch, instance_id="j")
        assert (unknown.error_code, unknown.error_message) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            "Instance id j is unknown.",
        )


def test_static_member_that_does_not_come_back_is_fenced_when_its_session_ends() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", "t", instance_id="i")
    h.leave("a", -2, instance_id="i")
    h.advance(45_000)
    assert not h.group.members
    assert not h.group.static_members


# -- subscriptions and topics -----------------------------------------------------------------------------------------


def test_topic_no_longer_subscribed_is_revoked_in_the_same_heartbeat() -> None:
    """KAFKA-19431, within the interval in which there is no new assignment."""
    h = ConsumerHarness(ConsumerGroupConfig(), t=1, u=1)
    h.join("a", "t", "u")
    told = h.beat("a", 2, subscribed_topic_names=("t",))
    assert (told.member_epoch, parts(told)) == (2, {T: [0]})
    assert h.group.current_of("a").state == UNREVOKED_PARTITIONS
    assert h.group.state == "Assigning"
    h.advance(1_000)
    after = h.beat("a", 2, topic_partitions=owns(0))
    assert (after.member_epoch, h.group.state) == (3, "Stable")


def test_targets_are_computed_once_in_an_interval() -> None:
    """KIP-1263."""
    h = ConsumerHarness(ConsumerGroupConfig(), t=3)
    assert h.join("a", "t").member_epoch == 2
    late = h.join("b", "t")
    assert (late.member_epoch, parts(late)) == (2, {})
    assert h.group.state == "Assigning"
    h.advance(999)
    assert h.beat("b", 2).member_epoch == 2
    h.advance(1)
    assert h.beat("b", 2).member_epoch == 3


def test_partitions_that_a_topic_gets_are_given_out() -> None:
    """[testSubscriptionMetadataRefreshedAfterGroupIsLoaded and following]"""
    h = ConsumerHarness(t=1)
    h.join("a", "t")
    h.topics.change("t", 2)
    told = h.beat("a", 2)
    assert (told.member_epoch, parts(told)) == (3, {T: [0, 1]})
    h.topics.change("other", 1)
    h.beat("a", 3)
    assert h.record_types == []


def test_topic_that_is_gone_is_taken_away() -> None:
    h = ConsumerHarness(t=1, u=1)
    h.join("a", "t", "u")
    h.topics.change("u", 0)
    assert parts(h.beat("a", 2)) == {T: [0]}
    assert h.beat("a", 2, topic_partitions=owns(0)).member_epoch == 3


def test_new_leader_that_sees_other_topics_assigns_anew() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", "t")
    h.topics.counts["t"] = 2
    h.fail_over()
    assert parts(h.beat("a", 2)) == {T: [0, 1]}


def test_member_without_a_topic_is_in_the_group_and_gets_nothing() -> None:
    """[testMemberJoinsWithEmptySubscription]"""
    h = ConsumerHarness(t=1)
    response = h.join("a")
    assert (response.member_epoch, parts(response)) == (1, {})
    assert h.record_types == [5, 3, 6, 8]
    assert (h.group.epoch, h.group.target_epoch) == (1, 1)
    assert h.join("b", "t").member_epoch == 2


def test_most_asked_assignor_is_taken() -> None:
    h = ConsumerHarness(t=2, u=2)
    h.join("a", "t", "u", server_assignor="range")
    assert h.describe().assignor_name == "range"
    h.join("b", "t", "u")
    assert h.group.target_of("a") == {T: (0,), id_of("u"): (0,)}
    assert h.describe().assignor_name == "range"


# -- regular expressions ----------------------------------------------------------------------------------------------


def regex(text: str) -> dict[str, Any]:
    return {"subscribed_topic_names": None, "subscribed_topic_regex": text}


def test_expression_is_resolved_and_then_assigned() -> None:
    """[testConsumerGroupMemberJoinsWithRegex]"""
    h = ConsumerHarness(t1=1, t2=1, x=1)
    joined = h.join("a", **regex("t.*"))
    assert (joined.member_epoch, parts(joined)) == (1, {})
    assert [each.regexes for each in h.asked] == [("t.*",)]
    h.beat("a", 1)
    assert len(h.asked) == 1
    h.resolve()
    assert h.record_types == [16, 3]
    told = h.beat("a", 1)
    assert (told.member_epoch, parts(told)) == (2, {id_of("t1"): [0], id_of("t2"): [0]})


def test_bad_expression_is_refused_and_makes_no_group() -> None:
    """[testConsumerGroupMemberJoinsWithInvalidRegex]"""
    h = ConsumerHarness(t=1)
    refused = h.join("a", **regex("(t"))
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message == "SubscribedTopicRegex `(t` is not a valid regular expression: missing closing )."
    assert not h.tables.groups


def test_second_member_of_a_resolved_expression_needs_no_search() -> None:
    h = ConsumerHarness(t=2)
    h.join("a", **regex("t"))
    h.resolve()
    h.beat("a", 1)
    h.join("b", **regex("t"))
    assert not h.asked
    assert h.group.epoch == 3


def test_expression_of_nobody_is_forgotten() -> None:
    """[testConsumerGroupMemberLeaves with a regex]"""
    h = ConsumerHarness(t=1, u=1)
    h.join("a", **regex("t"))
    h.resolve()
    h.beat("a", 1)
    h.beat("a", 2, subscribed_topic_regex="u")
    assert not h.group.regexes
    h.advance(10_001)
    h.beat("a", 2, topic_partitions=())
    h.resolve()
    assert list(h.group.regexes) == ["u"]
    h.leave("a")
    assert h.record_types == [8, 7, 5, 16, 3]
    assert not h.group.regexes


def test_new_topics_are_found_ten_seconds_after_the_last_search() -> None:
    h = ConsumerHarness(t1=1)
    h.join("a", **regex("t.*"))
    h.resolve()
    h.beat("a", 1)
    h.topics.change("t2", 1)
    h.advance(10_000)
    h.beat("a", 2)
    assert not h.asked
    h.advance(1)
    h.beat("a", 2)
    h.resolve()
    assert parts(h.beat("a", 2)) == {id_of("t1"): [0], id_of("t2"): [0]}


def test_expressions_are_looked_through_again_after_the_refresh_interval() -> None:
    h = ConsumerHarness(t1=1)
    h.join("a", **regex("t.*"))
    h.resolve()
    h.beat("a", 1)
    for _ in range(20):
        h.advance(30_000)
        h.beat("a", 2)
    assert not h.asked
    h.advance(1)
    h.beat("a", 2)
    assert len(h.asked) == 1


def test_search_that_failed_is_begun_again() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", **regex("t"))
    h.resolve(fails=True)
    assert h.record_types == []
    h.beat("a", 1)
    h.resolve()
    assert parts(h.beat("a", 1)) == {T: [0]}


def test_answer_for_an_expression_that_nobody_has_any_more_is_dropped() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", **regex("t"))
    h.join("b", "t")
    h.leave("a")
    h.resolve()
    assert h.record_types == []
    assert not h.group.regexes


# -- description, tombstones, load ------------------------------------------------------------------------------------


def test_description_tells_what_a_member_has_still_to_give_back() -> None:
    """[testConsumerGroupDescribe...; KAFKA-20431]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t", rack_id="r")
    h.join("b", "t", instance_id="i")
    h.beat("a", 2)
    described = h.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    assert described.assignor_name == "uniform"
    first, second = described.members
    assert (first.member_id, first.rack_id, first.member_epoch, first.member_type) == ("a", "r", 2, c.CONSUMER_MEMBER)
    assert first.assignment == ((T, "t", (0, 1)),)
    assert first.target_assignment == ((T, "t", (0,)),)
    assert (second.instance_id, second.assignment, second.target_assignment) == ("i", (), ((T, "t", (1,)),))
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (("t",), "")


def test_unknown_group_is_described_as_not_found() -> None:
    described = ConsumerHarness().describe()
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == f"Group {GROUP} not found."


def test_tombstones_take_away_all_that_records_say() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", **regex("t"))
    h.resolve()
    h.beat("a", 1)
    live_keys = {key for key, value in h.log if value is not None}
    tombstones = list(h.group.tombstones())
    assert {key for key, _, _ in tombstones} == live_keys
    for _, _, change in tombstones:
        h.tables.replay(change)
    assert not h.tables.groups


def test_new_leader_gives_every_member_a_whole_session_and_rebalance_time_out() -> None:
    """[testOnLoaded]"""
    h = ConsumerHarness(t=2)
    h.join("a", "t", rebalance_timeout_ms=10_000)
    h.join("b", "t")
    h.beat("a", 2)
    h.advance(9_000)
    h.fail_over()
    assert {key[0]: at_ms - h.now_ms for key, at_ms in h.timers.items() if "a" in key} == {
        "consumer-session": 45_000,
        "consumer-rebalance": 10_000,
    }
    h.advance(10_000)
    assert list(h.group.members) == ["b"]


def test_new_leader_asks_for_the_topics_of_expressions_again() -> None:
    h = ConsumerHarness(t=1)
    h.join("a", **regex("t"))
    h.fail_over()
    h.beat("a", 1)
    h.resolve()
    assert parts(h.beat("a", 1)) == {T: [0]}
