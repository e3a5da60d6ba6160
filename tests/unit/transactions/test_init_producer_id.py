"""InitProducerId. Kafka: TransactionCoordinatorTest, and the epoch rows of TransactionMetadataTest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.transactions.harness import FIRST_ID, START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import InitProducerIdRequest, InitProducerIdResponse
from muster_coordinator.transactions.config import TransactionConfig

S = TransactionStatus
MAX = 0x7FFF
AT_REST = TransactionLogValue(7, 4, 60_000, S.COMPLETE_COMMIT, (), START_MS, START_MS - 5)


def test_new_id_starts_at_epoch_0() -> None:
    """shouldInitPidWithEpochZeroForNewTransactionalId."""
    harness = Harness()
    assert harness.init() == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 0)
    assert harness.value() == TransactionLogValue(FIRST_ID, 0, 60_000, S.EMPTY, (), START_MS, -1, FIRST_ID)


def test_producer_without_a_transactional_id_gets_ids_and_leaves_nothing_behind() -> None:
    """shouldAcceptInitPidAndReturnNextPidWhenTransactionalIdIsNull."""
    harness = Harness()
    assert [harness.init(None, timeout_ms=-5) for _ in range(2)] == [
        InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 0),
        InitProducerIdResponse(ErrorCode.NONE, FIRST_ID + 1, 0),
    ]
    assert harness.coordinator.durable_state().ids == {}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest("", 60_000), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("tx", 60_000, 5, -1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("tx", 60_000, -1, 5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, 60_000, -1, 5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("tx", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("tx", -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("tx", 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_request_that_is_wrong_in_itself_is_refused_in_any_state(
    request_: InitProducerIdRequest, code: ErrorCode
) -> None:
    """shouldReturnInvalidRequestWhenTransactionalIdIsEmpty; a time-out above transaction.max.timeout.ms."""
    harness = Harness()
    assert harness.coordinator.refuse(request_) == InitProducerIdResponse(code)
    assert harness.send(request_) == InitProducerIdResponse(code)
    assert harness.log == []


def test_longest_time_out_is_taken() -> None:
    assert Harness().init(timeout_ms=900_000).error_code == ErrorCode.NONE


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_next_producer_gets_the_next_epoch_and_its_own_time_out(status: S) -> None:
    """shouldIncrementEpochAndUpdateMetadataOnHandleInitPidWhenExistingEmptyTransaction and ...CompleteTransaction."""
    harness = Harness()
    harness.put(replace(AT_REST, status=status))
    harness.now_ms += 10
    assert harness.init(timeout_ms=30_000) == InitProducerIdResponse(ErrorCode.NONE, 7, 5)
    assert harness.value() == TransactionLogValue(7, 5, 30_000, S.EMPTY, (), START_MS + 10, -1, 7)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_producer_waits_for_the_markers_of_the_transaction_before(committed: bool, version: int) -> None:
    """shouldWaitForCommitToCompleteOnHandleInitPidAndExistingTransactionInPrepareCommitState, ...PrepareAbortState."""
    harness = Harness()
    producer = harness.producer()
    harness.add(producer)
    harness.end(producer, committed, version=version)
    assert harness.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.init(producer=(producer[0], 99)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.finish()
    assert harness.init().error_code == ErrorCode.NONE


def test_second_producer_aborts_the_transaction_of_the_first_and_fences_it() -> None:
    """shouldAbortTransactionOnHandleInitPidWhenExistingTransactionInOngoingState. The transaction ends in the epoch
    after that of its producer (KAFKA-19367)."""
    harness = Harness()
    first = harness.producer()
    harness.add(first, 2, 4)
    assert harness.init() == InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert (harness.status(), harness.value().producer_epoch) == (S.PREPARE_ABORT, first[1] + 1)
    assert harness.end(first)[0] == ErrorCode.PRODUCER_FENCED
    harness.advance()
    assert harness.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    (asked,) = harness.writer.asked
    assert (asked.producer_epoch, asked.committed) == (first[1] + 1, False)
    harness.marked()
    assert harness.init() == InitProducerIdResponse(ErrorCode.NONE, first[0], first[1] + 2)
    assert harness.add(first) == ErrorCode.PRODUCER_FENCED


def test_fence_of_a_lost_leader_is_repeated_in_the_same_epoch() -> None:
    """shouldNotRepeatedlyBumpEpochDueToInitPidDuringOngoingTxnIfAppendToLogFails."""
    harness = Harness()
    first = harness.producer()
    harness.add(first)
    for _ in range(3):
        assert harness.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        harness.lose_records(1)
        assert (harness.status(), harness.value().producer_epoch) == (S.ONGOING, first[1])


# -- a producer that says which id and epoch it has (KIP-360) ---------------------------------------------------------


def test_producer_continues_in_the_next_epoch() -> None:
    """testInitProducerIdWithCurrentEpochProvided; testEpochBumpWithCurrentEpochProvided."""
    harness = Harness()
    producer = harness.producer()
    assert harness.init(producer=producer) == InitProducerIdResponse(ErrorCode.NONE, producer[0], 1)


def test_producer_whose_answer_was_lost_gets_the_same_epoch_again() -> None:
    """testInitProducerIdWithCurrentEpochProvided (the retry); testAttemptedEpochBumpWithLastEpoch."""
    harness = Harness()
    producer = harness.producer()
    for _ in range(3):
        assert harness.init(producer=producer) == InitProducerIdResponse(ErrorCode.NONE, producer[0], 1)
    assert harness.add((producer[0], 1)) == ErrorCode.NONE


def test_producer_is_fenced_by_a_newer_one() -> None:
    """testInitProducerIdStaleCurrentEpochProvided; testAttemptedEpochBumpWithFencedEpoch."""
    harness = Harness()
    first = harness.producer()
    harness.producer()
    assert harness.init(producer=first) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)


def test_repetition_ends_when_another_producer_comes() -> None:
    harness = Harness()
    first = harness.producer()
    harness.init(producer=first)
    assert harness.producer() == (first[0], 2)
    assert harness.init(producer=first) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("again", ["another pod", "the same pod"])
def test_repetition_is_not_known_to_the_next_leader(again: str) -> None:
    """Kafka does not write the last epoch to the log: the producer is fenced, and no two get one epoch."""
    harness = Harness()
    producer = harness.producer()
    harness.init(producer=producer)
    if again == "another pod":
        harness.reload()
    else:
        harness.lead_again()
    assert harness.init(producer=producer) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)


def test_producer_with_a_foreign_id_is_fenced() -> None:
    """testFenceProducerWhenMappingExistsWithDifferentProducerId."""
    harness = Harness()
    harness.producer()
    assert harness.init(producer=(99, 0)) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)


def test_producer_whose_transactional_id_has_expired_begins_anew() -> None:
    """testInitProducerIdWithNoLastProducerData; testAttemptedEpochBumpWithNewlyCreatedMetadata."""
    harness = Harness()
    assert harness.init(producer=(99, 12)) == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 0)


# -- epochs that are used up ------------------------------------------------------------------------------------------


def test_producer_id_is_replaced_when_its_epochs_are_used_up() -> None:
    """shouldGenerateNewProducerIdIfEpochsExhausted; testRotateProducerId."""
    harness = Harness()
    harness.put(replace(AT_REST, producer_epoch=MAX - 2))
    assert harness.init() == InitProducerIdResponse(ErrorCode.NONE, 7, MAX - 1)
    assert harness.init() == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 0)
    assert harness.value().previous_producer_id == 7


def test_producer_that_has_the_last_epoch_may_repeat_the_call_that_gave_it_a_new_id() -> None:
    """testRetryInitProducerIdAfterProducerIdRotation, testInitProducerIdWithInvalidEpochAfterProducerIdRotation."""
    harness = Harness()
    harness.put(replace(AT_REST, producer_epoch=MAX - 1))
    assert harness.init(producer=(7, MAX - 1)) == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 0)
    for epoch in (MAX - 2, 0):
        assert harness.init(producer=(7, epoch)) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)
    assert harness.init(producer=(7, MAX - 1)) == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 0)
    assert harness.init() == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 1)
    assert harness.init(producer=(7, MAX - 1)) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)


def test_bump_to_the_last_epoch_may_be_repeated() -> None:
    """Kafka throws here (prepareIncrementProducerEpoch) and answers UNKNOWN_SERVER_ERROR."""
    harness = Harness()
    harness.put(replace(AT_REST, producer_epoch=MAX - 2))
    for _ in range(2):
        assert harness.init(producer=(7, MAX - 2)) == InitProducerIdResponse(ErrorCode.NONE, 7, MAX - 1)
    assert harness.init(producer=(7, MAX - 3)) == InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)


def test_transaction_in_the_last_epoch_can_be_fenced() -> None:
    """shouldUseLastEpochToFenceWhenEpochsAreExhausted: no client has that epoch, and the id is replaced with it."""
    harness = Harness()
    harness.put(replace(AT_REST, producer_epoch=MAX - 1))
    assert harness.add((7, MAX - 1)) == ErrorCode.NONE
    assert harness.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (harness.value().producer_epoch, harness.value().next_producer_id) == (MAX, FIRST_ID)
    harness.reload()
    harness.finish()
    assert harness.init() == InitProducerIdResponse(ErrorCode.NONE, FIRST_ID, 1)


# -- limits -----------------------------------------------------------------------------------------------------------


def test_partition_takes_so_many_ids_and_no_more() -> None:
    harness = Harness(TransactionConfig(max_transactional_ids=2))
    assert [harness.init(name).error_code for name in ("a", "b", "c", "a")] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NONE,
    ]


def test_record_that_fits_no_batch_is_not_written() -> None:
    harness = Harness(TransactionConfig(max_record_bytes=1_000))
    assert harness.init("t" * 1_000) == InitProducerIdResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert harness.log == []
    assert harness.producer() == (FIRST_ID + 1, 0)
