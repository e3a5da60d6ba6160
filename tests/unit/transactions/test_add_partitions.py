"""AddPartitionsToTxn and AddOffsetsToTxn. Kafka: TransactionCoordinatorTest, AddPartitionsToTxnRequestServerTest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.transactions.harness import GROUP_IN, OFFSETS, START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import (
    AddPartitionsRequest,
    AddPartitionsResponse,
)
from muster_coordinator.transactions.config import TransactionConfig

S = TransactionStatus
AT_REST = TransactionLogValue(7, 4, 60_000, S.COMPLETE_COMMIT, (), START_MS, START_MS - 5)


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize(("version", "client_version"), [(3, 0), (4, 2), (5, 2)])
def test_first_partition_begins_a_transaction(status: S, version: int, client_version: int) -> None:
    """shouldRespondWithSuccessOnAddPartitionsWhenStateIsEmpty, ...CompleteCommit, ...CompleteAbort."""
    harness = Harness()
    harness.put(replace(AT_REST, status=status))
    harness.now_ms += 10
    assert harness.add((7, 4), 2, 1, 2, version=version) == ErrorCode.NONE
    assert harness.value() == TransactionLogValue(
        7, 4, 60_000, S.ONGOING, ((OFFSETS, (1, 2)),), START_MS + 10, START_MS + 10, 7, client_version=client_version
    )


def test_further_partition_joins_the_transaction_and_does_not_prolong_it() -> None:
    """shouldAppendNewMetadataToLogOnAddPartitionsWhenPartitionsAdded."""
    harness = Harness()
    producer = harness.producer()
    harness.add(producer, 2)
    deadline_ms = harness.timers[("transaction", "tx")]
    harness.now_ms += 10
    assert harness.add(producer, 1) == ErrorCode.NONE
    assert harness.value().partitions == ((OFFSETS, (1, 2)),)
    assert (harness.value().start_ms, harness.value().last_update_ms) == (START_MS, START_MS + 10)
    assert harness.timers[("transaction", "tx")] == deadline_ms


def test_partition_that_is_in_the_transaction_is_not_written_again() -> None:
    """shouldRespondWithErrorsNoneOnAddPartitionWhenNoErrorsAndPartitionsTheSame."""
    harness = Harness()
    producer = harness.producer()
    harness.add(producer, 1, 2)
    length = len(harness.log)
    assert harness.add(producer, 2) == ErrorCode.NONE
    assert len(harness.log) == length


@pytest.mark.parametrize("version", [3, 5])
def test_no_transaction_begins_while_they_are_held_and_those_that_are_open_go_on(version: int) -> None:
    """The partitions are about to be others (ADR 28)."""
    harness = Harness()
    first, second = harness.producer("a"), harness.producer("b")
    assert harness.add(first, 1, transactional_id="a", version=version) == ErrorCode.NONE
    harness.topics.holds_transactions = True
    length = len(harness.log)
    assert harness.add(second, 1, transactional_id="b", version=version) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(harness.log) == length
    assert harness.coordinator.open_transactions(3) == (1, ("a",))
    assert harness.add(first, 2, transactional_id="a", version=version) == ErrorCode.NONE
    assert harness.end(first, transactional_id="a")[0] == ErrorCode.NONE
    assert harness.coordinator.open_transactions(3) == (1, ("a",)), "its markers are missing"
    harness.finish()
    assert harness.coordinator.open_transactions(3) == (0, ())
    harness.topics.holds_transactions = False
    assert harness.add(second, 1, transactional_id="b", version=version) == ErrorCode.NONE


def test_open_transactions_are_counted_and_some_of_them_named() -> None:
    harness = Harness()
    for name in ("a", "b", "c", "d"):
        harness.add(harness.producer(name), 1, transactional_id=name)
    harness.producer("at rest")
    assert harness.coordinator.open_transactions(2) == (4, ("d", "c"))


def test_unknown_id_is_an_invalid_mapping() -> None:
    """shouldRespondWithInvalidPidMappingOnAddPartitionsToTransactionWhenTransactionalIdNotPresent."""
    assert Harness().add((7, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_empty_id_is_an_invalid_request() -> None:
    """shouldRespondWithInvalidRequestAddPartitionsToTransactionWhenTransactionalIdIsEmpty."""
    harness = Harness()
    request = AddPartitionsRequest("", 7, 0, ((OFFSETS, (1, 2)),), 3)
    refused = AddPartitionsResponse("", ((OFFSETS, ((1, ErrorCode.INVALID_REQUEST), (2, ErrorCode.INVALID_REQUEST))),))
    assert harness.coordinator.refuse(request) == refused
    assert harness.send(request) == refused


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((8, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((7, 3), ErrorCode.PRODUCER_FENCED),
        ((7, 5), ErrorCode.PRODUCER_FENCED),
    ],
)
@pytest.mark.parametrize("ongoing", [False, True])
def test_other_producer_is_refused(producer: tuple[int, int], code: ErrorCode, ongoing: bool) -> None:
    """shouldRespondWithProducerFencedOnAddPartitionsWhenEpochsAreDifferent."""
    harness = Harness()
    harness.put(AT_REST)
    if ongoing:
        harness.add((7, 4))
    assert harness.add(producer) == code


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_next_transaction_waits_for_the_markers_of_the_one_before(committed: bool, version: int) -> None:
    """shouldRespondWithConcurrentTransactionsOnAddPartitionsWhenStateIsPrepareCommit, ...PrepareAbort: whatever
    producer id and epoch the client has, because its next transaction may have others."""
    harness = Harness()
    producer = harness.producer()
    harness.add(producer)
    _, *following = harness.end(producer, committed, version=version)
    following = following if version == 5 else list(producer)
    for each in (producer, (following[0], following[1]), (99, 0)):
        assert harness.add(each) == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.finish()
    assert harness.add((following[0], following[1])) == ErrorCode.NONE


def test_partition_that_nobody_can_mark_is_refused_and_no_other_is_added() -> None:
    """Kafka answers OPERATION_NOT_ATTEMPTED for the others too (KafkaApis#handleAddPartitionsToTxnRequest)."""
    harness = Harness()
    producer = harness.producer()
    topics = ((OFFSETS, (1, 5)), ("orders", (0, 1)), (OFFSETS, (2, 1)))
    response = harness.send(AddPartitionsRequest("tx", *producer, topics, 5))
    assert response.topics == (
        (
            OFFSETS,
            (
                (1, ErrorCode.OPERATION_NOT_ATTEMPTED),
                (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (2, ErrorCode.OPERATION_NOT_ATTEMPTED),
            ),
        ),
        ("orders", ((0, ErrorCode.INVALID_TOPIC_EXCEPTION), (1, ErrorCode.INVALID_TOPIC_EXCEPTION))),
    )
    assert harness.status() is S.EMPTY


@pytest.mark.parametrize("version", [0, 3])
def test_client_cannot_name_a_partition_of_offsets(version: int) -> None:
    """A broker does not let a client write to an internal topic: AddOffsetsToTxn adds its partitions."""
    harness = Harness()
    producer = harness.producer()
    response = harness.send(AddPartitionsRequest("tx", *producer, ((OFFSETS, (1, 9)),), version))
    assert response.topics == (
        (OFFSETS, ((1, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (9, ErrorCode.TOPIC_AUTHORIZATION_FAILED))),
    )
    assert harness.status() is S.EMPTY


def test_transaction_that_fits_no_record_is_not_written() -> None:
    harness = Harness(TransactionConfig(max_record_bytes=177))
    harness.put(AT_REST)
    assert harness.add((7, 4), *range(5), version=5) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert harness.value() == AT_REST
    assert harness.add((7, 4), *range(3), version=5) == ErrorCode.NONE


# -- AddOffsetsToTxn --------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_are_the_partition_that_it_lives_in() -> None:
    harness = Harness()
    producer = harness.producer()
    assert harness.add_offsets(producer, GROUP_IN[3]) == ErrorCode.NONE
    assert (harness.value().partitions, harness.value().client_version) == (((OFFSETS, (3,)),), 0)


def test_offsets_are_refused_like_partitions() -> None:
    harness = Harness()
    producer = harness.producer()
    assert harness.add_offsets(producer, "g", "other") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.add_offsets((producer[0], 9), "g") == ErrorCode.PRODUCER_FENCED
    assert harness.add_offsets(producer, "g", "") == ErrorCode.INVALID_REQUEST
    harness.add_offsets(producer, "g")
    harness.end(producer)
    assert harness.add_offsets(producer, "g") == ErrorCode.CONCURRENT_TRANSACTIONS


def test_offsets_wait_until_the_pod_knows_the_partitions() -> None:
    harness = Harness()
    producer = harness.producer()
    harness.topics.is_known = False
    assert harness.add_offsets(producer, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- verification -----------------------------------------------------------------------------------------------------


def verify(harness: Harness, producer: tuple[int, int], name: str = "tx") -> dict[int, int]:
    request = AddPartitionsRequest(name, *producer, ((OFFSETS, (1, 2)),), 4, verify_only=True)
    ((topic, codes),) = harness.send(request).topics
    assert topic == OFFSETS
    return dict(codes)


def test_verification_tells_which_partitions_are_in_the_transaction() -> None:
    """shouldReturnTransactionAbortable... for the others, and nothing is added."""
    harness = Harness()
    producer = harness.producer()
    harness.add(producer, 2)
    length = len(harness.log)
    assert verify(harness, producer) == {1: ErrorCode.TRANSACTION_ABORTABLE, 2: ErrorCode.NONE}
    assert len(harness.log) == length


def test_verification_is_refused_for_other_producers_and_while_markers_are_missing() -> None:
    harness = Harness()
    producer = harness.producer()
    assert set(verify(harness, producer, "other").values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert set(verify(harness, (producer[0] + 1, 0)).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert set(verify(harness, (producer[0], 1)).values()) == {ErrorCode.PRODUCER_FENCED}
    harness.add(producer, 2)
    harness.end(producer)
    assert set(verify(harness, producer).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}
