"""DescribeTransactions and ListTransactions. Kafka: TransactionCoordinatorTest (testDescribeTransactions...),
TransactionStateManagerTest (testListTransactions...)."""

from __future__ import annotations

import pytest
from tests.unit.transactions.harness import OFFSETS, START_MS, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.transactions import (
    DescribedTransaction,
    DescribeTransactionRequest,
    ListTransactionsRequest,
)


def describe(harness: Harness, transactional_id: str = "tx") -> DescribedTransaction:
    response = harness.send(DescribeTransactionRequest(transactional_id))
    assert isinstance(response, DescribedTransaction)
    return response


def test_transaction_is_described() -> None:
    harness = Harness()
    producer = harness.producer()
    harness.now_ms += 5
    harness.add(producer, 1, 3)
    assert describe(harness) == DescribedTransaction(
        ErrorCode.NONE, "tx", "Ongoing", 60_000, START_MS + 5, *producer, ((OFFSETS, (1, 3)),)
    )


def test_unknown_id_is_not_found_and_an_empty_one_is_invalid() -> None:
    harness = Harness()
    assert describe(harness).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe(harness, "").error_code == ErrorCode.INVALID_REQUEST
    refused = harness.coordinator.refuse(DescribeTransactionRequest(""))
    assert refused == DescribedTransaction(ErrorCode.INVALID_REQUEST, "")


def five_states() -> Harness:
    """empty, ongoing, prepared, committed, aborted: a second between each."""
    harness = Harness()
    for name in ("empty", "ongoing", "prepared", "committed", "aborted"):
        producer = harness.producer(name)
        if name != "empty":
            harness.add(producer, transactional_id=name)
        if name in ("committed", "aborted"):
            harness.end(producer, name == "committed", transactional_id=name)
            harness.finish()
        if name == "prepared":
            harness.end(producer, transactional_id=name)
        harness.now_ms += 1_000
    return harness


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["empty", "ongoing", "prepared", "committed", "aborted"]),
        ({"states": ("Ongoing", "CompleteAbort")}, ["ongoing", "aborted"]),
        ({"states": ("ongoing",)}, []),
        ({"states": ("Dead", "PrepareEpochFence")}, []),
        ({"duration_ms": 2_000}, ["empty", "ongoing", "prepared"]),
        ({"duration_ms": 0}, ["empty", "ongoing", "prepared", "committed", "aborted"]),
        ({"duration_ms": 10_000}, ["empty"]),
        ({"states": ("Ongoing",), "duration_ms": 4_000}, []),
        ({"producer_ids": (99,)}, []),
    ],
)
def test_transactions_are_listed_by_state_and_age(filters: dict[str, tuple[str, ...]], found: list[str]) -> None:
    response = five_states().send(ListTransactionsRequest(**filters))
    assert [each.transactional_id for each in response.transactions] == found


def test_transactions_are_listed_by_producer_id() -> None:
    harness = five_states()
    wanted = harness.value("committed").producer_id
    response = harness.send(ListTransactionsRequest(producer_ids=(wanted, 99)))
    assert [(each.transactional_id, each.state) for each in response.transactions] == [("committed", "CompleteCommit")]


def test_state_that_kafka_does_not_know_is_named() -> None:
    response = five_states().send(ListTransactionsRequest(states=("Sleeping", "Dead", "Ongoing", "Sleeping")))
    assert response.unknown_states == ("Sleeping",)
    assert [each.transactional_id for each in response.transactions] == ["ongoing"]
