"""Offsets straight from logs, without tables: one pass over the logs, of which little goes through Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from muster_pipeline.decode.schema import select_schema
from muster_pipeline.source.options import ALL, LAST
from muster_pipeline.tables.schemas import COLUMNS, KINDS_OF
from muster_pipeline.tables.transforms import current_offsets

__all__ = ["offsets_of_logs"]

_TABLES = ("commits", "tombstones", "transactions")


@contextmanager
def offsets_of_logs(spark: SparkSession, sources: Sequence[str], at_ms: int | None = None) -> Iterator[DataFrame]:
    """``transforms.current_offsets`` of logs; the frame can be used until the end of the context.

    For the offsets of now each task gives of the commits and removals of one key the last one only (``keep``), which
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
        commits, tombstones, transactions = (records.where(F.col("kind").isin(KINDS_OF[name])) for name in _TABLES)
        yield current_offsets(commits, tombstones, transactions, at_ms)
    finally:
        records.unpersist()
