"""EndTxn in both transaction versions. Kafka: TransactionCoordinatorTest; TransactionMetadataTest for its epochs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.transactions.harness import FIRST_ID, OFFSETS, START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import EndTxnRequest, EndTxnResponse
from muster_coordinator.transactions.config import TransactionConfig

S = TransactionStatus
E = ErrorCode
MAX = 0x7FFF
PARTITIONS = ((OFFSETS, (1,)),)
ONGOING = TransactionLogValue(7, 4, 60_000, S.ONGOING, PARTITIONS, START_MS, START_MS)
COMPLETE = replace(ONGOING, status=S.COMPLETE_COMMIT, partitions=())
NOBODY = (-1, -1)


def at(value: TransactionLogValue) -> Harness:
    harness = Harness()
    harness.put(value)
    return harness


@pytest.mark.parametrize(("version", "epoch", "answer"), [(4, 4, NOBODY), (5, 5, (7, 5))])
@pytest.mark.parametrize("committed", [True, False])
def test_decision_is_one_record_and_the_answer_does_not_wait_for_markers(
    version: int, epoch: int, answer: tuple[int, int], committed: bool
) -> None:
    """shouldAppendPrepareCommitToLogOnEndTxnWhenStatusIsOngoingAndResultIsCommit, ...Abort."""
    harness = at(ONGOING)
    harness.now_ms += 10
    assert harness.end((7, 4), committed, version=version) == (E.NONE, *answer)
    assert harness.value() == TransactionLogValue(
        7,
        epoch,
        60_000,
        S.PREPARE_COMMIT if committed else S.PREPARE_ABORT,
        PARTITIONS,
        START_MS + 10,
        START_MS,
        7,
        client_version=2 if version == 5 else 0,
    )
    harness.finish()
    assert harness.status() is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
    assert harness.value().partitions == ()
    counts = harness.coordinator.event_counts
    assert (counts["transactions_committed"], counts["transactions_aborted"]) == (committed, not committed)


@pytest.mark.parametrize("version", [4, 5])
def test_producer_that_is_not_the_ids_is_refused(version: int) -> None:
    """shouldReplyWithInvalidPidMappingOnEndTxnWhenTxnIdDoesntExist, ...WhenPidDosentMatchMapped;
    shouldReplyWithProducerFencedOnEndTxnWhenEpochIsNotSameAsTransaction."""
    harness = at(ONGOING)
    refused = {
        (7, 3): E.PRODUCER_FENCED,
        (7, 5): E.PRODUCER_FENCED,
        (8, 4): E.INVALID_PRODUCER_ID_MAPPING,
    }
    for producer, code in refused.items():
        assert harness.end(producer, version=version) == (code, *NOBODY)
    assert harness.end((7, 4), transactional_id="x", version=version) == (E.INVALID_PRODUCER_ID_MAPPING, *NOBODY)
    assert harness.value() == ONGOING


def test_empty_id_is_an_invalid_request() -> None:
    """shouldRespondWithInvalidRequestOnEndTxnWhenTransactionalIdIsEmpty."""
    harness = Harness()
    request = EndTxnRequest("", 7, 4, True, 5)
    assert harness.coordinator.refuse(request) == EndTxnResponse(E.INVALID_REQUEST)
    assert harness.send(request) == EndTxnResponse(E.INVALID_REQUEST)


# -- version 1: the producer keeps its epoch --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "committed", "code"),
    [
        (S.EMPTY, True, E.INVALID_TXN_STATE),
        (S.EMPTY, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, True, E.NONE),  # shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit
        (S.COMPLETE_COMMIT, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, E.NONE),  # shouldReturnOkOnEndTxnWhenStatusIsCompleteAbortAndResultIsAbort
    ],
)
def test_v1_without_a_transaction(status: S, committed: bool, code: ErrorCode) -> None:
    """...and shouldReturnInvalidTxnRequestOnEndTxnRequestWhenStatusIsCompleteCommitAndResultIsNotCommit, ...Abort."""
    value = replace(COMPLETE, status=status, start_ms=-1)
    harness = at(value)
    assert harness.end((7, 4), committed) == (code, *NOBODY)
    assert harness.value() == value


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_v1_waits_for_markers(decided: bool, asked: bool) -> None:
    """shouldReturnConcurrentTxnRequestOnEndTxnRequestWhenStatusIsPrepareCommit."""
    harness = at(ONGOING)
    harness.end((7, 4), decided)
    assert harness.end((7, 4), asked) == (E.CONCURRENT_TRANSACTIONS, *NOBODY)
    harness.finish()
    assert harness.end((7, 4), asked)[0] == (E.NONE if asked is decided else E.INVALID_TXN_STATE)


def test_v1_transactions_follow_each_other_in_one_epoch() -> None:
    harness = Harness()
    producer = harness.producer()
    for number in range(3):
        harness.add(producer, number)
        assert harness.end(producer)[0] == E.NONE
        harness.finish()
    assert {asked.producer_epoch for asked in harness.writer.asked} == {producer[1]}


# -- version 2: each transaction has an epoch of its own (KIP-890) ----------------------------------------------------


def test_v2_transactions_each_end_in_the_next_epoch() -> None:
    harness = Harness()
    producer = harness.producer()
    for number in range(3):
        assert harness.add(producer, number, version=5) == E.NONE
        code, *following = harness.end(producer, version=5)
        assert (code, following) == (E.NONE, [producer[0], producer[1] + 1])
        producer = (following[0], following[1])
        harness.finish()
        assert harness.writer.asked[-1].producer_epoch == producer[1]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_v2_answer_that_was_lost_can_be_asked_for_again(committed: bool, again: bool) -> None:
    """With the epoch before; the other decision is refused."""
    harness = at(ONGOING)
    harness.end((7, 4), committed, version=5)
    assert harness.end((7, 4), again, version=5) == (E.CONCURRENT_TRANSACTIONS, *NOBODY)
    harness.finish()
    harness.reload()
    expected = (E.NONE, 7, 5) if again is committed else (E.INVALID_TXN_STATE, *NOBODY)
    assert harness.end((7, 4), again, version=5) == expected


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_v2_abort_before_the_first_partition_only_moves_the_epoch(status: S) -> None:
    """A client that does not know whether its partitions were added may abort; there is nothing to mark."""
    harness = at(replace(COMPLETE, status=status))
    harness.now_ms += 10
    assert harness.end((7, 4), committed=False, version=5) == (E.NONE, 7, 5)
    assert harness.value() == TransactionLogValue(
        7, 5, 60_000, S.COMPLETE_ABORT, (), START_MS + 10, START_MS + 10, 7, client_version=2
    )
    harness.advance(10_000)
    assert harness.writer.asked == []


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_v2_commit_before_the_first_partition_is_refused(status: S) -> None:
    harness = at(replace(COMPLETE, status=status))
    assert harness.end((7, 4), version=5) == (E.INVALID_TXN_STATE, *NOBODY)


@pytest.mark.parametrize("status", [S.EMPTY, S.ONGOING])
def test_v2_epoch_before_is_fenced_where_nothing_was_ended(status: S) -> None:
    harness = at(replace(ONGOING, status=status, partitions=PARTITIONS if status is S.ONGOING else ()))
    assert harness.end((7, 3), version=5) == (E.PRODUCER_FENCED, *NOBODY)


@pytest.mark.parametrize("committed", [True, False])
def test_v2_producer_that_a_producer_of_version_1_has_fenced_is_not_told_of_the_others_end(committed: bool) -> None:
    """The second instance had its transaction in the next epoch, and keeps that. Kafka 4.3 takes this for a repetition,
    and gives the first one the epoch of the second."""
    harness = at(replace(COMPLETE, client_version=2))
    assert harness.init().producer_epoch == 5
    assert harness.add((7, 5), version=3) == E.NONE
    assert harness.end((7, 5), committed, version=4)[0] == E.NONE
    harness.finish()
    for asked in (True, False):
        assert harness.end((7, 4), asked, version=5) == (E.PRODUCER_FENCED, *NOBODY)


def test_v2_waits_for_markers_whatever_the_producer_says() -> None:
    """It may be at its next transaction already, with another epoch or producer id."""
    harness = at(ONGOING)
    harness.end((7, 4), version=5)
    for producer in ((7, 4), (7, 5), (8, 0)):
        assert harness.end(producer, committed=False, version=5) == (E.CONCURRENT_TRANSACTIONS, *NOBODY)


def test_v2_transaction_in_the_last_epoch_ends_with_another_producer_id() -> None:
    """testEpochBumpOnEndTxnOverflow; the new id outlives an election between decision and markers."""
    harness = at(replace(ONGOING, producer_epoch=MAX - 1))
    assert harness.end((7, MAX - 1), version=5) == (E.NONE, FIRST_ID, 0)
    assert (harness.value().producer_id, harness.value().producer_epoch) == (7, MAX)
    harness.reload()
    harness.finish()
    asked = harness.writer.asked[-1]
    assert (asked.producer_id, asked.producer_epoch) == (7, MAX)
    assert harness.add((FIRST_ID, 0), version=5) == E.NONE


def test_v2_answer_with_another_producer_id_can_be_asked_for_again() -> None:
    harness = at(replace(ONGOING, producer_epoch=MAX - 1))
    harness.end((7, MAX - 1), version=5)
    harness.finish()
    harness.reload()
    assert harness.end((7, MAX - 1), version=5) == (E.NONE, FIRST_ID, 0)
    assert harness.end((7, MAX - 1), committed=False, version=5) == (E.INVALID_TXN_STATE, *NOBODY)
    assert harness.end((7, MAX - 2), version=5) == (E.INVALID_PRODUCER_ID_MAPPING, *NOBODY)
    harness.add((FIRST_ID, 0), version=5)
    assert harness.end((7, MAX - 1), version=5)[0] != E.NONE


def test_v2_call_of_long_ago_is_not_taken_for_a_repetition() -> None:
    """The log of a broker may name the producer id of earlier transactions."""
    harness = at(replace(COMPLETE, previous_producer_id=6))
    assert harness.end((6, MAX - 1), version=5) == (E.INVALID_PRODUCER_ID_MAPPING, *NOBODY)


def test_producer_of_version_1_is_fenced_once_version_2_has_moved_its_epoch() -> None:
    harness = at(ONGOING)
    harness.end((7, 4), version=5)
    harness.finish()
    assert harness.end((7, 4), version=4) == (E.PRODUCER_FENCED, *NOBODY)


def test_record_that_fits_no_batch_ends_nothing() -> None:
    harness = Harness(TransactionConfig(max_record_bytes=160))
    harness.put(ONGOING)
    assert harness.end((7, 4))[0] == E.NONE
    harness = Harness(TransactionConfig(max_record_bytes=120))
    harness.put(ONGOING)
    for version in (4, 5):
        assert harness.end((7, 4), version=version) == (E.UNKNOWN_SERVER_ERROR, *NOBODY)
    assert harness.value() == ONGOING
