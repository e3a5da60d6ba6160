"""Computes state from history tables: DataFrame in, DataFrame out, no I/O."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from muster_pipeline.decode.schema import Kind

GROUP = ["offsets_partition", "group"]
KEY = ["offsets_partition", "group", "topic", "partition"]
RECORD = ["offsets_partition", "offset"]
TRANSACTION = ["transaction_partition", "transactional_id"]
CURRENT = [
    *("group", "topic", "partition", "committed_offset", "committed_leader_epoch", "metadata"),
    *("commit_timestamp_ms", "expire_timestamp_ms", "offsets_partition", "offset"),
]


def until(frame: DataFrame, at_ms: int | None) -> DataFrame:
    """The part of a history table that was written up to a moment (ms since 1970); all of it for None."""
    return frame if at_ms is None else frame.where(F.col("timestamp_ms") <= F.lit(at_ms))


def settled_commits(commits: DataFrame, transactions: DataFrame | None) -> DataFrame:
    """`commits` without those of transactions that were aborted or are still open. `transactions` None: it is known
    that no commit is of one.

    `settled_at`: offset from which on the commit counts, its own or that of the marker.
    """
    if transactions is None:
        return commits.withColumn("settled_at", F.col("offset"))
    plain = commits.where(F.col("producer_id").isNull()).withColumn("settled_at", F.col("offset"))
    pending = commits.where(F.col("producer_id").isNotNull())
    committed = _decided(pending, transactions).where(F.col("_decision")["committed"])
    settled = committed.select(*RECORD, F.col("_decision")["at"].alias("settled_at"))
    return plain.unionByName(pending.join(settled, RECORD))


def open_commits(commits: DataFrame, tombstones: DataFrame, transactions: DataFrame) -> DataFrame:
    """Those of `commits` whose transaction has no marker yet, and which can still come to count: a removal of their
    offset behind them takes them back as well.
    """
    pending = commits.where(F.col("producer_id").isNotNull())
    undecided = _decided(pending, transactions).where(F.col("_decision").isNull()).select(*RECORD)
    removed = tombstones.where(F.col("kind") == Kind.OFFSET_TOMBSTONE).groupBy(*KEY).agg(F.max("offset").alias("_last"))
    return (
        pending.join(undecided, RECORD, "left_semi")
        .join(removed, KEY, "left")
        .where(F.col("_last").isNull() | (F.col("_last") < F.col("offset")))
        .select(*commits.columns)
    )


def _decided(pending: DataFrame, transactions: DataFrame) -> DataFrame:
    """One row for each transactional commit; `_decision`: (at, committed) of the next marker of its producer in the
    same offsets partition, null without one.

    Records and markers are put in one order from the end, so that one pass finds the next marker of each: a join would
    compare each commit of a producer with all its markers.
    """
    committed = (F.col("kind") == Kind.TXN_COMMIT).alias("committed")
    marker = F.struct(F.col("offset").alias("at"), committed).alias("_marker")
    marks = transactions.select(*RECORD, "producer_id", marker)
    unmarked = pending.select(*RECORD, "producer_id")
    backwards = (
        Window.partitionBy("offsets_partition", "producer_id")
        .orderBy(F.col("offset").desc())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        unmarked.unionByName(marks, allowMissingColumns=True)
        .withColumn("_decision", F.last("_marker", ignorenulls=True).over(backwards))
        .where(F.col("_marker").isNull())
        .select(*RECORD, "_decision")
    )


def current_offsets(
    commits: DataFrame, tombstones: DataFrame, transactions: DataFrame | None, at_ms: int | None = None
) -> DataFrame:
    """Return the offsets that an OffsetFetch would have answered, now or at a past moment.

    The record with the highest offset decides, as at load (Kafka: OffsetMetadataManager), also between a transactional
    commit and a plain one. The order of the key's records is found on numbers alone; texts are joined to the few that
    are left.
    """
    decided = None if transactions is None else until(transactions, at_ms)
    settled = settled_commits(until(commits, at_ms), decided)
    removed = until(tombstones, at_ms).where(F.col("kind") == Kind.OFFSET_TOMBSTONE)
    last = (
        settled.select(*KEY, "offset")
        .unionByName(removed.select(*KEY, "offset"))
        .groupBy(*KEY)
        .agg(F.max("offset").alias("offset"))
        .select(*RECORD)
    )
    return settled.join(last, RECORD, "left_semi").select(*CURRENT)


def memberships(generations: DataFrame) -> DataFrame:
    """Return one row for each member of each generation record."""
    member = F.col("member")
    return generations.select(
        *("group", "generation", "offsets_partition", "offset", "timestamp_ms", "leader"),
        F.explode("members").alias("member"),
    ).select(
        *("group", "generation", "offsets_partition", "offset", "timestamp_ms"),
        *(member[name].alias(name) for name in ("member_id", "group_instance_id", "client_id", "client_host")),
        *(member[name].alias(name) for name in ("rebalance_timeout_ms", "session_timeout_ms", "assigned")),
        (member["member_id"] == F.col("leader")).alias("is_leader"),
    )


def current_groups(generations: DataFrame, tombstones: DataFrame, at_ms: int | None = None) -> DataFrame:
    """The generation record of each group that was there, now or at a past moment: the last one, unless the group was
    removed behind it. `memberships` of the result are the members of that moment.
    """
    last = F.max_by(F.struct(*generations.columns), "offset").alias("_last")
    removed = until(tombstones, at_ms).where(F.col("kind") == Kind.GROUP_TOMBSTONE)
    gone = removed.groupBy(*GROUP).agg(F.max("offset").alias("_gone"))
    return (
        until(generations, at_ms)
        .groupBy(*GROUP)
        .agg(last)
        .join(gone, GROUP, "left")
        .where(F.col("_gone").isNull() | (F.col("_gone") < F.col("_last")["offset"]))
        .select("_last.*")
    )


def current_transactions(states: DataFrame, at_ms: int | None = None) -> DataFrame:
    """The last record of each transactional id that was there, now or at a past moment."""
    last = F.max_by(F.struct(*states.columns), "offset").alias("_last")
    every = until(states, at_ms).groupBy(*TRANSACTION).agg(last)
    return every.where(F.col("_last")["kind"] == Kind.TRANSACTION_STATE).select("_last.*").drop("kind")


def last_generations(generations: DataFrame) -> DataFrame:
    """Return the last record of each group, removed groups included. The next rebalance is compared with it."""
    last = generations.groupBy(*GROUP).agg(F.max_by(F.struct(*generations.columns), "offset").alias("_last"))
    return last.select("_last.*")


def rebalances(generations: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return one row for each change of a group's generation or members, with the record before it.

    `before`: `last_generations` of what lies in front of `generations`.
    """
    in_group = Window.partitionBy(*GROUP).orderBy("offset")
    every = generations.withColumn("_new", F.lit(True))
    if before is not None:
        every = every.unionByName(before.withColumn("_new", F.lit(False)))

    def earlier(column: str | Column) -> Column:
        return F.lag(column).over(in_group)

    ids = F.transform("members", lambda member: member["member_id"])
    return (
        every.withColumn("_ids", ids)
        .withColumn("_before", F.coalesce(earlier("_ids"), F.array().cast("array<string>")))
        .withColumn("previous_generation", earlier("generation"))
        .withColumn("previous_timestamp_ms", earlier("timestamp_ms"))
        .withColumn("joined", F.array_except("_ids", "_before"))
        .withColumn("left", F.array_except("_before", "_ids"))
        .where(
            F.col("_new")
            & (
                F.col("previous_generation").isNull()
                | (F.col("previous_generation") != F.col("generation"))
                | (F.size("joined") > 0)
                | (F.size("left") > 0)
            )
        )
        .select(
            *("group", "previous_generation", "generation", "previous_timestamp_ms", "timestamp_ms", "protocol"),
            F.size("_before").alias("members_before"),
            F.size("_ids").alias("members_after"),
            *("joined", "left", "offsets_partition", "offset"),
        )
    )


def expiries(commits: DataFrame, tombstones: DataFrame, transactions: DataFrame | None) -> DataFrame:
    """Return one row for each removal of an offset that was there: what it was, and how old (`age_ms`) its commit was.

    Expiry and deletion look the same in the log; an age of the retention or more speaks for expiry. What was there is
    what a fetch would have answered just before: a transactional commit counts from its marker on, unless there was a
    removal between them. Only commits of keys that were ever removed are sorted.
    """
    removed = tombstones.where(F.col("kind") == Kind.OFFSET_TOMBSTONE).select(*KEY, "offset", "timestamp_ms")
    value = ["committed_offset", "commit_timestamp_ms"]
    settled = settled_commits(commits.join(removed.select(*KEY).distinct(), KEY, "left_semi"), transactions)
    both = removed.withColumn("settled_at", F.col("offset")).unionByName(
        settled.select(
            *KEY, "offset", "settled_at", F.struct("committed_offset", "commit_timestamp_ms").alias("_value")
        ),
        allowMissingColumns=True,
    )
    earlier = Window.partitionBy(*KEY).orderBy("settled_at", "offset").rowsBetween(Window.unboundedPreceding, -1)
    removal = F.when(F.col("_value").isNull(), F.col("offset"))
    return (
        both.withColumn("_removed_before", F.coalesce(F.max(removal).over(earlier), F.lit(-1)))
        .where(F.col("offset") > F.col("_removed_before"))
        .groupBy(*KEY, "_removed_before")
        .agg(
            F.max(removal).alias("offset"),
            F.max("timestamp_ms").alias("timestamp_ms"),
            F.max_by("_value", F.when(F.col("_value").isNotNull(), F.col("offset"))).alias("_lost"),
        )
        .where(F.col("offset").isNotNull() & F.col("_lost").isNotNull())
        .select(
            *("group", "topic", "partition", "timestamp_ms"),
            *(F.col("_lost")[name].alias(name) for name in value),
            (F.col("timestamp_ms") - F.col("_lost")["commit_timestamp_ms"]).alias("age_ms"),
            *RECORD,
        )
    )
