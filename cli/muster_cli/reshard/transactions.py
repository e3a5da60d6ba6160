"""Why the groups of a cluster with transactions are not re-sharded yet."""

from __future__ import annotations

from collections.abc import Collection

from muster_cli.errors import CliError
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS


def refuse_with_transactions(topic: str, topics: Collection[str]) -> None:
    """Raises CliError if `topic` is that of the groups, and one of the cluster's `topics` is that of transactions: they
    name the partitions of offsets by the numbers of now (ADR 28).
    """
    if topic == OFFSETS.name and TRANSACTIONS.name in topics:
        raise CliError(f"{OFFSETS.name} of a cluster with {TRANSACTIONS.name} cannot be re-sharded yet")
