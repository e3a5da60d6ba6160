"""The group side of transactions. Origin: testTxn*, test*TransactionalOffset*, testReplayTransaction* of
GroupCoordinatorTest and OffsetMetadataManagerTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.requests import groups as m
from muster_coordinator.state_machine import Transaction


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_offsets_are_invisible_until_the_commit_marker(h: Harness) -> None:
    """[testBasicFetchTxnOffsets]"""
    assert h.txn_commit(1, offset=50) == ErrorCode.NONE
    assert h.last.transaction == Transaction(1, 0)
    assert (h.offset(), h.coordinator.offset_count) == (-1, 0)
    assert h.end_txn(1, committed=True) == ErrorCode.NONE
    assert h.last.transaction == Transaction(1, 0, True, 0)
    assert (h.offset(), h.coordinator.offset_count) == (50, 1)


def test_aborted_offsets_vanish(h: Harness) -> None:
    """[testFetchTxnOffsetsWithAbort, testFetchPendingTxnOffsetsWithAbort]"""
    h.commit(offset=1)
    h.txn_commit(1, offset=50)
    h.end_txn(1, committed=False)
    assert h.offset() == 1
    assert h.fetch(require_stable=True) == {("t", 0): (1, 0)}


def test_marker_without_pending_offsets_is_ignored(h: Harness) -> None:
    """[testFetchPendingTxnOffsetsIgnoreSpuriousCommit]"""
    h.txn_commit(1, offset=50)
    h.end_txn(1, committed=True)
    h.commit(offset=60)
    h.end_txn(1, committed=True)
    assert h.offset() == 60


def test_one_producer_commits_to_several_groups(h: Harness) -> None:
    """[testFetchTxnOffsetsOneProducerMultipleGroups]"""
    h.txn_commit(1, "a", offset=1)
    h.txn_commit(1, "b", offset=2)
    h.end_txn(1, committed=True)
    assert (h.offset("a"), h.offset("b")) == (1, 2)


def test_several_producers_commit_to_one_group(h: Harness) -> None:
    """[testFetchTxnOffsetsMultipleProducersOneGroup]"""
    h.txn_commit(1, topics=(("t", ((0, 1, -1, ""),)),))
    h.txn_commit(2, topics=(("t", ((1, 2, -1, ""),)),))
    h.end_txn(2, committed=True)
    assert h.fetch(topics=None) == {("t", 1): (2, 0)}
    h.end_txn(1, committed=False)
    assert h.fetch(topics=None, require_stable=True) == {("t", 1): (2, 0)}


def test_later_plain_commit_wins_over_the_transaction(h: Harness) -> None:
    """[ConsumerWins: the record that is later in the log counts, not the marker]"""
    h.txn_commit(1, offset=50)
    h.commit(offset=60)
    h.end_txn(1, committed=True)
    assert h.offset() == 60


def test_transaction_wins_over_an_earlier_plain_commit(h: Harness) -> None:
    """[TransactionWins]"""
    h.commit(offset=60)
    h.txn_commit(1, offset=50)
    h.end_txn(1, committed=True)
    assert h.offset() == 50


def test_pending_offsets_survive_a_reload_and_wait_for_their_marker(h: Harness) -> None:
    """[LoadTransactionalOffsetsWithoutGroup, GroupLoadedWithPendingCommits]"""
    h.txn_commit(1, offset=50)
    h.reload()
    assert h.state() == "Empty"
    assert h.fetch(require_stable=True) == {("t", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    h.end_txn(1, committed=True)
    assert h.offset() == 50


def test_tombstone_takes_pending_offsets_too(h: Harness) -> None:
    """[testReplayTransactionEndMarker after deletion]"""
    h.commit(offset=1)
    h.txn_commit(1, offset=50)
    assert h.delete() == ErrorCode.NONE
    assert len(h.last.records) == 2  # one for the offset, whichever it is, one for the group
    h.end_txn(1, committed=True)
    assert h.offset() == -1
    assert h.group_ids() == []


def test_metadata_too_large_refuses_the_partition(h: Harness) -> None:
    """[testTxnOffsetMetadataTooLarge]"""
    assert h.txn_commit(1, topics=(("t", ((0, 5, -1, "x" * 5_000),)),)) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_member_is_checked_only_if_it_is_named(h: Harness) -> None:
    """[testTxnCommitOffsetWithFencedInstanceId, InvalidMemberId, KnownMemberId, IllegalGeneration, LegalGeneration]"""
    (member,) = h.stable_group()
    assert h.txn_commit(1) == ErrorCode.NONE
    assert h.txn_commit(1, generation_id=1, member_id=member) == ErrorCode.NONE
    assert h.txn_commit(1, generation_id=2, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert h.txn_commit(1, generation_id=1, member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.txn_commit(1, generation_id=1, group_instance_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID


def test_transactional_commit_is_accepted_in_completing(h: Harness) -> None:
    join = h.join_dynamic()
    h.finish_initial_delay()
    assert h.txn_commit(1, generation_id=1, member_id=join.response.member_id) == ErrorCode.NONE


def test_unknown_group_needs_a_negative_generation(h: Harness) -> None:
    assert h.txn_commit(1, generation_id=0, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert h.txn_commit(1) == ErrorCode.NONE
    assert h.txn_commit(1, "") == ErrorCode.INVALID_GROUP_ID


def test_unknown_partition_is_refused(h: Harness) -> None:
    h.topics.missing.add(("t", 0))
    assert h.txn_commit(1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert h.group_ids() == []


def test_marker_of_a_newer_epoch_fences_the_older_one(h: Harness) -> None:
    h.txn_commit(1, producer_epoch=3)
    h.end_txn(1, committed=False, producer_epoch=4)
    assert h.txn_commit(1, producer_epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_an_older_transaction_coordinator_is_fenced(h: Harness) -> None:
    h.txn_commit(1, offset=5)
    assert h.end_txn(1, committed=True, coordinator_epoch=5) == ErrorCode.NONE
    h.txn_commit(1, offset=8)
    assert h.end_txn(1, committed=True, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert h.offset() == 5
    assert h.end_txn(1, committed=True, coordinator_epoch=5) == ErrorCode.NONE
    assert h.offset() == 8


def test_epoch_of_the_producer_not_seen_for_longest_is_forgotten() -> None:
    h = Harness(GroupConfig(max_producers=2))
    for producer_id in (1, 2, 1, 3):
        h.txn_commit(producer_id, producer_epoch=5)
    assert h.txn_commit(1, producer_epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.txn_commit(2, producer_epoch=4) == ErrorCode.NONE


def test_stale_producer_epoch_is_refused(h: Harness) -> None:
    """Reference, section 11"""
    h.txn_commit(1, producer_epoch=3)
    assert h.txn_commit(1, producer_epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.end_txn(1, committed=True, producer_epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    h.reload()
    assert h.txn_commit(1, producer_epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.end_txn(1, committed=True, producer_epoch=3) == ErrorCode.NONE
    assert h.offset() == 5


def test_marker_of_a_transaction_with_its_own_epoch_has_a_higher_one(h: Harness) -> None:
    """[KIP-1228: ProducerStateManagerTest, a late marker of the transaction before]"""
    h.txn_commit(1, producer_epoch=4)
    assert h.end_txn(1, committed=True, producer_epoch=4, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.end_txn(1, committed=True, producer_epoch=3, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.offset() == -1
    assert h.end_txn(1, committed=True, producer_epoch=5, transaction_version=2) == ErrorCode.NONE
    assert h.offset() == 5
    assert h.txn_commit(1, producer_epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_that_does_not_say_its_transaction_version_is_refused(h: Harness) -> None:
    h.txn_commit(1)
    assert h.end_txn(1, committed=True, transaction_version=-1) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.fetch(require_stable=True) == {("t", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}


def test_marker_of_such_a_transaction_may_be_repeated_until_the_next_one_begins(h: Harness) -> None:
    """[KAFKA-19999]"""
    h.txn_commit(1, producer_epoch=4)
    assert h.end_txn(1, committed=True, producer_epoch=5, transaction_version=2) == ErrorCode.NONE
    assert h.end_txn(1, committed=True, producer_epoch=5, transaction_version=2) == ErrorCode.NONE
    h.txn_commit(1, producer_epoch=5, offset=9)
    assert h.end_txn(1, committed=True, producer_epoch=5, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    h.reload()
    assert h.end_txn(1, committed=True, producer_epoch=5, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert h.end_txn(1, committed=False, producer_epoch=6, transaction_version=2) == ErrorCode.NONE
    assert h.offset() == 5


# -- DescribeProducers ------------------------------------------------------------------------------------------------


def producers(h: Harness) -> tuple[m.OpenProducer, ...]:
    response = h.send(m.DescribeProducersRequest()).response
    assert isinstance(response, m.DescribeProducersResponse)
    assert response.error_code == ErrorCode.NONE
    return response.producers


def test_producers_with_an_open_transaction_are_described(h: Harness) -> None:
    assert producers(h) == ()
    h.txn_commit(2, "a")
    first = len(h.log) - 1
    began_ms = h.now_ms
    h.advance(1000)
    h.txn_commit(7, producer_epoch=3)
    second = len(h.log) - 1
    h.txn_commit(2, "b")
    assert producers(h) == (
        m.OpenProducer(2, 0, began_ms + 1000, -1, first),
        m.OpenProducer(7, 3, began_ms + 1000, -1, second),
    )


def test_producer_whose_transaction_has_ended_is_not_described(h: Harness) -> None:
    h.txn_commit(2)
    h.txn_commit(3)
    h.end_txn(2, committed=True, coordinator_epoch=4)
    h.end_txn(3, committed=False)
    assert producers(h) == ()
    h.txn_commit(2)
    assert [(each.producer_id, each.coordinator_epoch) for each in producers(h)] == [(2, 4)]


def test_first_record_of_a_producer_that_is_still_pending_counts(h: Harness) -> None:
    h.txn_commit(2)
    h.txn_commit(2)
    assert [each.start_offset for each in producers(h)] == [len(h.log) - 1]


@pytest.mark.parametrize(
    ("api_version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_commit_with_generation_to_unknown_group(h: Harness, api_version: int, code: ErrorCode) -> None:
    """Version 6 is of Kafka 4.4, KIP-1319."""
    assert h.txn_commit(7, generation_id=3, member_id="m", api_version=api_version) == code
    assert h.txn_commit(7, api_version=api_version) == ErrorCode.NONE, "an unknown group is made by a simple commit"
