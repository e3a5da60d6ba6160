"""OffsetCommit. Origin: testCommitOffset*, testGenericGroupOffsetCommit* and testSimpleGroupOffsetCommit* of
GroupCoordinatorTest and OffsetMetadataManagerTest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.harness import START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.offsets.commit import unknown_first
from muster_coordinator.records.batch import HEADER_BYTES, RECORD_OVERHEAD_BYTES
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.offset_commit import encode_offset_commit_key
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord
from muster_coordinator.requests import groups as m


@pytest.fixture
def h() -> Harness:
    return Harness()


def commit_topics(h: Harness, topics: tuple[tuple[str, tuple[tuple[int, int, int, str | None], ...]], ...]) -> Any:
    return h.send(m.OffsetCommitRequest("g", -1, "", None, -1, topics, 9)).response


def test_record_keeps_the_id_of_the_topic(h: Harness) -> None:
    h.topics.ids["u"] = NO_TOPIC_ID
    commit_topics(h, (("t", ((0, 1, -1, ""), (1, 2, -1, "m"))), ("u", ((0, 3, -1, ""),))))
    decoded = [decode_record(key, value) for key, value, _ in h.last.records]
    assert [record.value.topic_id for record in decoded if isinstance(record, OffsetCommitRecord) and record.value] == [
        h.topics.id_of("t"),
        h.topics.id_of("t"),
        NO_TOPIC_ID,
    ]
    assert h.restored().durable_state() == h.coordinator.durable_state()


# -- the group ---------------------------------------------------------------------------------------------------------


def test_commit_without_generation_creates_a_simple_group(h: Harness) -> None:
    """[testSimpleGroupOffsetCommit]"""
    assert h.commit(offset=7) == ErrorCode.NONE
    assert h.offset() == 7
    described = h.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", ())


@pytest.mark.parametrize(
    ("api_version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_commit_with_generation_to_unknown_group(h: Harness, api_version: int, code: ErrorCode) -> None:
    """[testOffsetCommitWithUnknownGroup]"""
    assert h.commit(generation_id=10, member_id="m", api_version=api_version) == code
    assert h.group_ids() == []


def test_empty_group_id_may_commit_and_fetch(h: Harness) -> None:
    """[testCommitAndFetchOffsetsWithEmptyGroup]"""
    assert h.commit("", offset=3) == ErrorCode.NONE
    assert h.offset("") == 3


def test_member_of_stable_group_commits(h: Harness) -> None:
    _, follower = h.stable_group(members=2)
    assert h.commit(generation_id=1, member_id=follower, offset=9) == ErrorCode.NONE
    assert h.offset() == 9


def test_commit_errors_in_stable(h: Harness) -> None:
    """[UnknownMemberId, IllegalGeneration, without member info to a group with members]"""
    (member,) = h.stable_group()
    assert h.commit(generation_id=1, member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit(generation_id=2, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert h.commit(generation_id=-1, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert h.commit() == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.offset() == -1


def test_commit_with_default_generation_needs_an_empty_group(h: Harness) -> None:
    """[testCommitOffsetWithDefaultGeneration, AfterGroupIsEmpty,
    ManualCommitOffsetShouldNotValidateMemberIdAndInstanceId]"""
    (member,) = h.stable_group()
    h.leave("g", member)
    assert h.commit() == ErrorCode.NONE
    assert h.commit(member_id="anybody", group_instance_id="anything") == ErrorCode.NONE
    assert h.commit(generation_id=2, member_id=member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_while_members_join_is_accepted_and_keeps_the_session(h: Harness) -> None:
    leader, follower = h.stable_group(members=2)
    h.join("g", leader)
    h.advance(9_000)
    assert h.commit(generation_id=1, member_id=follower) == ErrorCode.NONE
    assert h.timers["session", "g", follower] == h.now_ms + 10_000


def test_commit_in_completing_is_refused_after_the_member_is_checked(h: Harness) -> None:
    """[testCommitOffsetInCompletingRebalance, FromUnknownMemberId, FromIllegalGeneration]"""
    join = h.join_dynamic()
    h.finish_initial_delay()
    member = join.response.member_id
    assert h.commit(generation_id=1, member_id=member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.commit(generation_id=1, member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit(generation_id=0, member_id=member) == ErrorCode.ILLEGAL_GENERATION


def test_old_generation_cannot_commit_after_a_rebalance(h: Harness) -> None:
    (leader,) = h.stable_group()
    h.join("g", leader)
    h.sync("g", 2, leader, {leader: b""})
    assert h.commit(generation_id=1, member_id=leader) == ErrorCode.ILLEGAL_GENERATION
    assert h.commit(generation_id=2, member_id=leader) == ErrorCode.NONE


# -- partitions --------------------------------------------------------------------------------------------------------


def test_answer_keeps_the_order_of_the_request(h: Harness) -> None:
    response = commit_topics(h, (("b", ((2, 1, -1, ""), (0, 1, -1, ""))), ("a", ((1, 1, -1, ""),))))
    assert response == m.OffsetCommitResponse((("b", ((2, 0), (0, 0))), ("a", ((1, 0),))))


def test_unknown_partition_is_refused_and_the_others_are_kept(h: Harness) -> None:
    h.topics.missing.add(("t", 1))
    response = commit_topics(h, (("t", ((0, 5, -1, ""), (1, 5, -1, ""))),))
    assert response == m.OffsetCommitResponse((("t", ((1, 3), (0, 0))),))
    assert h.fetch(topics=None) == {("t", 0): (5, 0)}


def test_unknown_partitions_come_first_and_topics_once(h: Harness) -> None:
    """As in KafkaApis, which answers them before it asks the group and then merges."""
    h.topics.missing |= {("u", 0), ("t", 1)}
    offset = (5, -1, "")
    response = commit_topics(h, (("t", ((0, *offset), (1, *offset))), ("v", ((0, *offset),)), ("u", ((0, *offset),))))
    assert response == m.OffsetCommitResponse((("t", ((1, 3), (0, 0))), ("u", ((0, 3),)), ("v", ((0, 0),))))


def test_group_is_not_asked_if_no_partition_exists(h: Harness) -> None:
    """As in KafkaApis: no group is created and no error of the group is seen."""
    h.topics.missing.add(("t", 0))
    assert h.commit() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert h.commit(generation_id=5, member_id="m") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert h.group_ids() == []


def test_unknown_partition_keeps_its_error_when_the_group_refuses(h: Harness) -> None:
    h.topics.missing.add(("t", 1))
    topics = (("t", ((0, 5, -1, ""), (1, 5, -1, ""))),)
    response = h.send(m.OffsetCommitRequest("g", 5, "m", None, -1, topics, 9)).response
    assert response == m.OffsetCommitResponse((("t", ((1, 3), (0, 69))),))


def test_topics_without_partitions_are_left_out(h: Harness) -> None:
    assert commit_topics(h, (("t", ()),)) == m.OffsetCommitResponse(())
    assert h.group_ids() == []


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 4096, 0),
        ("x" * 4097, 12),
        ("é" * 4096, 0),
        ("é" * 4097, 12),
        ("😀" * 2048, 0),  # two UTF-16 code units each
        ("😀" * 2048 + "x", 12),
    ],
    ids=["ascii", "ascii too long", "two bytes", "two bytes too long", "surrogates", "surrogates too long"],
)
def test_metadata_is_measured_in_utf16_code_units(h: Harness, metadata: str, code: int) -> None:
    """[testCommitOffsetMetadataTooLarge]"""
    assert h.commit(topics=(("t", ((0, 5, -1, metadata),)),)) == code


def test_too_large_metadata_refuses_its_partition_only(h: Harness) -> None:
    response = commit_topics(h, (("t", ((0, 5, -1, "x" * 5_000), (1, 5, -1, ""))),))
    assert response == m.OffsetCommitResponse((("t", ((0, 12), (1, 0))),))
    assert h.fetch(topics=None) == {("t", 1): (5, 0)}


def test_group_of_a_commit_without_records_exists_all_the_same(h: Harness) -> None:
    h.commit(topics=(("t", ((0, 5, -1, "x" * 5_000),)),))
    assert h.state() == "Empty"


# -- the record --------------------------------------------------------------------------------------------------------


def test_record_carries_what_was_committed(h: Harness) -> None:
    h.commit(topics=(("topic", ((3, 42, 7, "meta"),)),))
    ((key, _, change),) = h.last.records
    assert key == encode_offset_commit_key("g", "topic", 3)
    assert isinstance(change, OffsetCommitRecord)
    value = change.value
    assert value is not None
    assert (value.offset, value.leader_epoch, value.metadata) == (42, 7, "meta")
    assert (value.commit_timestamp_ms, value.expire_timestamp_ms) == (START_MS, -1)


def test_keys_are_right_for_every_group_topic_and_partition(h: Harness) -> None:
    for group_id in ("g", "h"):
        for topic in ("t", "u"):
            for partition in (0, 1, 2**31 - 1, 0):
                h.commit(group_id, topics=((topic, ((partition, 1, -1, ""),)),))
                assert h.last.records[0][0] == encode_offset_commit_key(group_id, topic, partition)


def test_null_metadata_is_stored_as_empty(h: Harness) -> None:
    h.commit(topics=(("t", ((0, 5, -1, None),)),))
    response = h.send(m.OffsetFetchRequest("g", None, -1, None, False)).response
    assert response.topics == (("t", ((0, 5, -1, "", 0),)),)


def test_retention_time_becomes_an_expire_timestamp(h: Harness) -> None:
    """OffsetCommit v2-4; such a record has no leader epoch."""
    h.commit(topics=(("t", ((0, 5, 9, ""),)),), retention_time_ms=1_000, api_version=3)
    value = h.last.records[0][2].value
    assert (value.expire_timestamp_ms, value.leader_epoch) == (START_MS + 1_000, -1)


def test_counter_counts_committed_partitions(h: Harness) -> None:
    commit_topics(h, (("t", ((0, 5, -1, ""), (1, 5, -1, "x" * 5_000), (2, 5, -1, ""))),))
    assert h.coordinator.event_counts["offset_commits"] == 2
    assert h.coordinator.offset_count == 2
    h.commit()
    assert h.coordinator.offset_count == 2


def test_commit_larger_than_a_batch_may_be_is_refused_as_a_whole() -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    topics = (("t", tuple((partition, 5, -1, "m" * 50) for partition in range(10))),)
    h.topics.missing.add(("t", 3))
    codes = dict(commit_topics(h, topics).topics[0][1])
    assert codes[3] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {code for partition, code in codes.items() if partition != 3} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert (h.last.records, h.coordinator.group("g")) == ((), None)
    assert commit_topics(h, (("t", topics[0][1][:3]),)).topics[0][1] == ((0, 0), (1, 0), (2, 0))


@pytest.mark.parametrize(("group_id", "topic"), [("", ""), ("g", "t")], ids=["shortest records", "longer ones"])
def test_commit_is_accepted_as_long_as_its_records_fit_into_one_batch(group_id: str, topic: str) -> None:
    h = Harness(GroupConfig(max_record_bytes=1_000))
    h.topics.ids[topic] = NO_TOPIC_ID
    accepted, record_bytes = [], 0
    for count in range(1, 40):
        committed = ((topic, tuple([(each, 1, -1, None) for each in range(count)])),)
        codes = h.send(m.OffsetCommitRequest(group_id, -1, "", None, -1, committed, 9)).response.topics[0][1]
        assert [index for index, _ in codes] == list(range(count))
        (code,) = {code for _, code in codes}
        if code == ErrorCode.NONE:
            accepted.append(count)
            key, value, _ = h.last.records[0]
            record_bytes = RECORD_OVERHEAD_BYTES + len(key) + len(value)
        else:
            assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert accepted == list(range(1, (1_000 - HEADER_BYTES) // record_bytes + 1))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0, 3, 12)))))))
def test_unknown_partitions_come_first_and_each_topic_once(drawn: list[tuple[str, list[tuple[int, int]]]]) -> None:
    flat = [(topic, *each) for topic, codes in drawn for each in codes]
    flat.sort(key=lambda each: each[2] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # stable
    expected = {topic: tuple((index, code) for name, index, code in flat if name == topic) for topic, _, _ in flat}
    assert unknown_first([(topic, tuple(codes)) for topic, codes in drawn]) == tuple(expected.items())
