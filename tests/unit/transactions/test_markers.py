"""Markers until every partition has its own. Kafka: TransactionMarkerChannelManagerTest,
TransactionMarkerRequestCompletionHandlerTest."""

from __future__ import annotations

import pytest
from tests.unit.transactions.harness import OFFSETS, START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionStatus
from muster_coordinator.requests.groups import TopicsDeleted
from muster_coordinator.requests.transactions import MarkersToWrite, MarkersWritten
from muster_coordinator.transactions.config import TransactionConfig

S = TransactionStatus
RETRY_MS = TransactionConfig().marker_retry_ms


def ended(harness: Harness, *partitions: int, version: int = 4) -> tuple[int, int]:
    """A committed transaction whose markers are asked for."""
    producer = harness.producer()
    harness.add(producer, *partitions)
    assert harness.end(producer, version=version)[0] == ErrorCode.NONE
    harness.advance()
    return producer


def written(harness: Harness, *partitions: int, code: ErrorCode = ErrorCode.NONE) -> None:
    asked = harness.writer.asked[-1]
    harness.notify(MarkersWritten("tx", asked.prepared_at, ((OFFSETS, tuple((p, int(code)) for p in partitions)),)))


@pytest.mark.parametrize(("version", "epoch", "client_version"), [(4, 0, 0), (5, 1, 2)])
def test_markers_are_asked_for_when_the_decision_is_replayed(version: int, epoch: int, client_version: int) -> None:
    harness = Harness()
    producer = ended(harness, 2, 4, version=version)
    prepared_at = harness.log[-1].offset
    assert harness.writer.asked == [
        MarkersToWrite("tx", prepared_at, producer[0], epoch, True, client_version, ((OFFSETS, (2, 4)),))
    ]


def test_last_partition_completes_the_transaction() -> None:
    harness = Harness()
    ended(harness, 2, 4)
    written(harness, 4)
    assert harness.status() is S.PREPARE_COMMIT
    harness.now_ms += 7
    written(harness, 2)
    assert harness.status() is S.COMPLETE_COMMIT
    assert (harness.value().last_update_ms, harness.value().start_ms) == (START_MS + 7, START_MS)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ],
)
def test_partition_without_a_marker_is_asked_again(code: ErrorCode) -> None:
    """shouldRetryPartitionWhen...Error."""
    harness = Harness()
    ended(harness, 2, 4)
    written(harness, 2)
    written(harness, 4, code=code)
    assert harness.coordinator.event_counts["transaction_markers_refused"] == 1
    assert harness.coordinator.gauges["transaction_markers_missing", ""] == 1
    harness.advance(RETRY_MS - 1)
    assert len(harness.writer.asked) == 1
    harness.advance(1)
    assert [asked.topics for asked in harness.writer.asked] == [((OFFSETS, (2, 4)),), ((OFFSETS, (4,)),)]
    assert harness.coordinator.gauges["transactional_ids", "PrepareCommit"] == 1
    written(harness, 4)
    assert harness.status() is S.COMPLETE_COMMIT
    gauges = {name: count for name, count in harness.coordinator.gauges.items() if count}
    assert gauges == {("transactional_ids", "CompleteCommit"): 1}
    harness.advance(10 * RETRY_MS)
    assert len(harness.writer.asked) == 2


def test_partition_is_not_asked_again_before_its_attempt_has_an_end() -> None:
    """A second marker could come when the next transaction has begun in the same epoch."""
    harness = Harness()
    ended(harness, 2, 4)
    written(harness, 4, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    harness.advance(100 * RETRY_MS)
    assert [asked.topics for asked in harness.writer.asked] == [((OFFSETS, (2, 4)),), ((OFFSETS, (4,)),)]
    written(harness, 2, code=ErrorCode.REQUEST_TIMED_OUT)
    harness.advance(RETRY_MS)
    assert harness.writer.asked[-1].topics == ((OFFSETS, (2,)),)


def test_partition_that_never_succeeds_is_asked_again_and_again() -> None:
    harness = Harness()
    ended(harness, 2)
    for _ in range(5):
        written(harness, 2, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        harness.advance(RETRY_MS)
    assert [asked.topics for asked in harness.writer.asked] == [((OFFSETS, (2,)),)] * 6


@pytest.mark.parametrize("again", ["another pod", "the same pod"])
def test_next_leader_asks_all_partitions(again: str) -> None:
    """It does not know which have their marker. One marker more says the same."""
    harness = Harness()
    ended(harness, 2, 4)
    written(harness, 2)
    if again == "another pod":
        harness.reload()
    else:
        harness.lead_again()
    harness.advance()
    first, second = harness.writer.asked
    assert first == second
    written(harness, 2, 4)
    assert harness.status() is S.COMPLETE_COMMIT


def test_late_acknowledgement_does_not_complete_the_next_transaction_of_the_same_epoch() -> None:
    harness = Harness()
    producer = ended(harness, 2)
    late = harness.writer.asked[-1]
    written(harness, 2)
    assert harness.add(producer, 2) == ErrorCode.NONE
    harness.marked(request=late)
    assert harness.status() is S.ONGOING
    assert harness.end(producer, committed=False)[0] == ErrorCode.NONE
    harness.marked(request=late)
    harness.advance()
    harness.marked(request=late)
    assert harness.status() is S.PREPARE_ABORT
    assert harness.writer.asked[-1].topics == ((OFFSETS, (2,)),)
    harness.marked()
    assert harness.status() is S.COMPLETE_ABORT


def test_acknowledgement_for_an_id_that_is_gone_says_nothing() -> None:
    harness = Harness()
    harness.notify(MarkersWritten("tx", 0, ((OFFSETS, ((1, 0),)),)))
    assert harness.log == []


def test_unasked_partition_says_nothing() -> None:
    harness = Harness()
    ended(harness, 2)
    written(harness, 3)
    assert harness.status() is S.PREPARE_COMMIT


def test_request_during_the_start_of_a_leadership_has_its_markers_asked_for_once() -> None:
    """The slices of a start come to a transaction that has ended meanwhile."""
    harness = Harness(TransactionConfig(slice_size=1))
    producer = harness.producer("a")
    harness.producer("b")
    harness.producer("c")
    harness.add(producer, 1, transactional_id="a")
    other = harness.producer("c")
    harness.add(other, 1, transactional_id="c")
    harness.reload()
    harness.end(other, transactional_id="c")
    harness._apply(harness.coordinator.on_timer(("transaction", "c"), harness.now_ms))
    assert [asked.transactional_id for asked in harness.writer.asked] == ["c"]
    harness.advance()
    assert [asked.transactional_id for asked in harness.writer.asked] == ["c"]


def test_news_about_something_else_changes_nothing() -> None:
    """Every shard of a pod is told of topics that were deleted."""
    harness = Harness()
    ended(harness, 2)
    before = harness.coordinator.durable_state()
    harness.notify(TopicsDeleted(lambda topic, partition: False, lambda topic: bytes(16)))
    assert harness.coordinator.durable_state() == before
    written(harness, 2)
    assert harness.status() is S.COMPLETE_COMMIT
