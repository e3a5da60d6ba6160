"""Offset commits and fetches of members of consumer groups. Source: ConsumerGroupTest, reference of Kafka 4.3."""

from __future__ import annotations

import pytest
from tests.unit.groups.consumer.consumer_harness import ConsumerHarness, id_of

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.offset_checks import commit_error, fetch_error
from muster_coordinator.records.consumer_group import (
    MEMBER_TYPE,
    ClassicMemberMetadata,
    ConsumerGroupMemberValue,
    ConsumerGroupRecord,
)

T = id_of("t")


@pytest.fixture
def h() -> ConsumerHarness:
    """`a` has partition 0 from epoch 2 on, `b` partition 1 from epoch 3 on; both are at epoch 3."""
    h = ConsumerHarness(t=2)
    h.join("a", "t")
    h.join("b", "t")
    h.beat("a", 2)
    h.beat("a", 2, topic_partitions=((T, (0,)),))
    h.beat("b", 3)
    return h


def commit(h: ConsumerHarness, member_id: str, epoch: int, *partitions: int, version: int = 9) -> int:
    return commit_error(h.group, member_id, None, epoch, [(T, each) for each in partitions], version)


def test_commit_needs_a_member_and_its_epoch(h: ConsumerHarness) -> None:
    assert commit(h, "a", 3, 0, 1) == ErrorCode.NONE
    assert commit(h, "x", 3, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(h, "a", 4, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(h, "a", -1, 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(h, "", -1, 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_older_epoch_is_good_for_what_the_member_has_had_since_then(h: ConsumerHarness) -> None:
    """KIP-1251: one partition that it has not refuses all."""
    assert commit(h, "a", 2, 0) == ErrorCode.NONE
    assert commit(h, "a", 2, 0, 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(h, "a", 1, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(h, "b", 2, 1) == ErrorCode.STALE_MEMBER_EPOCH


def test_partition_that_is_to_be_given_back_may_be_committed_still(h: ConsumerHarness) -> None:
    h.join("c", "t")
    h.topics.change("t", 1)
    h.beat("b", 3)
    assert T in h.group.current_of("b").pending_revocation
    assert commit(h, "b", 3, 1) == ErrorCode.NONE


def test_member_must_say_its_epoch_in_a_version_that_has_one(h: ConsumerHarness) -> None:
    assert commit(h, "a", 3, 0, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit_error(h.group, "a", None, 3, [], 3, is_transactional=True) == ErrorCode.NONE


def test_transaction_needs_no_member_but_refuses_a_wrong_epoch(h: ConsumerHarness) -> None:
    assert commit_error(h.group, "", None, -1, [(T, 0)], 3, is_transactional=True) == ErrorCode.NONE
    for version, error in ((5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)):
        assert commit_error(h.group, "a", None, 9, [(T, 0)], version, is_transactional=True) == error
        assert commit_error(h.group, "b", None, 2, [(T, 1)], version, is_transactional=True) == error
    assert commit_error(h.group, "x", None, 3, [(T, 0)], 3, is_transactional=True) == ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_group_takes_commits_of_no_member(h: ConsumerHarness) -> None:
    h.leave("a")
    h.leave("b")
    assert commit(h, "", -1, 0) == ErrorCode.NONE
    assert commit(h, "a", 3, 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_member_has_generations(h: ConsumerHarness) -> None:
    classic = ConsumerGroupMemberValue(None, None, "c", "/h", ("t",), "", 1, None, ClassicMemberMetadata(1, ()))
    h.group.replay(ConsumerGroupRecord(MEMBER_TYPE, "g", "a", classic))
    assert commit(h, "a", 4, 0, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert commit(h, "a", 3, 0, version=8) == ErrorCode.NONE
    assert fetch_error(h.group, "a", 4) == ErrorCode.ILLEGAL_GENERATION


def test_fetch_needs_the_epoch_of_the_member_that_it_names(h: ConsumerHarness) -> None:
    assert fetch_error(h.group, None, -1) == ErrorCode.NONE
    assert fetch_error(h.group, "a", 3) == ErrorCode.NONE
    assert fetch_error(h.group, "a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_error(h.group, "x", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_error(h.group, None, 3) == ErrorCode.UNKNOWN_MEMBER_ID
