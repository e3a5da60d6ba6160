"""Open transactions at a moment: how old they are, and which are open longer than they may be."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ONGOING = "Ongoing"
PREPARED = ("PrepareCommit", "PrepareAbort")
"""The end is decided, and markers are missing."""


def open_transactions(current: DataFrame, at_ms: int) -> DataFrame:
    """Return one row for each transaction that is open at `at_ms`, of `tables.transforms.current_transactions`.

    `age_ms`: since it began. `waiting_ms`: since the last record of it. `overdue`: the time-out is over, and the
    coordinator has not aborted it.
    """
    age = F.lit(at_ms) - F.col("transaction_start_ms")
    return (
        current.where(F.col("transaction_state").isin(ONGOING, *PREPARED))
        .withColumn("age_ms", age)
        .withColumn("waiting_ms", F.lit(at_ms) - F.col("transaction_update_ms"))
        .withColumn("overdue", (F.col("transaction_state") == ONGOING) & (age > F.col("transaction_timeout_ms")))
    )
