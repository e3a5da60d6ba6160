"""Analytics on logs of a few records, against the rows that a person would write down for them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.hand_made import Frames, HandMadeLog, at

from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.analytics.ends import ENDS_SCHEMA
from muster_pipeline.analytics.groups import GroupState, Thresholds, group_states
from muster_pipeline.analytics.lag import group_lag, lag
from muster_pipeline.analytics.rates import commit_counts, commit_rates, commits_over_time
from muster_pipeline.analytics.regressions import Cause, regressions
from muster_pipeline.analytics.skew import group_load, partition_load, what_if
from muster_pipeline.analytics.timeline import Departure, rebalance_summary, timeline
from muster_pipeline.tables.transforms import current_offsets, expiries, rebalances

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("few_rows")]


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """In the order of their values."""
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)


def ends_frame(spark: SparkSession, *ends: tuple[int, float, int]) -> DataFrame:
    """(partition of "orders", second, end offset) each."""
    values = [dict(zip(ENDS_SCHEMA.names, ("orders", p, at(second), end), strict=True)) for p, second, end in ends]
    return spark.createDataFrame(pa.Table.from_pylist(values, ENDS_SCHEMA))


def current(frames: Frames) -> DataFrame:
    return current_offsets(frames.commits, frames.tombstones, frames.transactions)


def test_spans_count_commits_between_generations_and_leave_out_what_was_aborted(spark: SparkSession) -> None:
    log = HandMadeLog()
    log.commit(0, "g", 0, 10)
    log.generation(1, "g", 1, {"a": [0]})
    log.commit(2, "g", 0, 10)
    log.commit(3, "g", 0, 20)
    log.commit(4, "g", 0, 999, producer=7)
    log.end_transaction(5, 7, committed=False)
    log.commit(6, "g", 0, 15)
    log.commit(7, "g", 0, 30, producer=7)
    log.end_transaction(8, 7, committed=True)
    frames = Frames(spark, log)
    found = frames.spans.selectExpr("*", "size(back) as fell")
    assert rows(found, "era", "commits", "repeated", "first_ms", "last_ms", "last_advance_ms", "fell") == [
        (0, 1, None, at(0), at(0), at(0), 0),
        (1, 4, 1, at(2), at(7), at(7), 1),
    ]


def test_lag_in_records_and_in_time(spark: SparkSession) -> None:
    log = HandMadeLog()
    for partition, offset in enumerate([150, 300, 50, 310, 5]):
        log.commit(100, "g", partition, offset)
    log.commit(100, "other", 9, 1)  # its end is not known
    samples = [(partition, second, end) for partition in range(4) for second, end in [(0, 100), (60, 200), (120, 300)]]
    lags = lag(current(Frames(spark, log)), ends_frame(spark, *samples, (4, 120, 9)))
    assert rows(lags, "partition", "lag", "time_lag_ms", "at_least", "end_below_committed") == [
        (0, 150, 90_000, False, False),  # half way between the ends of second 0 and 60
        (1, 0, 0, False, False),
        (2, 250, 120_000, True, False),  # before the oldest end that is known
        (3, 0, 0, False, True),
        (4, 4, None, False, False),  # one end says nothing of time
    ]
    assert rows(group_lag(lags), "group", "lag", "max_lag", "max_lag_at", "time_lag_ms", "at_least", "partitions") == [
        ("g", 404, 250, "orders-2", 120_000, True, 5)
    ]


def regressions_of(spark: SparkSession, log: HandMadeLog, *ends: tuple[int, float, int]) -> list[tuple[Any, ...]]:
    frames = Frames(spark, log)
    found = regressions(frames.spans, frames.history, ends_frame(spark, *ends) if ends else None)
    return rows(found, "group", "partition", "from_offset", "to_offset", "reread", "gap_ms", "cause")


def test_regressions_and_their_causes(spark: SparkSession) -> None:
    log = HandMadeLog()
    log.generation(0, "seek", 1, {"a": [0]})
    log.commit(1, "seek", 0, 100)
    log.commit(2, "seek", 0, 40)
    log.commit(3, "seek", 0, 60)
    log.generation(0, "late", 1, {"a": [0]})
    for second, offset in enumerate([10, 20, 15, 30]):
        log.commit(second, "late", 0, offset)
    log.generation(0, "old", 1, {"a": [0]})
    log.commit(1, "old", 0, 10)
    log.commit(2, "old", 0, 20)
    log.generation(3, "old", 2, {"b": [0]})
    log.commit(4, "old", 0, 15)
    log.commit(5, "old", 0, 25)
    log.generation(0, "tool", 1, {"a": [0]})
    log.commit(1, "tool", 0, 100)
    log.generation(2, "tool", 2, {})
    log.commit(60, "tool", 0, 0)
    log.generation(0, "moved", 1, {"a": [0], "b": [1]})
    log.commit(1, "moved", 0, 100)
    log.generation(2, "moved", 2, {"b": [0, 1]})
    log.commit(4, "moved", 0, 70)
    log.commit(1, "simple", 0, 100)
    log.commit(2, "simple", 0, 0)
    log.commit(1, "expired", 0, 100)
    log.remove(2, "expired", 0)
    log.commit(3, "expired", 0, 5)
    log.commit(1, "aborted", 0, 9)
    log.commit(2, "aborted", 0, 3, producer=7)
    log.end_transaction(3, 7, committed=False)
    assert regressions_of(spark, log) == [
        ("expired", 0, 100, 5, 95, 1000, Cause.REMOVED),
        ("late", 0, 20, 15, 0, 1000, Cause.LATE),
        ("moved", 0, 100, 70, 30, 3000, Cause.FAILOVER),
        ("old", 0, 20, 15, 0, 2000, Cause.LATE_OLD_GENERATION),
        ("seek", 0, 100, 40, 60, 1000, Cause.REWOUND),
        ("simple", 0, 100, 0, 100, 1000, Cause.UNMANAGED),
        ("tool", 0, 100, 0, 100, 59_000, Cause.RESET),
    ]


def test_recreated_topic_is_known_by_its_end_or_by_all_groups_falling_to_a_lower_epoch(spark: SparkSession) -> None:
    log = HandMadeLog()
    log.commit(1, "a", 0, 1000, epoch=5)
    log.commit(2, "b", 0, 900, epoch=5)
    log.commit(3, "a", 0, 10, epoch=0)
    log.commit(4, "b", 0, 12, epoch=0)
    log.commit(1, "a", 1, 1000)
    log.commit(3, "a", 1, 10)
    log.commit(1, "a", 2, 1000, epoch=5)  # one group alone may as well have gone back to older records
    log.commit(3, "a", 2, 10, epoch=0)
    found = regressions_of(spark, log, (1, 10, 50), (2, 10, 5000))
    assert [(group, partition, cause) for group, partition, *_, cause in found] == [
        ("a", 0, Cause.RECREATED),
        ("a", 1, Cause.RECREATED),
        ("a", 2, Cause.UNMANAGED),
        ("b", 0, Cause.RECREATED),
    ]


def test_timeline_says_who_came_and_went_why_and_how_long_it_took(spark: SparkSession) -> None:
    log = HandMadeLog()
    log.generation(0, "g", 1, {"a": [0], "b": [1], "c": [2], "d": []}, joined=-0.5)
    for second in range(1, 100, 5):
        log.commit(second, "g", 0, second)
        if second < 40:
            log.commit(second, "g", 1, second)  # b falls silent
        log.commit(second, "g", 2, second)
    log.generation(100, "g", 2, {"a": [0, 1, 2], "e": []}, joined=97)
    log.commit(104, "g", 0, 200)
    log.remove_group(200, "g")
    log.generation(210, "g", 1, {"f": [0]})
    frames = Frames(spark, log)
    found = timeline(rebalances(frames.generations), frames.history, frames.spans)
    lines = [row.asDict(recursive=True) for row in found.orderBy("offset").collect()]
    shown = [(row["generation"], row["joined"], row["assign_ms"], row["pause_ms"]) for row in lines]
    assert shown == [
        (1, ["a", "b", "c", "d"], 500, None),
        (2, ["e"], 3000, 8000),
        (1, ["f"], 0, None),
    ]
    departed = [(each["member_id"], each["how"], each["silence_ms"]) for each in lines[1]["departed"]]
    assert departed == [
        ("b", Departure.TIMED_OUT, 60_000),
        ("c", Departure.LEFT, 0),
        ("d", Departure.UNKNOWN, None),
    ]
    columns = ["rebalances", "joined", "left", "timed_out", "left_or_timed_out", "longest_pause_ms", "most_members"]
    assert rows(rebalance_summary(found), *columns) == [(3, 6, 1, 1, 1, 8000, 4)]


def test_group_states_at_a_moment(spark: SparkSession) -> None:
    hour, day = 3600, 86_400
    log = HandMadeLog()
    for group in ("stuck", "busy", "quiet"):
        log.generation(0, group, 1, {"a": [0, 1]})
    log.commit(10, "stuck", 0, 5)
    log.commit(10, "quiet", 0, 5)
    log.commit(-60, "lonely", 0, 5)
    log.generation(0, "gone", 1, {"a": [0]})
    log.commit(10, "gone", 0, 5)
    log.generation(20, "gone", 2, {})
    log.commit(10, "deleted", 0, 5)
    log.remove(20, "deleted", 0)
    log.generation(3 * day - 60, "closed", 1, {"a": [0]})
    log.generation(3 * day - 30, "closed", 2, {})
    log.commit(3 * day - 40, "closed", 0, 5)
    log.commit(3 * day - hour / 2, "stuck", 0, 5)  # the same offset again
    log.commit(3 * day - 5, "busy", 0, 9)
    frames = Frames(spark, log)
    offsets = current(frames)
    lags = lag(offsets, ends_frame(spark, (0, 3 * day, 9)))
    found = group_states(
        offsets, frames.history, frames.spans, lags, at(3 * day), Thresholds(retention_ms=4 * day * 1000)
    )
    assert rows(found, "group", "state", "members", "lag", "stalled_partitions", "expires_ms", "expiring_soon") == [
        ("busy", GroupState.ACTIVE, 1, 0, 0, None, False),
        ("closed", GroupState.EMPTY, 0, 4, 0, at(7 * day - 30), False),
        ("gone", GroupState.ABANDONED, 0, 4, 1, at(4 * day + 20), False),
        ("lonely", GroupState.ABANDONED, None, 4, 1, at(4 * day - 60), True),
        ("quiet", GroupState.STALLED, 1, 4, 1, None, False),
        ("stuck", GroupState.STALLED, 1, 4, 1, None, False),
    ]
    without = group_states(offsets, frames.history, frames.spans, None, at(3 * day), Thresholds())
    states = dict(rows(without, "group", "state"))
    assert (states["stuck"], states["quiet"]) == (GroupState.ACTIVE, GroupState.IDLE)


def test_rates_name_the_group_that_commits_far_more_than_the_others(spark: SparkSession) -> None:
    log = HandMadeLog()
    for number in range(6):
        for second in range(10 + number):
            log.commit(second, f"group-{number}", 0, second // 2)
    for number in range(400):
        log.commit(number / 40, "loud", number % 4, number)
    frames = Frames(spark, log)
    counts = commit_counts(frames.commits, 5000)
    found = commit_rates(counts, frames.spans, 5000, 20_000)
    assert rows(found.where("outlier"), "group", "partitions", "commits", "per_second", "peak_per_second") == [
        ("loud", 4, 400, 20.0, 40.0)
    ]
    assert rows(found.where("group = 'group-0'"), "commits", "repeated_share", "outlier") == [(10, 0.5, False)]
    over_time = commits_over_time(counts, ["loud"])
    assert rows(over_time, "group", "bucket_ms", "commits") == [
        ("loud", at(0), 200),
        ("loud", at(5), 200),
        (None, at(0), 30),
        (None, at(5), 30),
        (None, at(10), 15),
    ]


def test_few_or_equal_groups_have_no_outlier(spark: SparkSession) -> None:
    log = HandMadeLog()
    for number in range(6):
        log.commit(number, f"group-{number}", 0, 1)
    frames = Frames(spark, log)
    found = commit_rates(commit_counts(frames.commits, 1000), frames.spans, 1000, 6000)
    assert set(rows(found, "score", "outlier")) == {(None, False)}


def test_load_of_the_offsets_partitions_and_of_another_number_of_them(spark: SparkSession) -> None:
    groups = {"payments": 7, "orders": 2, "billing": 1, "polygenelubricants": 3}  # the last hashes to the least integer
    logs = [HandMadeLog(partition) for partition in range(2)]
    for group, count in groups.items():
        for number in range(count):
            logs[partition_for(group, 2)].commit(number, group, 0, number)
    frames = Frames(spark, *logs)
    load = group_load(commit_counts(frames.commits, 1000))
    by_partition = {each: [g for g in groups if partition_for(g, 2) == each] for each in range(2)}
    assert rows(partition_load(load), "offsets_partition", "groups", "commits", "largest_group") == [
        (each, len(names), sum(groups[g] for g in names), max(names, key=groups.__getitem__))
        for each, names in by_partition.items()
        if names
    ]

    def expected(count: int) -> tuple[Any, ...]:
        loads = [sum(groups[g] for g in groups if partition_for(g, count) == each) for each in range(count)]
        return (count, loads.count(0), max(loads), max(loads) / 13, max(loads) * count / 13)

    columns = ["partitions", "without_groups", "busiest_commits", "busiest_share", "times_mean"]
    assert rows(what_if(load, [1, 3, 7]), *columns) == [expected(each) for each in (1, 3, 7)]


def test_expiries_name_what_was_lost(spark: SparkSession) -> None:
    log = HandMadeLog()
    log.commit(0, "g", 0, 5)
    log.commit(10, "g", 0, 6)
    log.commit(11, "g", 1, 1)
    log.remove(100, "g", 0)
    log.remove(101, "g", 0)  # nothing there any more
    log.remove(102, "g", 2)  # never was
    log.commit(103, "g", 0, 1)
    frames = Frames(spark, log)
    found = expiries(frames.commits, frames.tombstones, frames.transactions)
    assert rows(found, "group", "partition", "timestamp_ms", "committed_offset", "age_ms") == [
        ("g", 0, at(100), 6, 90_000)
    ]
