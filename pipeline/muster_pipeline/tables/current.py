"""Computes current offsets from logs without tables, in one pass over the logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from muster_pipeline.decode.schema import Kind, select_schema
from muster_pipeline.source.options import ALL, LAST
from muster_pipeline.tables.schemas import COLUMNS, KINDS_OF
from muster_pipeline.tables.transforms import CURRENT, KEY, current_offsets

_TABLES = ("commits", "tombstones", "transactions")


@contextmanager
def offsets_of_logs(spark: SparkSession, sources: Sequence[str], at_ms: int | None = None) -> Iterator[DataFrame]:
    """`transforms.current_offsets` of logs; the frame can be used until the end of the context.

    For the offsets of now each task gives of the commits and removals of one key the last one only (`keep`), which
    decides whatever lies before it; a past moment (ms since 1970) needs them all. What the tasks give is kept for the
    passes over it, on disk where it does not fit into memory.
    """
    columns = list(dict.fromkeys(["kind", *(column for name in _TABLES for column in COLUMNS[name])]))
    kinds = [kind for name in _TABLES for kind in KINDS_OF[name]]
    records = (
        spark.read.format("muster_offsets")
        .options(paths=json.dumps(list(sources)), keep=LAST if at_ms is None else ALL)
        .schema(from_arrow_schema(select_schema(columns)))
        .load()
        .where(F.col("kind").isin(kinds))
        .persist()
    )
    try:
        if at_ms is None and not _are_transactional(records):
            yield _last_commits(records)
            return
        commits, tombstones, transactions = (records.where(F.col("kind").isin(KINDS_OF[name])) for name in _TABLES)
        yield current_offsets(commits, tombstones, transactions, at_ms)
    finally:
        records.unpersist()


def _are_transactional(records: DataFrame) -> bool:
    """True if any commit is transactional. Reads all of them."""
    [(found,)] = records.agg(F.max(F.col("producer_id").isNotNull())).collect()
    return bool(found)


def _last_commits(records: DataFrame) -> DataFrame:
    """`current_offsets` of records without transactions: one shuffle of few rows instead of several joins."""
    changes = records.where(F.col("kind").isin(Kind.OFFSET_COMMIT, Kind.OFFSET_TOMBSTONE))
    last = changes.groupBy(*KEY).agg(F.max_by(F.struct("kind", *CURRENT), "offset").alias("_last"))
    return last.where(F.col("_last")["kind"] == Kind.OFFSET_COMMIT).select("_last.*").select(*CURRENT)
