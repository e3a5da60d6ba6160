"""Commit rates of groups, to find the ones that commit far more often than the others."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

OUTLIER_SCORE = 3.5
"""Modified z-score from which a value counts as an outlier: Iglewicz and Hoaglin, 1993."""
_NORMAL_MAD, _NORMAL_MEAN = 1.4826, 1.2533
"""The factors from median and mean absolute deviation of a normal distribution to its standard deviation."""
FEWEST_GROUPS = 5
"""With fewer groups none is called an outlier."""


def commit_counts(commits: DataFrame, bucket_ms: int) -> DataFrame:
    """Count commits, those of aborted transactions included, by group and time bucket."""
    bucket = (F.floor(F.col("timestamp_ms") / bucket_ms) * bucket_ms).cast("long")
    return commits.groupBy("offsets_partition", "group", bucket.alias("bucket_ms")).agg(F.count("*").alias("commits"))


def commits_over_time(counts: DataFrame, groups: list[str]) -> DataFrame:
    """Count commits by time bucket. Groups that are not in `groups` are counted together, under a null group."""
    shown = F.when(F.col("group").isin(groups), F.col("group"))
    return counts.groupBy(shown.alias("group"), "bucket_ms").agg(F.sum("commits").alias("commits"))


def commit_rates(counts: DataFrame, spans: DataFrame, bucket_ms: int, span_ms: int) -> DataFrame:
    """Return commits per group, per second over `span_ms` and in the busiest bucket, and the share of repeats.

    `score`: modified z-score of the logarithm of the rate, `outlier` above `OUTLIER_SCORE`. Null of fewer than
    FEWEST_GROUPS groups, and when all are equal.
    """
    seconds = max(span_ms, 1) / 1000
    per_group = counts.groupBy("group").agg(
        F.sum("commits").alias("commits"), (F.max("commits") / (bucket_ms / 1000)).alias("peak_per_second")
    )
    repeated = spans.groupBy("group").agg((F.sum("repeated") / F.sum("commits")).alias("repeated_share"))
    places = (
        spans.select("group", "topic", "partition").distinct().groupBy("group").agg(F.count("*").alias("partitions"))
    )
    rates = per_group.withColumn("per_second", F.col("commits") / seconds).withColumn("_log", F.log("commits"))
    middle = rates.agg(F.median("_log").alias("_median"), F.count("*").alias("_groups"))
    spread = (
        rates.crossJoin(F.broadcast(middle))
        .withColumn("_away", F.abs(F.col("_log") - F.col("_median")))
        .agg(F.median("_away").alias("_mad"), F.mean("_away").alias("_mean"))
    )
    unit = F.when(F.col("_mad") > 0, F.col("_mad") * _NORMAL_MAD).when(
        F.col("_mean") > 0, F.col("_mean") * _NORMAL_MEAN
    )
    score = F.when(F.col("_groups") >= FEWEST_GROUPS, (F.col("_log") - F.col("_median")) / unit)
    return (
        rates.crossJoin(F.broadcast(middle))
        .crossJoin(F.broadcast(spread))
        .join(repeated, "group", "left")
        .join(places, "group", "left")
        .withColumn("score", score)
        .select(
            *("group", "partitions", "commits", "per_second", "peak_per_second", "repeated_share", "score"),
            F.coalesce(F.col("score") > OUTLIER_SCORE, F.lit(False)).alias("outlier"),
        )
    )
