"""Lag of groups, in records and in time."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_PLACE = ["topic", "partition"]


def lag(current_offsets: DataFrame, ends: DataFrame) -> DataFrame:
    """Return one row for each committed offset whose partition's end is known.

    `lag`: records between the committed offset and the newest end; 0 where the end is below it. `time_lag_ms`: how
    long before that newest end the log ended where the group stands, on a straight line between the two ends around it;
    `at_least`: the group stands before the oldest end that is known, so it is that much or more. Null: the only end
    known is the newest, which says nothing of time. `end_below_committed`: the log ends before what was committed, so
    it was truncated or the topic was made anew.
    """
    order = Window.partitionBy(*_PLACE).orderBy("timestamp_ms")
    points = ends.select(
        *_PLACE,
        F.col("timestamp_ms").alias("_from_ms"),
        F.col("end_offset").alias("_from"),
        F.lead("timestamp_ms").over(order).alias("_to_ms"),
        F.lead("end_offset").over(order).alias("_to"),
        F.row_number().over(order).alias("_number"),
    )
    last = points.where(F.col("_to").isNull()).select(
        *_PLACE, F.col("_from_ms").alias("end_ms"), F.col("_from").alias("end_offset"), F.col("_number").alias("_count")
    )
    first = points.where(F.col("_number") == 1).select(
        *_PLACE, F.col("_from_ms").alias("_first_ms"), F.col("_from").alias("_first")
    )
    here = current_offsets.select("group", *_PLACE, "committed_offset", "commit_timestamp_ms").join(
        F.broadcast(last), _PLACE
    )
    standing = F.col("committed_offset")
    crossed = (
        here.select("group", *_PLACE, "committed_offset")
        .join(F.broadcast(points), _PLACE)
        .where((F.col("_from") <= standing) & (standing < F.col("_to")))
        .groupBy("group", *_PLACE)
        .agg(F.max(F.struct(*("_from_ms", "_to_ms", "_from", "_to"))).alias("_line"))
    )
    line = F.col("_line")
    share = (standing - line["_from"]) / (line["_to"] - line["_from"])
    at_ms = (line["_from_ms"] + share * (line["_to_ms"] - line["_from_ms"])).cast("long")
    before_all = (standing < F.col("_first")) & (F.col("_count") > 1)
    return (
        here.join(F.broadcast(first), _PLACE)
        .join(crossed, ["group", *_PLACE], "left")
        .select(
            *("group", "topic", "partition", "committed_offset", "commit_timestamp_ms", "end_offset", "end_ms"),
            F.greatest(F.col("end_offset") - standing, F.lit(0)).alias("lag"),
            F.when(standing >= F.col("end_offset"), F.lit(0))
            .when(before_all, F.col("end_ms") - F.col("_first_ms"))
            .otherwise(F.col("end_ms") - at_ms)
            .cast("long")
            .alias("time_lag_ms"),
            before_all.alias("at_least"),
            (standing > F.col("end_offset")).alias("end_below_committed"),
        )
    )


def group_lag(lags: DataFrame) -> DataFrame:
    """Return, per group, the sum and maximum of the lag, the longest lag in time, and where the maximum is."""
    place = F.concat_ws("-", "topic", F.col("partition").cast("string"))
    return lags.groupBy("group").agg(
        F.sum("lag").alias("lag"),
        F.max("lag").alias("max_lag"),
        F.max_by(place, "lag").alias("max_lag_at"),
        F.max("time_lag_ms").alias("time_lag_ms"),
        F.max_by("at_least", F.coalesce("time_lag_ms", F.lit(-1))).alias("at_least"),
        F.count("*").alias("partitions"),
    )
