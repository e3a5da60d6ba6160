"""The two topics whose logs are read, and the numbers that pods know their partitions by (ADR 28)."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
BOTH_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

TRANSACTIONS_FIRST = 500_000
"""The number of the first partition of the transaction topic. Those below it are of the offsets topic."""


def partition_name(number: int) -> str:
    """Kafka's name of the partition's directory."""
    if number < TRANSACTIONS_FIRST:
        return f"{OFFSETS_TOPIC}-{number}"
    return f"{TRANSACTIONS_TOPIC}-{number - TRANSACTIONS_FIRST}"
