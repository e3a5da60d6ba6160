"""The one pass over all commits that everything about groups rests on: one shuffle, and a result as small as the number
of partitions times generations.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from muster_pipeline.analytics.history import GROUP
from muster_pipeline.decode.schema import Kind
from muster_pipeline.tables.transforms import settled_commits

KEY = [*GROUP, "topic", "partition"]


def spans(commits: DataFrame, tombstones: DataFrame, transactions: DataFrame, history: DataFrame) -> DataFrame:
    """One row for each group, topic, partition and `era` (the generation record that the commits came after; 0:
    before any) with commits in it. Commits of transactions that were aborted or are open are left out.

    `commits`, `repeated` (those that said the offset again), `first_ms`, `last_ms`, `last_advance_ms` (the
    newest that went forward; null: none), `back`: every commit below the one before it.
    """
    in_group = Window.partitionBy(*GROUP).orderBy("offset")
    of_key = Window.partitionBy(*KEY).orderBy("offset")
    earlier = of_key.rowsBetween(Window.unboundedPreceding, -1)
    known = F.last("committed_offset", ignorenulls=True).over(earlier)
    rows = (
        _records(commits, tombstones, transactions, history)
        .withColumn("era", F.sum("_mark").over(in_group))
        .where(F.col("_mark") == 0)
        .withColumn("_previous", known)
        .withColumn("_second", F.lag("committed_offset", 2).over(of_key))
        .withColumn("_next", F.lead("committed_offset").over(of_key))
        .withColumn("_removed", F.lag("committed_offset").over(of_key).isNull())
        .withColumn("_previous_ms", F.lag("timestamp_ms").over(of_key))
        .withColumn("_previous_era", F.lag("era").over(of_key))
        .withColumn("_previous_leader_epoch", F.last("committed_leader_epoch", ignorenulls=True).over(earlier))
        .where(F.col("committed_offset").isNotNull())
    )
    went_back = F.struct(
        *("offset", "timestamp_ms", "committed_offset", "committed_leader_epoch"),
        F.col("_previous").alias("previous_offset"),
        F.col("_second").alias("second_offset"),
        F.col("_next").alias("next_offset"),
        F.col("_removed").alias("was_removed"),
        F.col("_previous_ms").alias("previous_ms"),
        F.col("_previous_era").alias("previous_era"),
        F.col("_previous_leader_epoch").alias("previous_leader_epoch"),
    )
    advanced = F.col("_previous").isNull() | (F.col("committed_offset") > F.col("_previous"))
    return rows.groupBy(*KEY, "era").agg(
        F.count("*").alias("commits"),
        F.sum((F.col("committed_offset") == F.col("_previous")).cast("long")).alias("repeated"),
        F.min("timestamp_ms").alias("first_ms"),
        F.max("timestamp_ms").alias("last_ms"),
        F.max(F.when(advanced, F.col("timestamp_ms"))).alias("last_advance_ms"),
        F.collect_list(F.when(F.col("committed_offset") < F.col("_previous"), went_back)).alias("back"),
    )


def _records(commits: DataFrame, tombstones: DataFrame, transactions: DataFrame, history: DataFrame) -> DataFrame:
    """Commits, removals of offsets (no committed_offset) and marks of generations in one frame; numbers first."""
    place = [*GROUP, "offset", "timestamp_ms"]
    settled = settled_commits(commits, transactions).select(
        *place, "topic", "partition", "committed_offset", "committed_leader_epoch", F.lit(0).alias("_mark")
    )
    removed = tombstones.where(F.col("kind") == Kind.OFFSET_TOMBSTONE).select(
        *place, "topic", "partition", F.lit(0).alias("_mark")
    )
    marks = history.select(*place, F.lit(1).alias("_mark"))
    return settled.unionByName(removed, allowMissingColumns=True).unionByName(marks, allowMissingColumns=True)
