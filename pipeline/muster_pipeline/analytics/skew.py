"""The load of groups on the offsets partitions, now and with another number of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.analytics.history import GROUP

_HASHES = 2**31
"""`partition_for` among as many is the non-negative hash itself."""


def group_load(counts: DataFrame) -> DataFrame:
    """Sum `rates.commit_counts` per group."""
    return counts.groupBy(*GROUP).agg(F.sum("commits").alias("commits"))


def partition_load(load: DataFrame) -> DataFrame:
    """Return groups and commits of each offsets partition that has any, with its largest group."""
    return load.groupBy("offsets_partition").agg(
        F.countDistinct("group").alias("groups"),
        F.sum("commits").alias("commits"),
        F.max_by("group", "commits").alias("largest_group"),
        F.max("commits").alias("largest_commits"),
    )


def what_if(load: DataFrame, partition_counts: Sequence[int]) -> DataFrame:
    """Return, for each number of offsets partitions, the load of the busiest one and how even the load is.

    Groups go where Kafka's hash puts them. `busiest_share` is of all commits, `times_mean` the busiest's load by
    that of the mean, at best 1.0; the largest group bounds it, which no number of partitions divides.
    """
    groups = load.groupBy("group").agg(F.sum("commits").alias("commits"))
    hashed = groups.mapInArrow(_hash, "hash bigint, commits bigint")
    every = hashed.withColumn(
        "partitions", F.explode(F.array(*(F.lit(each) for each in sorted(set(partition_counts)))))
    )
    parts = every.groupBy("partitions", (F.col("hash") % F.col("partitions")).alias("_partition")).agg(
        F.sum("commits").alias("_commits"), F.count("*").alias("_groups")
    )
    total = F.sum("_commits")
    return parts.groupBy("partitions").agg(
        (F.col("partitions") - F.count("*")).alias("without_groups"),
        F.max("_groups").alias("most_groups"),
        F.max("_commits").alias("busiest_commits"),
        (F.max("_commits") / total).alias("busiest_share"),
        (F.max("_commits") * F.col("partitions") / total).alias("times_mean"),
    )


def _hash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        hashes = [partition_for(group, _HASHES) for group in batch.column("group").to_pylist()]
        yield pa.record_batch({"hash": pa.array(hashes, pa.int64()), "commits": batch.column("commits")})
