"""Numbers the records that change a group's members, in the order of the log."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from muster_pipeline.decode.schema import Kind

GROUP = ["offsets_partition", "group"]


def group_history(generations: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Generation records and removals of the group, `era` 1, 2, ... for each group: what was committed between two of
    them belongs to one set of members. A removal has a null generation and no members.
    """
    columns = ["generation", "protocol_type", "protocol", "state_timestamp_ms", "members"]
    removed = tombstones.where(F.col("kind") == Kind.GROUP_TOMBSTONE).select(*GROUP, "offset", "timestamp_ms")
    both = generations.select(*GROUP, "offset", "timestamp_ms", *columns).unionByName(removed, allowMissingColumns=True)
    return both.withColumn("members", F.coalesce("members", F.array())).withColumn(
        "era", F.row_number().over(Window.partitionBy(*GROUP).orderBy("offset"))
    )


def owners(history: DataFrame) -> DataFrame:
    """Return one row for each partition that a member of a generation owned; groups of the consumer protocol only."""
    member = history.select(*GROUP, "era", F.explode("members").alias("member"))
    return member.select(
        *(*GROUP, "era"),
        *(F.col("member")[name].alias(name) for name in ("member_id", "client_id", "client_host")),
        F.explode(F.col("member")["assigned"]).alias("_owned"),
    ).select(
        *(*GROUP, "era", "member_id", "client_id", "client_host"),
        F.col("_owned")["topic"].alias("topic"),
        F.col("_owned")["partition"].alias("partition"),
    )
