"""How one state of a transactional id follows from another. Kafka: TransactionMetadataTest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.unit.transactions.harness import OFFSETS, START_MS

from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.transactions.states import PREPARED, IllegalTransitionError, TransactionEvent
from muster_coordinator.transactions.transitions import MAX_EPOCH, completed, initialised, prepared, with_partitions

S = TransactionStatus
PARTITIONS = ((OFFSETS, (1, 3)),)
EARLIER_MS = START_MS - 1
Step = Callable[[TransactionLogValue], TransactionLogValue]


def value(status: TransactionStatus, **changes: object) -> TransactionLogValue:
    """One that began a while before its last record."""
    partitions = PARTITIONS if status in (S.ONGOING, *PREPARED) else ()
    start_ms = -1 if status is S.EMPTY else START_MS - 1000
    return replace(TransactionLogValue(7, 4, 60_000, status, partitions, START_MS, start_ms), **changes)


def begins(epoch: int = 5) -> Step:
    return lambda before: initialised(before, 7, epoch, 30_000, EARLIER_MS)


def ends(event: TransactionEvent, version: int) -> Step:
    return lambda before: prepared(before, event, version, -1, EARLIER_MS)


# name, state before, step, state after, start afterwards
STEPS = {
    "epoch bump": (S.EMPTY, begins(), S.EMPTY, -1),
    "another producer id": (S.EMPTY, lambda v: initialised(v, 8, 0, 30_000, EARLIER_MS), S.EMPTY, -1),
    "first partition": (S.EMPTY, lambda v: with_partitions(v, PARTITIONS, 0, EARLIER_MS), S.ONGOING, EARLIER_MS),
    "further one": (S.ONGOING, lambda v: with_partitions(v, PARTITIONS, 2, EARLIER_MS), S.ONGOING, START_MS - 1000),
    "commit": (S.ONGOING, ends(TransactionEvent.COMMIT, 0), S.PREPARE_COMMIT, START_MS - 1000),
    "abort": (S.ONGOING, ends(TransactionEvent.ABORT, 2), S.PREPARE_ABORT, START_MS - 1000),
    "abort of nothing": (S.EMPTY, ends(TransactionEvent.ABORT_OF_NOTHING, 2), S.PREPARE_ABORT, EARLIER_MS),
    "committed": (S.PREPARE_COMMIT, lambda v: completed(v, EARLIER_MS), S.COMPLETE_COMMIT, START_MS - 1000),
    "aborted": (S.PREPARE_ABORT, lambda v: completed(v, EARLIER_MS), S.COMPLETE_ABORT, START_MS - 1000),
}


@pytest.mark.parametrize("name", STEPS)
def test_clock_that_goes_back_is_written_as_it_is(name: str) -> None:
    """testTolerateUpdateTimeShift..., testTolerateTimeShift...: no step waits for the time of the record before."""
    status, step, expected, start_ms = STEPS[name]
    after = step(value(status))
    assert (after.status, after.last_update_ms, after.start_ms) == (expected, EARLIER_MS, start_ms)


@pytest.mark.parametrize("status", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_producer_cannot_be_replaced_in_the_middle_of_a_transaction(status: TransactionStatus) -> None:
    """testRotateProducerIdIn...State: a defect, whatever a handler thinks."""
    with pytest.raises(IllegalTransitionError, match="INITIALISED in state"):
        begins()(value(status))


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("event", [TransactionEvent.COMMIT, TransactionEvent.ABORT])
def test_transaction_that_is_not_there_cannot_be_ended(status: TransactionStatus, event: TransactionEvent) -> None:
    """testInvalidTransitionFromComplete...ToFence."""
    with pytest.raises(IllegalTransitionError, match=f"{event.name} in state"):
        ends(event, 2)(value(status))


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_abort_of_nothing_takes_the_next_epoch_and_begins_and_ends_now(status: TransactionStatus) -> None:
    """testTransitFrom...ToPrepareAbortInV2."""
    after = ends(TransactionEvent.ABORT_OF_NOTHING, 2)(value(status))
    assert (after.producer_id, after.producer_epoch, after.start_ms, after.partitions) == (7, 5, EARLIER_MS, ())


def test_last_epoch_does_not_overflow() -> None:
    """testFenceProducerNotAllowedIfItWouldOverflow: the transaction ends in it, and another producer id goes on."""
    last = value(S.ONGOING, producer_epoch=MAX_EPOCH)
    fenced = prepared(last, TransactionEvent.ABORT, 2, 9, START_MS)
    assert (fenced.producer_id, fenced.producer_epoch, fenced.next_producer_id) == (7, MAX_EPOCH, 9)
    after = completed(fenced, START_MS)
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (9, 0, 7)


def test_version_1_ends_a_transaction_in_its_epoch() -> None:
    committed = completed(ends(TransactionEvent.COMMIT, 0)(value(S.ONGOING)), START_MS)
    assert (committed.producer_id, committed.producer_epoch, committed.client_version) == (7, 4, 0)


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_producer_that_begins_has_no_partitions_and_no_start(status: TransactionStatus) -> None:
    """shouldThrowExceptionWriteInvalidTxn: Kafka writes no partitions in state Empty, and refuses to lose some."""
    after = begins()(value(status, partitions=PARTITIONS))
    assert (after.status, after.partitions, after.start_ms) == (S.EMPTY, (), -1)
