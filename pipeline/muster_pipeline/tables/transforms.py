"""From history to state: DataFrame -> DataFrame, nothing read and nothing written."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from muster_pipeline.decode.schema import Kind

__all__ = ["current_offsets", "expiries", "memberships", "rebalances", "settled_commits", "until"]

KEY = ["offsets_partition", "group", "topic", "partition"]
RECORD = ["offsets_partition", "offset"]
CURRENT = [
    *("group", "topic", "partition", "committed_offset", "committed_leader_epoch", "metadata"),
    *("commit_timestamp_ms", "expire_timestamp_ms", "offsets_partition", "offset"),
]


def until(frame: DataFrame, at_ms: int | None) -> DataFrame:
    """The part of a history table that was written up to a moment (ms since 1970); all of it for None."""
    return frame if at_ms is None else frame.where(F.col("timestamp_ms") <= F.lit(at_ms))


def settled_commits(commits: DataFrame, transactions: DataFrame) -> DataFrame:
    """``commits`` without those of transactions that were aborted or are still open.

    A transactional commit is settled by the next marker of its producer in the same offsets partition. Records and
    markers are put in one order from the end, so that one pass finds the next marker of each: a join would compare each
    commit of a producer with all its markers.
    """
    plain = commits.where(F.col("producer_id").isNull())
    pending = commits.where(F.col("producer_id").isNotNull())
    marks = transactions.select(*RECORD, "producer_id", (F.col("kind") == Kind.TXN_COMMIT).alias("_committed"))
    unmarked = pending.select(*RECORD, "producer_id", F.lit(None).cast("boolean").alias("_committed"))
    backwards = (
        Window.partitionBy("offsets_partition", "producer_id")
        .orderBy(F.col("offset").desc())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    settled = (
        unmarked.unionByName(marks)
        .withColumn("_settled", F.last("_committed", ignorenulls=True).over(backwards))
        .where(F.col("_committed").isNull() & F.col("_settled"))
        .select(*RECORD)
    )
    return plain.unionByName(pending.join(settled, RECORD, "left_semi"))


def current_offsets(
    commits: DataFrame, tombstones: DataFrame, transactions: DataFrame, at_ms: int | None = None
) -> DataFrame:
    """What an OffsetFetch would have answered, now or at a past moment.

    The record with the highest offset decides, as at load (Kafka: OffsetMetadataManager), also between a transactional
    commit and a plain one. The order of the key's records is found on numbers alone; texts are joined to the few that
    are left.
    """
    settled = settled_commits(until(commits, at_ms), until(transactions, at_ms))
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
    """One row for each member of each generation record."""
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


def rebalances(generations: DataFrame) -> DataFrame:
    """One row for each change of a group's generation or members, with the record before it as what it came from."""
    in_group = Window.partitionBy("offsets_partition", "group").orderBy("offset")

    def before(column: str | Column) -> Column:
        return F.lag(column).over(in_group)

    ids = F.transform("members", lambda member: member["member_id"])
    return (
        generations.withColumn("_ids", ids)
        .withColumn("_before", F.coalesce(before("_ids"), F.array().cast("array<string>")))
        .withColumn("previous_generation", before("generation"))
        .withColumn("previous_timestamp_ms", before("timestamp_ms"))
        .withColumn("joined", F.array_except("_ids", "_before"))
        .withColumn("left", F.array_except("_before", "_ids"))
        .where(
            F.col("previous_generation").isNull()
            | (F.col("previous_generation") != F.col("generation"))
            | (F.size("joined") > 0)
            | (F.size("left") > 0)
        )
        .select(
            *("group", "previous_generation", "generation", "previous_timestamp_ms", "timestamp_ms", "protocol"),
            F.size("_before").alias("members_before"),
            F.size("_ids").alias("members_after"),
            *("joined", "left", "offsets_partition", "offset"),
        )
    )


def expiries(commits: DataFrame, tombstones: DataFrame, transactions: DataFrame) -> DataFrame:
    """One row for each removal of an offset that was there: what it was, and how old (``age_ms``) its commit was.

    Expiry and deletion look the same in the log; an age of the retention or more speaks for expiry. Only commits of
    keys that were ever removed are sorted.
    """
    removed = tombstones.where(F.col("kind") == Kind.OFFSET_TOMBSTONE).select(*KEY, "offset", "timestamp_ms")
    value = ["committed_offset", "commit_timestamp_ms"]
    settled = settled_commits(commits.join(removed.select(*KEY).distinct(), KEY, "left_semi"), transactions)
    both = removed.unionByName(settled.select(*KEY, "offset", "timestamp_ms", *value), allowMissingColumns=True)
    before = Window.partitionBy(*KEY).orderBy("offset")
    return (
        both.withColumn("_removed", F.col("committed_offset").isNull())
        .withColumn("committed_offset", F.lag("committed_offset").over(before))
        .withColumn("commit_timestamp_ms", F.lag("commit_timestamp_ms").over(before))
        .where(F.col("_removed") & F.col("committed_offset").isNotNull())
        .select(
            *("group", "topic", "partition", "timestamp_ms", *value),
            (F.col("timestamp_ms") - F.col("commit_timestamp_ms")).alias("age_ms"),
            *RECORD,
        )
    )
