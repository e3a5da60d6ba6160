"""What time does: transactions that take too long are aborted, ids that are not used are forgotten. Kafka:
TransactionCoordinatorTest (shouldAbortExpiredTransactions...), TransactionStateManagerTest (...Expired...)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.transactions.harness import FIRST_ID, OFFSETS, START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.transitions import MAX_EPOCH

S = TransactionStatus
HOUR_MS = 3_600_000
WEEK_MS = 604_800_000
ONGOING = TransactionLogValue(7, 4, 60_000, S.ONGOING, ((OFFSETS, (1,)),), START_MS, START_MS)


def test_transaction_is_aborted_when_its_time_is_over_and_its_producer_is_fenced() -> None:
    """shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch."""
    harness = Harness()
    producer = harness.producer(timeout_ms=10_000)
    harness.add(producer)
    harness.advance(9_999)
    assert harness.status() is S.ONGOING
    harness.advance(1)
    assert (harness.status(), harness.value().producer_epoch) == (S.PREPARE_ABORT, producer[1] + 1)
    assert harness.end(producer)[0] == ErrorCode.PRODUCER_FENCED
    (asked,) = harness.writer.asked
    assert (asked.committed, asked.producer_epoch) == (False, producer[1] + 1)
    harness.marked()
    assert harness.status() is S.COMPLETE_ABORT
    counts = harness.coordinator.event_counts
    assert (counts["transactions_timed_out"], counts["transactions_aborted"]) == (1, 1)


def test_transaction_in_the_last_epoch_that_times_out_goes_on_with_another_producer_id() -> None:
    """shouldHandleTimeoutAtEpochOverflowBoundaryCorrectly...: its producer learns that from whatever it asks next."""
    last = (7, MAX_EPOCH - 1)
    for ask in ("end", "init"):
        harness = Harness()
        harness.put(replace(ONGOING, status=S.EMPTY, partitions=(), start_ms=-1, producer_epoch=last[1]))
        assert harness.add(last, version=5) == ErrorCode.NONE
        harness.advance(60_000)
        assert (harness.status(), harness.value().producer_epoch) == (S.PREPARE_ABORT, MAX_EPOCH)
        harness.marked()
        new = (ErrorCode.NONE, FIRST_ID, 0)
        if ask == "end":
            assert harness.end(last, committed=False, version=5) == new
            assert harness.end(last, committed=True, version=5)[0] == ErrorCode.INVALID_TXN_STATE
        else:
            response = harness.init(producer=last)
            assert (response.error_code, response.producer_id, response.producer_epoch) == new
        assert harness.add(last, version=5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_producer_continues_after_its_transaction_has_timed_out() -> None:
    harness = Harness()
    producer = harness.producer(timeout_ms=10_000)
    harness.add(producer)
    harness.advance(10_000)
    harness.marked()
    response = harness.init(producer=producer)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, producer[1] + 1)


def test_transaction_that_has_ended_does_not_time_out() -> None:
    """shouldNotAbortExpiredTransactionsThatHaveAPendingStateTransition."""
    harness = Harness()
    producer = harness.producer(timeout_ms=10_000)
    harness.add(producer)
    harness.end(producer)
    harness.finish()
    length = len(harness.log)
    harness.advance(HOUR_MS)
    assert len(harness.log) == length


@pytest.mark.parametrize("passed_ms", [0, 59_999, 60_000, 90_000])
def test_next_leader_goes_on_with_the_time_that_is_left(passed_ms: int) -> None:
    harness = Harness()
    harness.put(ONGOING)
    harness.timers.clear()
    harness.now_ms += passed_ms
    harness.reload()
    left_ms = max(0, 60_000 - passed_ms)
    harness.advance(max(0, left_ms - 1))
    assert (harness.status() is S.ONGOING) is (left_ms > 0)
    harness.advance(1)
    assert harness.status() is S.PREPARE_ABORT


def test_wall_clock_that_goes_back_does_not_prolong_a_transaction() -> None:
    harness = Harness()
    harness.now_ms -= HOUR_MS
    harness.put(ONGOING)
    harness.advance(60_000)
    assert harness.status() is S.PREPARE_ABORT


# -- expiry of ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_id_without_a_transaction_expires(status: S) -> None:
    harness = Harness()
    harness.put(replace(ONGOING, status=status, partitions=(), last_update_ms=START_MS - WEEK_MS + HOUR_MS))
    harness.advance(HOUR_MS - 1)
    assert harness.status() is status
    harness.advance(1)
    assert harness.coordinator.durable_state().ids == {}
    assert (harness.log[-1].key, harness.log[-1].value) == (b"\0\0\0\2tx", None)
    assert harness.coordinator.event_counts["transactional_ids_expired"] == 1


def test_nothing_is_remembered_of_an_expired_id() -> None:
    harness = Harness()
    harness.init(producer=harness.producer())
    assert harness.coordinator._state.last_epochs == {"tx": 0}
    harness.now_ms += WEEK_MS
    harness.advance()
    assert harness.coordinator._state.last_epochs == {}


def test_id_that_was_used_lately_stays() -> None:
    harness = Harness()
    harness.put(replace(ONGOING, status=S.EMPTY, partitions=(), last_update_ms=START_MS - WEEK_MS + HOUR_MS + 1))
    harness.advance(HOUR_MS)
    assert harness.status() is S.EMPTY
    harness.advance(HOUR_MS)
    assert harness.coordinator.durable_state().ids == {}


@pytest.mark.parametrize("status", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_id_whose_markers_are_missing_never_expires(status: S) -> None:
    harness = Harness(TransactionConfig(marker_retry_ms=HOUR_MS))
    harness.put(replace(ONGOING, status=status, last_update_ms=START_MS - 2 * WEEK_MS))
    harness.advance(3 * HOUR_MS)
    assert harness.status() is (S.PREPARE_ABORT if status is S.ONGOING else status)


def test_expired_id_gets_a_producer_id_that_nobody_had() -> None:
    harness = Harness()
    first = harness.producer()
    harness.now_ms += WEEK_MS
    harness.advance()
    assert harness.coordinator.durable_state().ids == {}
    second = harness.producer()
    assert second[0] != first[0]
    assert harness.add(first) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_search_looks_at_a_slice_at_a_time_and_then_rests() -> None:
    harness = Harness(TransactionConfig(slice_size=4))
    for number in range(10):
        harness.producer(f"tx-{number}")
    harness.now_ms += WEEK_MS
    slices = []
    harness.timers = {("expire", ""): harness.now_ms}
    while harness.timers["expire", ""] == harness.now_ms:
        harness._apply(harness.coordinator.on_timer(("expire", ""), harness.now_ms))
        slices.append(len(harness.last.records))
    assert slices == [4, 4, 2]
    assert harness.timers["expire", ""] == harness.now_ms + HOUR_MS
    assert harness.coordinator.durable_state().ids == {}


def test_settings_below_1_are_refused() -> None:
    with pytest.raises(ValueError, match="slice_size must be at least 1, not 0"):
        TransactionConfig(slice_size=0)
