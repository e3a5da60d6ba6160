"""Collects the analytics of tables as a few plain rows. Only rows that the page shows leave Spark."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from muster_pipeline.analytics.groups import Thresholds, group_states
from muster_pipeline.analytics.history import group_history
from muster_pipeline.analytics.lag import group_lag, lag
from muster_pipeline.analytics.rates import commit_counts, commit_rates, commits_over_time
from muster_pipeline.analytics.regressions import regressions
from muster_pipeline.analytics.skew import group_load, partition_load, what_if
from muster_pipeline.analytics.spans import spans
from muster_pipeline.analytics.timeline import rebalance_summary, timeline
from muster_pipeline.analytics.transactions import open_transactions
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.source.topics import TRANSACTIONS_TOPIC
from muster_pipeline.tables.run import read_table
from muster_pipeline.tables.store import Manifest, Store
from muster_pipeline.tables.transforms import current_offsets, current_transactions, rebalances, until

MAX_ROWS = 100
MAX_EVENTS = 2000
"""Rebalances and regressions that a plot draws, the newest."""
TOP_GROUPS = 5
OLD_SHARE = 0.01
_BUCKETS = 96
_NICE_MS = [1000 * each for each in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 86_400)]
_COUNTS = (3, 6, 12, 25, 50, 100, 200, 400)
STEPS = [
    *("commits by time", "commits by partition", "groups", "regressions", "rebalances", "load of partitions"),
    "transactions",
]

Row = dict[str, Any]
EndsOf = Callable[[list[tuple[str, int]], int], pa.Table]
"""Reads the ends of the logs of (topic, partition); the number is the moment in ms that counts as now."""


class EmptyTablesError(PipelineError):
    """There is no commit and no group to report on."""


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report. `at_ms` None means as of the newest record; `ends` None: end offsets are unknown."""

    at_ms: int | None = None
    ends: EndsOf | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True)
class Listing:
    """The first rows of a list, and how many rows it has."""

    rows: list[Row] = field(default_factory=list)
    total: int = 0


@dataclass(frozen=True)
class Activity:
    """Commits over time. `over_time`: commits by `bucket_ms` of the TOP_GROUPS; all others under a null group."""

    bucket_ms: int
    over_time: list[Row]
    rates: Listing
    outliers: list[Row]


@dataclass(frozen=True)
class Groups:
    """`states`: how many groups are in each. `listed`: those that are not active. `lags` by partition and
    `group_lags`: None where end offsets are not known.
    """

    states: dict[str, int]
    listed: Listing
    expiring: Listing
    lags: Listing | None
    group_lags: list[Row] | None


@dataclass(frozen=True)
class Regressions:
    """Offsets that went back. `events`: the newest. `by_group`: by group and cause, most records read again first."""

    events: Listing
    by_group: list[Row]


@dataclass(frozen=True)
class Rebalances:
    events: Listing
    by_group: Listing


@dataclass(frozen=True)
class Load:
    """Load of the offsets partitions. `partitions`: their number, as far as the names of the logs tell."""

    partitions: int
    by_partition: list[Row]
    what_if: list[Row]


@dataclass(frozen=True)
class Transactions:
    """`states`: how many transactional ids are in each. `listed`: those with an open transaction, the oldest first;
    `overdue` of them are open beyond their time-out."""

    states: dict[str, int]
    listed: Listing
    overdue: int


@dataclass(frozen=True)
class Quality:
    listed: Listing
    bad_bytes: int


@dataclass(frozen=True)
class ReportData:
    """`from_ms`: activity and load are counted from there, because logs keep a few records that are much older than
    the rest."""

    at_ms: int
    first_ms: int
    from_ms: int
    last_ms: int
    run: int
    logs: int
    kinds: dict[str, int]
    thresholds: Thresholds
    activity: Activity
    groups: Groups
    regressions: Regressions
    rebalances: Rebalances
    load: Load
    transactions: Transactions
    quality: Quality


@dataclass(frozen=True)
class _Past:
    """The history tables up to the moment of the report, and what most of the analytics share."""

    commits: DataFrame
    tombstones: DataFrame
    transactions: DataFrame
    generations: DataFrame
    transaction_states: DataFrame
    history: DataFrame
    spans: DataFrame


def collect(
    spark: SparkSession, store: Store, options: ReportOptions, say: Callable[[str], None] = lambda _: None
) -> ReportData:
    """Raises StoreError, EmptyTablesError, and what `options.ends` raises. `say` hears STEPS one by one.

    Frames that several of the analytics share stay cached until the session ends.
    """
    manifest = store.published()
    past = _past(spark, store, manifest, options.at_ms)
    say(STEPS[0])
    first_ms, busy_ms, last_ms = _range(past)
    at_ms = last_ms if options.at_ms is None else options.at_ms
    bucket_ms = _bucket(last_ms - busy_ms)
    from_ms = busy_ms // bucket_ms * bucket_ms
    counts = commit_counts(past.commits.where(F.col("timestamp_ms") >= from_ms), bucket_ms).cache()
    counts.count()
    say(STEPS[1])
    activity = _activity(counts, past.spans, bucket_ms, last_ms - from_ms)
    say(STEPS[2])
    current = current_offsets(past.commits, past.tombstones, past.transactions).cache()
    ends = _ends(spark, current, options.ends, at_ms)
    groups = _groups(current, past, ends, at_ms, options.thresholds)
    say(STEPS[3])
    regressed = _regressions(past, ends)
    say(STEPS[4])
    rebalanced = _rebalances(past)
    say(STEPS[5])
    logs = [each for each in manifest.positions["logs"] if TRANSACTIONS_TOPIC not in each]
    load = _load(counts, max(map(_partition_number, logs), default=0) + 1)
    say(STEPS[6])
    transactions = _transactions(past.transaction_states, at_ms)
    quality = _quality(read_table(spark, store, manifest, "quality"))
    return ReportData(
        at_ms=at_ms,
        first_ms=first_ms,
        from_ms=from_ms,
        last_ms=last_ms,
        run=manifest.run,
        logs=len(manifest.positions["logs"]),
        kinds=manifest.kinds,
        thresholds=options.thresholds,
        activity=activity,
        groups=groups,
        regressions=regressed,
        rebalances=rebalanced,
        load=load,
        transactions=transactions,
        quality=quality,
    )


def _past(spark: SparkSession, store: Store, manifest: Manifest, at_ms: int | None) -> _Past:
    names = ("commits", "tombstones", "transactions", "generations", "transaction_states")
    commits, tombstones, transactions, generations, states = (
        until(read_table(spark, store, manifest, name), at_ms) for name in names
    )
    history = group_history(generations, tombstones).cache()
    passed = spans(commits, tombstones, transactions, history).cache()
    return _Past(commits, tombstones, transactions, generations, states, history, passed)


def _activity(counts: DataFrame, passed: DataFrame, bucket_ms: int, span_ms: int) -> Activity:
    rates = commit_rates(counts, passed, bucket_ms, span_ms).cache()
    listed = _listing(rates.orderBy(F.desc("commits"), "group"))
    top = [row["group"] for row in listed.rows[:TOP_GROUPS]]
    over_time = _rows(commits_over_time(counts, top).orderBy("bucket_ms"))
    return Activity(
        bucket_ms, over_time, listed, _rows(rates.where("outlier").orderBy(F.desc("commits")).limit(MAX_ROWS))
    )


def _groups(current: DataFrame, past: _Past, ends: DataFrame | None, at_ms: int, thresholds: Thresholds) -> Groups:
    lags = lag(current, ends).cache() if ends is not None else None
    states = group_states(current, past.history, past.spans, lags, at_ms, thresholds).cache()
    by_state = {row["state"]: row["count"] for row in states.groupBy("state").count().collect()}
    urgency = F.expr("array_position(array('stalled', 'abandoned', 'idle', 'empty'), state)")
    return Groups(
        by_state,
        _listing(states.where("state != 'active'").orderBy(urgency, F.desc("lag"), F.desc("quiet_ms"), "group")),
        _listing(states.where("expiring_soon").orderBy("expires_ms", "group")),
        None if lags is None else _listing(lags.orderBy(F.desc("lag"), F.desc("time_lag_ms"), "group", "partition")),
        None if lags is None else _rows(group_lag(lags).orderBy(F.desc("lag"), "group").limit(MAX_ROWS)),
    )


def _regressions(past: _Past, ends: DataFrame | None) -> Regressions:
    back = regressions(past.spans, past.history, ends).cache()
    by_group = back.groupBy("group", "cause").agg(
        F.count("*").alias("times"), F.sum("reread").alias("reread"), F.max("timestamp_ms").alias("last_ms")
    )
    return Regressions(
        _listing(back.orderBy(F.desc("timestamp_ms"), F.desc("offset")), MAX_EVENTS),
        _rows(by_group.orderBy(F.desc("reread"), F.desc("times"), "group").limit(MAX_ROWS)),
    )


def _rebalances(past: _Past) -> Rebalances:
    changes = timeline(rebalances(past.generations), past.history, past.spans).cache()
    return Rebalances(
        _listing(changes.orderBy(F.desc("timestamp_ms"), F.desc("offset")), MAX_EVENTS),
        _listing(rebalance_summary(changes).orderBy(F.desc("rebalances"), "group")),
    )


def _load(counts: DataFrame, partitions: int) -> Load:
    load = group_load(counts)
    return Load(
        partitions,
        _rows(partition_load(load).orderBy("offsets_partition")),
        _rows(what_if(load, [*_COUNTS, partitions]).orderBy("partitions")),
    )


def _transactions(states: DataFrame, at_ms: int) -> Transactions:
    current = current_transactions(states).cache()
    by_state = {
        row["transaction_state"]: row["count"] for row in current.groupBy("transaction_state").count().collect()
    }
    found = open_transactions(current, at_ms).cache()
    listed = _listing(found.orderBy(F.desc("overdue"), F.desc("age_ms"), "transactional_id"))
    return Transactions(by_state, listed, found.where("overdue").count() if listed.total else 0)


def _quality(problems: DataFrame) -> Quality:
    listed = _listing(problems.orderBy(F.desc("problem_bytes"), "file", "position"))
    if not listed.total:
        return Quality(listed, 0)
    return Quality(listed, problems.agg(F.sum("problem_bytes").alias("bytes")).collect()[0]["bytes"])


def _partition_number(log: str) -> int:
    """Return the partition number in the name of a log's directory; 0 if there is none."""
    number = log.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _range(past: _Past) -> tuple[int, int, int]:
    """(first record, the one that OLD_SHARE of them are older than, last record) in ms. Raises EmptyTablesError."""
    last = past.transaction_states.agg(F.max("timestamp_ms").alias("last")).collect()[0]["last"]
    found = (
        past.commits.select("timestamp_ms")
        .unionByName(past.generations.select("timestamp_ms"))
        .agg(
            F.min("timestamp_ms").alias("first"),
            F.percentile_approx("timestamp_ms", OLD_SHARE).alias("busy"),
            F.max("timestamp_ms").alias("last"),
        )
        .collect()[0]
    )
    if found["first"] is None:
        raise EmptyTablesError("the tables hold no commit and no group up to that moment: there is nothing to report")
    return found["first"], found["busy"], max(found["last"], last or 0)


def _bucket(span_ms: int) -> int:
    return next((each for each in _NICE_MS if span_ms / each <= _BUCKETS), math.ceil(span_ms / _BUCKETS))


def _ends(spark: SparkSession, current: DataFrame, ends: EndsOf | None, at_ms: int) -> DataFrame | None:
    if ends is None:
        return None
    places = [(row["topic"], row["partition"]) for row in current.select("topic", "partition").distinct().collect()]
    found = ends(places, at_ms)
    return spark.createDataFrame(found).cache() if found.num_rows else None


def _rows(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _listing(frame: DataFrame, limit: int = MAX_ROWS) -> Listing:
    rows = _rows(frame.limit(limit + 1))
    return Listing(rows[:limit], len(rows) if len(rows) <= limit else frame.count())
