"""One run: read new records from the logs, append them to the history tables, update derived tables, publish.

A run reads the new records twice: once for commits, which are nearly all of them, and once for the rest. Filters on
the kind are applied while decoding, so the second pass makes few rows. Derived tables are computed from the new records
and from the state that the last run stored for each key: offsets, open transactions, the last record of each group. So
the cost of a run grows with the new records only, and many runs give the same rows as one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.schema import KINDS, PROBLEM_KINDS, Kind, select_schema
from muster_pipeline.decode.slow_rows import to_batch
from muster_pipeline.source.files import SegmentFile, find_segments
from muster_pipeline.source.follow import LogRewrittenError, Positions, advance, decode_positions, encode_positions
from muster_pipeline.source.locations import open_segment
from muster_pipeline.source.topics import BOTH_TOPICS
from muster_pipeline.tables.schemas import APPENDED, CARRIED, COLUMNS, DERIVED, HISTORY, KINDS_OF, ExtraProblems
from muster_pipeline.tables.store import Manifest, Store
from muster_pipeline.tables.transforms import (
    current_offsets,
    current_transactions,
    expiries,
    last_generations,
    memberships,
    open_commits,
    rebalances,
)

TAIL, TAIL_FILE = "data/tail/", "tail.parquet"
Progress = Callable[[str], None]
Tables = Mapping[str, list[str]]


def read_table(spark: SparkSession, store: Store, manifest: Manifest, table: str) -> DataFrame:
    """Read a history or derived table as of the manifest; empty with its columns if no run had rows for it."""
    return _frame(spark, store, manifest.tables.get(table, []), table)


def _frame(spark: SparkSession, store: Store, directories: Sequence[str], table: str) -> DataFrame:
    if directories:
        return spark.read.parquet(*(str(store.root / each) for each in directories))
    return spark.createDataFrame([], from_arrow_schema(select_schema(COLUMNS[table])))


def run_tables(
    spark: SparkSession,
    sources: Sequence[str],
    target: Path,
    *,
    fail_fast: bool = False,
    extra_problems: ExtraProblems = lambda _: (),
    say: Progress = lambda _: None,
) -> Manifest:
    """Bring the tables in `target` up to the end of the logs; return the manifest, the old one if nothing is new.

    `extra_problems` returns further rows for the table of problems, given the segments. If the run is interrupted,
    the tables are as before, and the next run does the same again. Raises PipelineError, and Spark's errors in tasks.
    """
    store = Store(target)
    with store.writing() as before:
        segments = find_segments(sources, BOTH_TOPICS)
        start = decode_positions(before.positions)
        try:
            end = advance(segments, start, may_stall=True)
        except LogRewrittenError as exc:
            raise LogRewrittenError(f"{exc}. These tables stay as they are: make new ones in another place") from exc
        tail = _tail(segments, end, extra_problems)
        if end == start and before.run and tail.equals(_tail_before(store, before)):
            return before
        run = before.run + 1
        tables = dict(before.tables)
        kinds = before.kinds
        if end != start or not before.run:
            tables, kinds = _read_and_derive(spark, store, before, sources, (start, end), fail_fast, say)
        tables |= {name: store.merged(name, tables[name], run) for name in (*HISTORY[:-1], *APPENDED)}
        tables["quality"] = [*_lasting(tables["quality"]), _write_tail(store, run, tail)]
        published = replace(before, run=run, positions=encode_positions(end), tables=tables, kinds=kinds)
        store.publish(published)
        return published


def _read_and_derive(
    spark: SparkSession,
    store: Store,
    before: Manifest,
    sources: Sequence[str],
    between: tuple[Positions, Positions],
    fail_fast: bool,
    say: Progress,
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Read the records between two positions; return the directories of all tables, and the number of rows by kind."""
    run = before.run + 1
    options = {
        "mode": "FAILFAST" if fail_fast else "PERMISSIVE",
        "startingPositions": json.dumps(encode_positions(between[0])),
        "endingPositions": json.dumps(encode_positions(between[1])),
        "paths": json.dumps(list(sources)),
    }
    say("commits")
    added = {"commits": store.directory("commits", run)}
    columns = from_arrow_schema(select_schema([*COLUMNS["commits"], "kind"]))
    commits = spark.read.format("muster_offsets").options(**options).schema(columns).load()
    commits.where(F.col("kind") == Kind.OFFSET_COMMIT).select(*COLUMNS["commits"]).write.parquet(
        str(store.root / added["commits"])
    )
    say("other records")
    every = spark.read.format("muster_offsets").options(**options).load()
    rest = every.where(F.col("kind").isin(*sorted(KINDS - {Kind.OFFSET_COMMIT}))).cache()
    counts = {row["kind"]: row["count"] for row in rest.groupBy("kind").count().collect()}
    for table in HISTORY[1:]:
        if any(counts.get(kind) for kind in KINDS_OF[table]):
            added[table] = store.directory(table, run)
            chosen = rest.where(F.col("kind").isin(*KINDS_OF[table])).select(*COLUMNS[table])
            chosen.write.parquet(str(store.root / added[table]))
    rest.unpersist()
    counts[Kind.OFFSET_COMMIT] = store.rows(added["commits"])
    kinds = {kind: before.kinds.get(kind, 0) + counts.get(kind, 0) for kind in sorted({*before.kinds, *counts})}
    new = {table: [added[table]] if table in added else [] for table in HISTORY}
    tables = {table: [*before.tables.get(table, []), *new[table]] for table in HISTORY}
    say("derived tables")
    if any(
        table not in before.tables for table in (*DERIVED, *CARRIED)
    ):  # the first run, or tables of an older version
        return tables | _derive(spark, store, run, tables, kinds, None), kinds
    return tables | _derive(spark, store, run, new, counts, before.tables), kinds


def _lasting(directories: list[str]) -> list[str]:
    """Return the directories of problems without the one for the logs' tails, which every run writes again."""
    return [each for each in directories if not each.startswith(TAIL)]


def _tail(segments: list[SegmentFile], end: Positions, extra_problems: ExtraProblems) -> pa.Table:
    """Return the problems after the last whole batch of each log, and the extra problems.

    These bytes are a write under way or the remains of a crash. They are listed and not counted, because the batch may
    be whole in the next run.
    """
    schema = select_schema(COLUMNS["quality"])
    decoder = Decoder(Selection(schema, PROBLEM_KINDS))
    found: list[pa.RecordBatch] = []
    for segment in segments:
        position = end.get(segment.log)
        if position is not None and segment.base_offset >= position.segment:
            with open_segment(segment.path) as source:
                start = position.position if segment.base_offset == position.segment else 0
                found += decoder.decode(source, segment.origin(start))
    rows = list(extra_problems(segments))
    return pa.Table.from_batches([*found, to_batch(rows, schema)] if rows else found, schema)


def _tail_before(store: Store, before: Manifest) -> pa.Table:
    [directory] = [each for each in before.tables["quality"] if each.startswith(TAIL)]
    return pq.read_table(store.root / directory / TAIL_FILE)


def _write_tail(store: Store, run: int, tail: pa.Table) -> str:
    relative = store.directory("tail", run)
    directory = store.root / relative
    directory.mkdir(parents=True)
    pq.write_table(tail, directory / TAIL_FILE)
    return relative


def _derive(
    spark: SparkSession, store: Store, run: int, new: Tables, counts: Mapping[str, int], carried: Tables | None
) -> dict[str, list[str]]:
    """Write the derived tables; return their directories.

    `new` has the directories of the records that this run read, or of the whole history if nothing is `carried`.
    `counts` has their rows by kind: a kind without rows starts no job.
    """

    def table(name: str) -> DataFrame:
        return _frame(spark, store, new[name], name)

    commits, tombstones, generations = table("commits"), table("tombstones"), table("generations")
    transactional = store.has_values(new["commits"], "producer_id")
    last = None
    states = table("transaction_states")
    if carried is not None:
        known = _frame(spark, store, carried["current_transactions"], "current_transactions")
        states = states.unionByName(known.withColumn("kind", F.lit(Kind.TRANSACTION_STATE)))
        transactional = transactional or any(map(store.rows, carried["open_commits"]))
        for name in (
            "current_offsets",
            "open_commits",
        ):  # no transaction can revoke an offset that counts
            frame = _frame(spark, store, carried[name], name)
            commits = commits.unionByName(frame, allowMissingColumns=True)
        last = _frame(spark, store, carried["last_generations"], "last_generations")
    transactions = table("transactions") if transactional else None
    grouped, removed = counts.get(Kind.GROUP_METADATA, 0) > 0, counts.get(Kind.OFFSET_TOMBSTONE, 0) > 0
    stated = any(counts.get(kind, 0) for kind in KINDS_OF["transaction_states"])
    frames = {
        "current_transactions": (current_transactions(states), stated),
        "current_offsets": (current_offsets(commits, tombstones, transactions), True),
        "open_commits": (open_commits(commits, tombstones, table("transactions")), transactional),
        "last_generations": (last_generations(generations if last is None else generations.unionByName(last)), grouped),
        "memberships": (memberships(generations), grouped),
        "rebalances": (rebalances(generations, last), grouped),
        "expiries": (expiries(commits, tombstones, transactions), removed),
    }
    derived = {}
    for name, (frame, has_rows) in frames.items():
        earlier = [] if carried is None else carried[name]
        if not has_rows and earlier and name != "open_commits":
            derived[name] = earlier
            continue
        directory = store.directory(name, run)
        if has_rows:
            frame.write.parquet(str(store.root / directory))
        else:
            store.write_empty(directory, to_arrow_schema(frame.schema))
        derived[name] = [*earlier, directory] if name in APPENDED else [directory]
    return derived
