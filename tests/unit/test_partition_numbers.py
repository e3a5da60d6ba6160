"""One row of numbers for the partitions of both internal topics (ADR 28)."""

from __future__ import annotations

import pytest

from muster_coordinator.partition_numbers import (
    OFFSETS,
    TRANSACTIONS,
    index_of,
    number_of_directory,
    partition_name,
    topic_of,
)


@pytest.mark.parametrize(
    ("number", "name", "index"),
    [
        (0, "__consumer_offsets-0", 0),
        (499_999, "__consumer_offsets-499999", 499_999),
        (TRANSACTIONS.first, "__transaction_state-0", 0),
        (TRANSACTIONS.first + 12, "__transaction_state-12", 12),
    ],
)
def test_number_names_topic_index_and_directory(number: int, name: str, index: int) -> None:
    assert partition_name(number) == name
    assert number_of_directory(name) == number
    assert index_of(number) == index
    assert topic_of(number) is (TRANSACTIONS if name.startswith("__transaction") else OFFSETS)


@pytest.mark.parametrize(
    "name",
    [
        "journal",
        "__consumer_offsets-",
        "__consumer_offsets-x",
        "__consumer_offsets-1a",
        "__consumer_offsets-500000",
        "__transaction_state-500000",
        "consumer_offsets-1",
        "__consumer_offsets-1.deleted",
        "__transaction_state-²",
    ],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    assert number_of_directory(name) is None
