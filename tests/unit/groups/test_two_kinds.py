"""Classic groups and groups of the consumer protocol in one coordinator. Names in brackets: tests of Kafka."""

from __future__ import annotations

import pytest
from tests.unit.groups.consumer.consumer_harness import id_of, request
from tests.unit.groups.harness import subscription
from tests.unit.groups.two_kinds import TwoKinds

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m

DISABLED = ConsumerGroupConfig(assignment_interval_ms=0, migration_policy="disabled")


@pytest.fixture
def h() -> TwoKinds:
    return TwoKinds()


def test_consumer_group_is_listed_and_described_as_one(h: TwoKinds) -> None:
    h.join_consumer()
    h.stable_group("classic")
    consumer = ("g", "consumer", "Stable", "consumer")
    assert h.listed() == [("classic", "consumer", "Stable", "classic"), consumer]
    assert h.listed(types_filter=("Consumer",)) == [consumer]
    assert h.listed(states_filter=("assigning",)) == []
    assert h.described().members[0].assignment == ((id_of("t"), "t", (0, 1)),)
    as_classic = h.describe()
    assert (as_classic.error_code, as_classic.error_message) == (69, "Group g is not a classic group.")
    assert as_classic.group_state == "Dead"


def test_groups_are_counted_by_kind_and_state(h: TwoKinds) -> None:
    h.join_consumer()
    h.stable_group("classic")
    gauges = h.coordinator.gauges
    assert (gauges["groups", "Stable"], gauges["consumer_groups", "Stable"]) == (1, 1)
    h.beat("a", -1)
    gauges = h.coordinator.gauges
    assert (gauges["consumer_groups", "Stable"], gauges["consumer_groups", "Empty"]) == (0, 1)


def test_classic_group_is_not_described_as_a_consumer_group(h: TwoKinds) -> None:
    h.stable_group("g")
    described = h.described()
    assert (described.error_code, described.error_message) == (69, "Group g is not a consumer group.")


def test_no_group_without_a_name_is_described_as_a_consumer_group(h: TwoKinds) -> None:
    described = h.send(c.DescribeConsumerGroupRequest("")).response
    assert (described.error_code, described.error_message) == (ErrorCode.INVALID_GROUP_ID, None)


def test_member_of_one_kind_is_refused_by_a_group_of_the_other() -> None:
    """[migration policy disabled; KAFKA-20640]"""
    h = TwoKinds(consumer_config=DISABLED)
    h.join_consumer()
    refused = h.join("g")
    assert (refused.code, refused.response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert h.heartbeat("g", 2, "a") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("g", 2, "a").code == ErrorCode.UNKNOWN_MEMBER_ID
    h.stable_group("classic")
    for epoch in (0, 1, -1):
        heartbeat = request("b", epoch, group_id="classic", subscribed_topic_names=("t",), topic_partitions=())
        answer = h.send(heartbeat).response
        if epoch == 0:
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        else:
            assert (answer.error_code, answer.error_message) == (69, "Group classic is not a consumer group.")
    joins = h.join_consumer("b", group_id="classic")
    assert joins.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert joins.error_message == (
        "Cannot upgrade classic group classic to consumer group because online upgrade is disabled."
    )


def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(h: TwoKinds) -> None:
    """[testConsumerGroupHeartbeatWithEmptyClassicGroup]"""
    (member_id,) = h.stable_group("g")
    assert h.commit("g", 7, generation_id=1, member_id=member_id) == 0
    h.leave("g", member_id)
    assert h.join_consumer().error_code == 0
    assert h.listed() == [("g", "consumer", "Stable", "consumer")]
    assert h.fetched("a", 2) == (0, 7)
    h.reload()
    assert h.listed() == [("g", "consumer", "Stable", "consumer")]


def test_group_that_only_offsets_imply_becomes_a_consumer_group(h: TwoKinds) -> None:
    assert h.commit("g", 7) == 0
    h.join_consumer()
    assert h.listed() == [("g", "consumer", "Stable", "consumer")]
    assert h.commit("g", 8, generation_id=2, member_id="a") == 0
    h.reload()
    assert h.listed() == [("g", "consumer", "Stable", "consumer")]


def test_offsets_that_come_before_their_consumer_group_in_the_log_are_its_own(h: TwoKinds) -> None:
    h.join_consumer()
    h.commit("g", 8, generation_id=2, member_id="a")
    h.log.insert(0, h.log.pop())
    h.lose_records(0)
    assert h.listed() == [("g", "consumer", "Stable", "consumer")]


def test_empty_consumer_group_becomes_a_classic_group(h: TwoKinds) -> None:
    """[testJoiningConsumerGroupThrowsExceptionIfProtocolIsNotSupported and the empty one]"""
    h.join_consumer()
    h.commit("g", 7, generation_id=2, member_id="a")
    h.beat("a", -1)
    assert h.join("g", "known").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.listed() == [("g", "consumer", "Empty", "consumer")]
    h.stable_group("g")
    assert h.listed() == [("g", "consumer", "Stable", "classic")]
    assert h.offset("g") == 7
    h.reload()
    assert h.listed() == [("g", "consumer", "Stable", "classic")]


def test_first_join_alone_makes_the_empty_consumer_group_a_classic_one(h: TwoKinds) -> None:
    h.join_consumer()
    h.beat("a", -1)
    assert h.join("g").code == ErrorCode.MEMBER_ID_REQUIRED
    h.reload()
    assert h.listed() == [("g", "", "Empty", "classic")]


def test_commits_and_fetches_need_the_member_epoch(h: TwoKinds) -> None:
    h.join_consumer()
    assert h.commit("g", 7, generation_id=2, member_id="a") == 0
    assert h.commit("g", 7, generation_id=3, member_id="a") == ErrorCode.STALE_MEMBER_EPOCH
    assert h.commit("g", 7, generation_id=2, member_id="b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("g", 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("g", 7, generation_id=2, member_id="a", api_version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert h.txn_commit(1, "g", 9, generation_id=3, member_id="a") == ErrorCode.ILLEGAL_GENERATION
    assert h.txn_commit(1, "g", 9) == 0
    assert h.fetched("a", 2) == (0, 7)
    assert h.fetched("a", 1) == (ErrorCode.STALE_MEMBER_EPOCH, -1)
    assert h.fetched("x", 2) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
    assert h.fetched(None, -1) == (0, 7)


def test_group_with_members_is_not_deleted_and_an_empty_one_with_its_offsets(h: TwoKinds) -> None:
    h.join_consumer()
    h.commit("g", 7, generation_id=2, member_id="a")
    assert h.delete("g") == ErrorCode.NON_EMPTY_GROUP
    h.beat("a", -1)
    assert h.delete("g") == 0
    assert h.listed() == []
    assert h.coordinator.offset_count == 0
    h.reload()
    assert h.listed() == []


def test_offsets_of_subscribed_topics_are_not_deleted(h: TwoKinds) -> None:
    h.join_consumer()
    h.commit("g", topics=(("t", ((0, 1, -1, ""),)), ("u", ((0, 1, -1, ""),))), generation_id=2, member_id="a")
    response = h.send(m.OffsetDeleteRequest("g", (("t", (0,)), ("u", (0,))))).response
    assert response.topics == (("t", ((0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)), ("u", ((0, 0),)))


def test_administrator_removes_members_of_a_consumer_group(h: TwoKinds) -> None:
    h.join_consumer("a")
    h.join_consumer("b", instance_id="i")
    left = h.leave("g", ("x", None), ("a", None), ("", "i"), ("y", "i"), ("", "j")).response
    assert [each.error_code for each in left.members] == [25, 0, 0, ErrorCode.FENCED_INSTANCE_ID, 25]
    assert h.listed() == [("g", "consumer", "Empty", "consumer")]
    assert h.described().group_epoch == 4


def test_offsets_and_then_the_group_expire_once_it_is_empty() -> None:
    h = TwoKinds(config=GroupConfig(offsets_retention_minutes=2))
    h.join_consumer()
    h.commit("g", topics=(("t", ((0, 1, -1, ""),)), ("u", ((0, 1, -1, ""),))), generation_id=2, member_id="a")
    h.now_ms += h.config.offsets_retention_ms
    h.fire(("expire-offsets", "", ""))
    assert h.coordinator.offset_count == 1
    h.beat("a", -1)
    h.fire(("expire-offsets", "", ""))
    assert h.listed() == []


def test_sessions_of_consumers_begin_anew_at_a_new_leader(h: TwoKinds) -> None:
    h.join_consumer()
    h.advance(40_000)
    h.reload()
    h.advance(44_999)
    assert h.described().members
    h.advance(1)
    assert not h.described().members
    assert h.coordinator.event_counts["sessions_ended"] == 1


def test_expression_is_resolved_by_an_event(h: TwoKinds) -> None:
    h.join_consumer(subscribed_topic_names=None, subscribed_topic_regex="t.*")
    (reply,) = h.last.replies
    assert reply.token.request.regexes == ("t.*",)
    event = c.RegexesResolved("g", (("t.*", ("t",)),), h.consumer_topics.version, h.now_ms)
    h._apply(h.coordinator.on_event(event, h.now_ms), None)
    assert h.beat("a", 1).assignment == ((id_of("t"), (0, 1)),)


def test_full_partition_refuses_a_new_group(h: TwoKinds) -> None:
    full = TwoKinds(config=GroupConfig(max_groups=1))
    full.join_consumer()
    assert full.join_consumer("b", group_id="other").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert full.join("classic").code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert full.commit("simple") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.join("g", protocols=(("range", subscription(["t"])),)).code == ErrorCode.MEMBER_ID_REQUIRED
    assert full.coordinator.key_count == 1


def test_tombstones_of_a_consumer_group_take_all_of_it_away(h: TwoKinds) -> None:
    h.join_consumer()
    h.commit("g", 7, generation_id=2, member_id="a")
    for _, _, change in h.coordinator.tombstones_of(lambda group_id: True, 100):
        h.coordinator.replay(change, 0, 0)
    assert h.coordinator.key_count == 0
    assert h.coordinator.offset_count == 0
