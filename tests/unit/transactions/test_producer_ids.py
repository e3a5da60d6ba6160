"""Producer ids are handed out once, whoever leads (ADR 25). Kafka: ProducerIdManagerTest."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.transactions.harness import FIRST_ID, Harness, replay

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.transactions.producer_ids import BLOCK_SIZE, PARTITIONS_MAX, ProducerIds
from muster_coordinator.transactions.tables import transaction_record

INT64_MAX = 2**63 - 1


def test_one_record_reserves_a_block() -> None:
    harness = Harness()
    ids = [harness.init(None).producer_id for _ in range(BLOCK_SIZE + 1)]
    assert ids == list(range(FIRST_ID, FIRST_ID + BLOCK_SIZE + 1))
    assert len(harness.log) == 2
    assert harness.coordinator.event_counts["producer_ids_handed_out"] == BLOCK_SIZE + 1


def test_block_comes_before_the_record_that_uses_it() -> None:
    harness = Harness()
    harness.producer()
    first, second = harness.log
    assert first.key == b"\0\0\0\0"
    assert second.key == b"\0\0\0\2tx"


@pytest.mark.parametrize("again", ["another pod", "the same pod"])
def test_leader_throws_away_the_rest_of_the_block_that_it_finds(again: str) -> None:
    harness = Harness()
    assert harness.init(None).producer_id == FIRST_ID
    if again == "another pod":
        harness.reload()
    else:
        harness.lead_again()
    assert harness.init(None).producer_id == FIRST_ID + BLOCK_SIZE


def test_block_that_is_lost_with_its_answers_is_reserved_again() -> None:
    harness = Harness()
    assert harness.init(None).producer_id == FIRST_ID
    harness.lose_records(1)
    assert harness.init(None).producer_id == FIRST_ID, "nobody was answered"


def test_leader_that_is_elected_again_does_not_hand_out_what_it_had_reserved_and_lost() -> None:
    """Its first block is not committed and gone; the next leader has reserved the same ids."""
    harness = Harness()
    harness.init(None)
    harness.lose_records(1)
    other = harness.new()
    replay(other, harness.log)
    harness.init(None)
    assert harness.init(None).producer_id == FIRST_ID + 1


def test_partitions_share_no_id() -> None:
    ranges = [ProducerIds(partition) for partition in (0, 1, 2, PARTITIONS_MAX - 1)]
    taken = [ids.take(0) for ids in ranges]
    assert [one[0] for one in taken if one] == [1 << 40, 2 << 40, 3 << 40, PARTITIONS_MAX << 40]
    assert ranges[-1]._end <= INT64_MAX
    for below, above in pairwise(ranges):
        assert below._end <= above._first


@pytest.mark.parametrize("partition", [-1, PARTITIONS_MAX])
def test_partition_without_a_range_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match="range of producer ids"):
        ProducerIds(partition)


def test_range_that_is_used_up_hands_out_nothing() -> None:
    harness = Harness()
    end = FIRST_ID + (1 << 40)
    block = TransactionLogValue(end - 2, -1, 0, TransactionStatus.EMPTY, (), 0, -1)
    harness.reload_with(transaction_record("", block))
    assert [harness.init(None).producer_id for _ in range(2)] == [end - 2, end - 1]
    assert harness.init(None).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert harness.init("new").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    harness.reload()
    assert harness.init(None).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("producer_id", [7, FIRST_ID - 1, FIRST_ID + (1 << 40)])
def test_ids_of_brokers_and_of_other_partitions_move_nothing(producer_id: int) -> None:
    """Their logs may have been loaded here, or carried here by a re-shard."""
    harness = Harness()
    harness.put(TransactionLogValue(producer_id, 4, 60_000, TransactionStatus.EMPTY, (), 0, -1))
    assert harness.producer() == (producer_id, 5)
    assert harness.producer("new") == (FIRST_ID, 0)


@pytest.mark.parametrize("end", [1_000, FIRST_ID, FIRST_ID + (1 << 40) + 1_000])
def test_block_of_another_partition_reserves_nothing(end: int) -> None:
    harness = Harness()
    harness.reload_with(transaction_record("", TransactionLogValue(end, -1, 0, TransactionStatus.EMPTY, (), 0, -1)))
    assert harness.producer() == (FIRST_ID, 0)


@pytest.mark.parametrize("field", ["producer_id", "next_producer_id"])
def test_id_whose_block_has_expired_in_a_broker_is_not_handed_out_again(field: str) -> None:
    ids = {"producer_id": 5, "next_producer_id": -1, field: FIRST_ID + 9}
    harness = Harness()
    harness.put(
        TransactionLogValue(
            ids["producer_id"], 4, 60_000, TransactionStatus.EMPTY, (), 0, -1, -1, ids["next_producer_id"]
        )
    )
    assert harness.init(None).producer_id == FIRST_ID + 10


def test_partition_that_has_reserved_ids_is_not_empty() -> None:
    harness = Harness()
    assert harness.coordinator.key_count == 0
    harness.init(None)
    assert harness.coordinator.key_count == 1
    harness.producer()
    assert harness.coordinator.key_count == 2
