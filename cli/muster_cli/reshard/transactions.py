"""Why a cluster with transactions is not re-sharded yet."""

from __future__ import annotations

from collections.abc import Collection

from muster_cli.errors import CliError
from muster_coordinator.partition_numbers import TRANSACTIONS


def refuse_with_transactions(topics: Collection[str]) -> None:
    """Raises CliError if one of the cluster's `topics` is that of transactions: they name the partitions of offsets by
    the numbers of now (ADR 28).
    """
    if TRANSACTIONS.name in topics:
        raise CliError(f"a cluster with {TRANSACTIONS.name} cannot be re-sharded yet")
