"""One run: read what the logs got since the last one, append it to the history, derive, publish.

The history is read from the logs twice: for the commits, which are nearly everything, and for the rest. Filters on the
kind are applied while decoding, so the second pass makes few rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.schema import KINDS, PROBLEM_KINDS, Kind, select_schema
from muster_pipeline.source.files import SegmentFile, find_segments
from muster_pipeline.source.follow import Positions, advance, decode_positions, encode_positions
from muster_pipeline.source.places import open_segment
from muster_pipeline.tables.schemas import COLUMNS, DERIVED, HISTORY, KINDS_OF
from muster_pipeline.tables.store import Manifest, Store
from muster_pipeline.tables.transforms import current_offsets, expiries, memberships, rebalances

__all__ = ["read_table", "run_tables"]

TAIL_FILE = "tail.parquet"
Progress = Callable[[str], None]


def read_table(spark: SparkSession, store: Store, manifest: Manifest, table: str) -> DataFrame:
    """A history table or a derived one, as of the manifest; empty with its columns if no run had rows for it."""
    paths = store.paths(manifest, table)
    if paths:
        return spark.read.parquet(*paths)
    return spark.createDataFrame([], from_arrow_schema(select_schema(COLUMNS[table])))


def run_tables(
    spark: SparkSession,
    sources: Sequence[str],
    target: Path,
    *,
    fail_fast: bool = False,
    say: Progress = lambda _: None,
) -> Manifest:
    """Bring the tables in ``target`` up to what the logs hold now. Raises PipelineError, and Spark's errors in tasks.

    Interrupted at any place, the tables are as before, and the next run does the same again.
    """
    store = Store(target)
    with store.writing() as before:
        segments = find_segments(sources)
        start = decode_positions(before.positions)
        end = advance(segments, start, may_stall=True)
        run = before.run + 1
        options = {
            "mode": "FAILFAST" if fail_fast else "PERMISSIVE",
            "startingPositions": json.dumps(encode_positions(start)),
            "endingPositions": json.dumps(encode_positions(end)),
            "paths": json.dumps(list(sources)),
        }
        say("commits")
        added = {"commits": store.directory("commits", run)}
        columns = from_arrow_schema(select_schema([*COLUMNS["commits"], "kind"]))
        commits = spark.read.format("muster_offsets").options(**options).schema(columns).load()
        commits.where(F.col("kind") == Kind.OFFSET_COMMIT).select(*COLUMNS["commits"]).write.parquet(
            str(target / added["commits"])
        )
        say("other records")
        every = spark.read.format("muster_offsets").options(**options).load()
        rest = every.where(F.col("kind").isin(*sorted(KINDS - {Kind.OFFSET_COMMIT}))).cache()
        for table in HISTORY[1:]:
            added[table] = store.directory(table, run)
            rest.where(F.col("kind").isin(*KINDS_OF[table])).select(*COLUMNS[table]).write.parquet(
                str(target / added[table])
            )
        kinds = _count_kinds(before, rest, pq.ParquetDataset(target / added["commits"]))
        rest.unpersist()
        tables = {table: [*_lasting(before, table), added[table]] for table in HISTORY}
        tail = _write_tail(store, run, segments, end)
        tables["quality"].append(tail)
        history = replace(before, run=run, positions=encode_positions(end), tables=tables, kinds=kinds)
        say("derived tables")
        published = replace(history, tables=tables | _derive(spark, store, history))
        store.publish(published)
        return published


def _lasting(before: Manifest, table: str) -> list[str]:
    """A table's directories without that of the logs' tails, which every run looks at anew."""
    return [each for each in before.tables.get(table, []) if not each.startswith("data/tail/")]


def _count_kinds(before: Manifest, rest: DataFrame, commits: pq.ParquetDataset) -> dict[str, int]:
    counts = {row["kind"]: row["count"] for row in rest.groupBy("kind").count().collect()}
    counts[Kind.OFFSET_COMMIT] = sum(fragment.count_rows() for fragment in commits.fragments)
    return {
        kind: before.kinds.get(kind, 0) + counts.get(kind, 0) for kind in sorted(before.kinds.keys() | counts.keys())
    }


def _write_tail(store: Store, run: int, segments: list[SegmentFile], end: Positions) -> str:
    """What lies behind the last whole batch of each log: a write under way, or what a crash left. Listed, not counted:
    it may be whole the next time.
    """
    schema = select_schema(COLUMNS["quality"])
    decoder = Decoder(Selection(schema, PROBLEM_KINDS))
    found: list[pa.RecordBatch] = []
    for segment in segments:
        position = end.get(str(Path(segment.path).parent))
        if position is not None and position.segment == segment.base_offset:
            with open_segment(segment.path) as source:
                found += decoder.decode(source, segment.offsets_partition, position.position)
    relative = store.directory("tail", run)
    directory = store.root / relative
    directory.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches(found, schema), directory / TAIL_FILE)
    return relative


def _derive(spark: SparkSession, store: Store, history: Manifest) -> dict[str, list[str]]:
    def table(name: str) -> DataFrame:
        return read_table(spark, store, history, name)

    frames = {
        "current_offsets": current_offsets(table("commits"), table("tombstones"), table("transactions")),
        "memberships": memberships(table("generations")),
        "rebalances": rebalances(table("generations")),
        "expiries": expiries(table("commits"), table("tombstones"), table("transactions")),
    }
    derived = {}
    for name in DERIVED:
        derived[name] = [store.directory(name, history.run)]
        frames[name].write.parquet(str(store.root / derived[name][0]))
    return derived
