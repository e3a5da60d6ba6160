"""Finds committed offsets that went back, how many records are read again, and the likely cause."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from muster_pipeline.analytics.history import GROUP, owners
from muster_pipeline.analytics.spans import KEY


class Cause:
    """Values of the column `cause`. The log does not hold who asked for what: each is what the records around it
    speak for, checked in this order.
    """

    REMOVED = "removed before"
    """The offset had expired or been deleted; the consumer began anew further back."""
    RECREATED = "topic recreated"
    """The partition's log now ends before what was committed; or all groups on it, two or more, fell back to a lower
    leader epoch."""
    LATE = "late commit"
    """An older position arrived after a newer one, and the next commit was ahead again: nothing is read twice."""
    LATE_OLD_GENERATION = "late commit of an old generation"
    """The same, across a rebalance."""
    RESET = "reset"
    """Committed while the group had no members: a tool, or an administrator."""
    FAILOVER = "consumer failover"
    """Another member owns the partition, and began further back than its predecessor had come."""
    REWOUND = "rewound"
    """The same member went back by itself: a seek."""
    UNMANAGED = "rewound or reset"
    """Consumers without group management: the log cannot tell them from a tool."""


def regressions(spans: DataFrame, history: DataFrame, ends: DataFrame | None = None) -> DataFrame:
    """Return one row for each commit below the one before it of the same group and partition.

    `reread`: records between the two, 0 for a late commit. `gap_ms`: since the commit before.
    """
    back = spans.select(*KEY, "era", F.explode("back").alias("_back")).select(*KEY, "era", "_back.*")
    owned = owners(history).select(*GROUP, "era", "topic", "partition", "member_id")
    before = owned.withColumnsRenamed({"era": "previous_era", "member_id": "previous_member_id"})
    members = history.select(*GROUP, "era", F.size("members").alias("members"), "generation")
    frame = (
        back.join(owned, [*KEY, "era"], "left")
        .join(before, [*KEY, "previous_era"], "left")
        .join(members, [*GROUP, "era"], "left")
        .join(_fallen_together(spans, back), ["topic", "partition"], "left")
    )
    if ends is None:
        frame = frame.withColumn("end_offset", F.lit(None).cast("long"))
    else:
        newest = ends.groupBy("topic", "partition").agg(F.max_by("end_offset", "timestamp_ms").alias("end_offset"))
        frame = frame.join(newest, ["topic", "partition"], "left")
    late = F.col("cause").isin(Cause.LATE, Cause.LATE_OLD_GENERATION)
    return frame.withColumn("cause", _cause()).select(
        *("group", "topic", "partition", "timestamp_ms", "cause"),
        F.col("previous_offset").alias("from_offset"),
        F.col("committed_offset").alias("to_offset"),
        F.when(late, F.lit(0)).otherwise(F.col("previous_offset") - F.col("committed_offset")).alias("reread"),
        (F.col("timestamp_ms") - F.col("previous_ms")).alias("gap_ms"),
        *("generation", "members", "previous_member_id", "member_id", "end_offset", "offsets_partition", "offset"),
    )


def _cause() -> Column:
    back_ahead = (F.col("next_offset") >= F.col("previous_offset")) & (
        F.col("committed_offset") >= F.coalesce("second_offset", F.col("previous_offset"))
    )
    recreated = (F.col("end_offset") < F.col("previous_offset")) | F.coalesce("fell_together", F.lit(False))
    return (
        F.when(F.col("was_removed"), Cause.REMOVED)
        .when(recreated, Cause.RECREATED)
        .when(back_ahead & (F.col("era") != F.col("previous_era")), Cause.LATE_OLD_GENERATION)
        .when(back_ahead, Cause.LATE)
        .when(F.col("era") == 0, Cause.UNMANAGED)
        .when(F.col("members") == 0, Cause.RESET)
        .when(F.col("member_id") != F.col("previous_member_id"), Cause.FAILOVER)
        .otherwise(Cause.REWOUND)
    )


def _fallen_together(spans: DataFrame, back: DataFrame) -> DataFrame:
    """Return partitions where all groups, two or more, fell back to a lower leader epoch."""
    older = (F.col("committed_leader_epoch") >= 0) & (F.col("committed_leader_epoch") < F.col("previous_leader_epoch"))
    fell = back.where(older).groupBy("topic", "partition").agg(F.countDistinct("group").alias("_fell"))
    there = spans.groupBy("topic", "partition").agg(F.countDistinct("group").alias("_groups"))
    together = (F.col("_fell") >= 2) & (F.col("_fell") == F.col("_groups"))
    return there.join(fell, ["topic", "partition"]).select("topic", "partition", together.alias("fell_together"))
