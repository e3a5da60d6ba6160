"""Rebalances: who joined, who left or timed out, and how long it took."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from muster_pipeline.analytics.history import GROUP, owners
from muster_pipeline.analytics.spans import KEY

_SELDOM = 2
"""A member that is silent for up to this many of its intervals between commits may still be well."""


class Departure:
    """Values of `departed.how`. The log says that a member is gone, not why: a member that was silent for its session
    timeout while the others went on committing timed out.
    """

    LEFT = "left"
    TIMED_OUT = "timed out"
    UNKNOWN = "left or timed out"
    """It committed nothing in its last generation, or too seldom to tell."""


def timeline(rebalances: DataFrame, history: DataFrame, spans: DataFrame) -> DataFrame:
    """Return one row for each rebalance, with the members that departed.

    `assign_ms`: from the end of the join to the assignment in the log. `pause_ms`: from the last commit before to
    the first one after, the upper bound of what consumers felt; null where there were no members before or are none
    after.
    """
    place = [*GROUP, "offset"]
    eras = history.select(
        *place,
        "era",
        F.when(
            (F.col("state_timestamp_ms") >= 0) & (F.size("members") > 0),
            F.greatest(F.col("timestamp_ms") - F.col("state_timestamp_ms"), F.lit(0)),
        ).alias("assign_ms"),
    )
    changes = rebalances.join(eras, place).join(_pauses(spans, history), [*GROUP, "era"], "left")
    departed = _departed(changes, history, spans)
    return (
        changes.join(departed, [*GROUP, "era"], "left")
        .withColumn("departed", F.coalesce("departed", F.array()))
        .select(
            *("group", "timestamp_ms", "previous_generation", "generation", "protocol"),
            *("members_before", "members_after", "joined", "departed", "assign_ms"),
            F.when((F.col("members_before") > 0) & (F.col("members_after") > 0), F.col("pause_ms")).alias("pause_ms"),
            (F.col("timestamp_ms") - F.col("previous_timestamp_ms")).alias("since_previous_ms"),
            *("offsets_partition", "offset"),
        )
    )


def rebalance_summary(rebalanced: DataFrame) -> DataFrame:
    """Summarise, per group: number of rebalances, members that came and went, longest pause. The first one counts."""

    def departed(how: str) -> Column:
        return F.sum(F.size(F.filter("departed", lambda each: each["how"] == how)))

    return rebalanced.groupBy("group").agg(
        F.count("*").alias("rebalances"),
        F.sum(F.size("joined")).alias("joined"),
        *(
            departed(how).alias(name)
            for how, name in (
                (Departure.LEFT, "left"),
                (Departure.TIMED_OUT, "timed_out"),
                (Departure.UNKNOWN, "left_or_timed_out"),
            )
        ),
        F.min("since_previous_ms").alias("shortest_between_ms"),
        F.max("pause_ms").alias("longest_pause_ms"),
        F.max("assign_ms").alias("longest_assign_ms"),
        F.max("timestamp_ms").alias("last_ms"),
        F.max("members_after").alias("most_members"),
    )


def _pauses(spans: DataFrame, history: DataFrame) -> DataFrame:
    """Return, per era, the time between the last commit before it and the first one from it on."""
    commits = spans.groupBy(*GROUP, "era").agg(F.min("first_ms").alias("_first"), F.max("last_ms").alias("_last"))
    every = history.select(*GROUP, "era").unionByName(commits.where("era = 0").select(*GROUP, "era"))
    order = Window.partitionBy(*GROUP)
    before = F.max("_last").over(order.orderBy("era").rowsBetween(Window.unboundedPreceding, -1))
    after = F.min("_first").over(order.orderBy(F.col("era").desc()).rowsBetween(Window.unboundedPreceding, 0))
    return every.join(commits, [*GROUP, "era"], "left").select(*GROUP, "era", (after - before).alias("pause_ms"))


def _departed(changes: DataFrame, history: DataFrame, spans: DataFrame) -> DataFrame:
    """Return, per era, the members of the era before that are gone, with their silence at its end."""
    era_before = (F.col("era") - 1).alias("era")
    members = history.select(*GROUP, "era", F.explode("members").alias("_member")).select(
        *(*GROUP, "era"),
        *(
            F.col("_member")[name].alias(name)
            for name in ("member_id", "client_id", "client_host", "session_timeout_ms")
        ),
    )
    gone = changes.select(*GROUP, era_before, F.explode("left").alias("member_id"), "timestamp_ms")
    every_ms = (F.col("last_ms") - F.col("first_ms")) / F.when(F.col("commits") > 1, F.col("commits") - 1)
    last = (
        owners(history)
        .join(spans.select(*KEY, "era", "last_ms", every_ms.alias("_every")), [*KEY, "era"])
        .groupBy(*GROUP, "era", "member_id")
        .agg(F.max("last_ms").alias("_last"), F.min("_every").alias("_every"))
    )
    others = Window.partitionBy(*GROUP, "era").orderBy(F.col("_last").desc(), "member_id")
    newest = last.withColumn("_rank", F.row_number().over(others)).where("_rank <= 2")
    two = newest.groupBy(*GROUP, "era").agg(
        F.max(F.when(F.col("_rank") == 1, F.col("member_id"))).alias("_first_member"),
        F.max("_last").alias("_first_last"),
        F.max(F.when(F.col("_rank") == 2, F.col("_last"))).alias("_second_last"),
    )
    # the others stop committing when the rebalance begins; a member that was alone is missed when the record says so
    noticed = F.coalesce(
        F.when(F.col("member_id") == F.col("_first_member"), F.col("_second_last")).otherwise(F.col("_first_last")),
        F.col("timestamp_ms"),
    )
    silence = F.when(F.col("_last").isNotNull(), F.greatest(noticed - F.col("_last"), F.lit(0)))
    how = (
        F.when(silence < F.col("session_timeout_ms"), Departure.LEFT)
        .when(silence > _SELDOM * F.col("_every"), Departure.TIMED_OUT)
        .otherwise(Departure.UNKNOWN)
    )
    return (
        gone.join(members, [*GROUP, "era", "member_id"])
        .join(last, [*GROUP, "era", "member_id"], "left")
        .join(two, [*GROUP, "era"], "left")
        .groupBy(*GROUP, (F.col("era") + 1).alias("era"))
        .agg(
            F.sort_array(
                F.collect_list(
                    F.struct("member_id", "client_id", "client_host", how.alias("how"), silence.alias("silence_ms"))
                )
            ).alias("departed")
        )
    )
