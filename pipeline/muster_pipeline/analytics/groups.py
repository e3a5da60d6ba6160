"""The state of groups at a moment, and which of their offsets will expire soon."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS


class GroupState:
    """Values of the column `state`, the ones that need attention first."""

    STALLED = "stalled"
    """Has members and lag, and a partition with lag has not moved for `stalled_after_ms`."""
    ABANDONED = "abandoned"
    """A group without members, and without a commit for `abandoned_after_ms`."""
    IDLE = "idle"
    """A group without a commit for `idle_after_ms`, though it has members, or is of consumers that need no group."""
    EMPTY = "empty"
    """A group without members, but not for long."""
    ACTIVE = "active"


@dataclass(frozen=True)
class Thresholds:
    """Thresholds in ms. `retention_ms` is the coordinator's offsets.retention.minutes; its default is Kafka's."""

    stalled_after_ms: int = 10 * _MINUTE_MS
    idle_after_ms: int = 60 * _MINUTE_MS
    abandoned_after_ms: int = _DAY_MS
    expiring_within_ms: int = _DAY_MS
    retention_ms: int = 7 * _DAY_MS


def group_states(
    current_offsets: DataFrame,
    history: DataFrame,
    spans: DataFrame,
    lags: DataFrame | None,
    at_ms: int,
    thresholds: Thresholds,
) -> DataFrame:
    """Return one row for each group that has offsets or members at `at_ms`. Without `lags` none is stalled."""
    latest = _latest(history)
    offsets = _offsets(current_offsets, latest, spans, lags, at_ms, thresholds)
    moved = spans.groupBy("group").agg(
        F.max("last_ms").alias("last_commit_ms"), F.max("last_advance_ms").alias("last_advance_ms")
    )
    members, quiet = F.coalesce("members", F.lit(0)), F.col("quiet_ms")
    managed = F.coalesce(F.col("protocol_type") != "", F.lit(False))
    state = (
        F.when((members > 0) & (F.coalesce("stalled_partitions", F.lit(0)) > 0), GroupState.STALLED)
        .when((members == 0) & (quiet >= thresholds.abandoned_after_ms), GroupState.ABANDONED)
        .when((members == 0) & managed, GroupState.EMPTY)
        .when(quiet >= thresholds.idle_after_ms, GroupState.IDLE)
        .otherwise(GroupState.ACTIVE)
    )
    there = (members > 0) | F.col("partitions").isNotNull()
    seen_ms = F.greatest(F.col("last_commit_ms"), F.col("changed_ms"))
    return (
        latest.drop("state_timestamp_ms")
        .join(offsets, "group", "full")
        .join(moved, "group", "left")
        .where(there)
        .withColumn("quiet_ms", F.lit(at_ms) - seen_ms)
        .withColumn("state", state)
        .select(
            *("group", "state", "members", "generation", "protocol_type", "protocol", "partitions", "lag"),
            *("stalled_partitions", "last_commit_ms", "last_advance_ms", "quiet_ms", "expires_ms"),
            F.coalesce(F.col("expires_ms") <= at_ms + thresholds.expiring_within_ms, F.lit(False)).alias(
                "expiring_soon"
            ),
        )
    )


def _latest(history: DataFrame) -> DataFrame:
    """Return each group as in its last record."""
    record = F.max_by(
        F.struct(
            "generation",
            "protocol_type",
            "protocol",
            "state_timestamp_ms",
            "timestamp_ms",
            F.size("members").alias("members"),
        ),
        "era",
    )
    last = history.groupBy("group").agg(record.alias("_last"))
    return last.select(
        "group",
        *(F.col("_last")[name].alias(name) for name in ("generation", "protocol_type", "protocol")),
        F.col("_last")["state_timestamp_ms"].alias("state_timestamp_ms"),
        F.col("_last")["timestamp_ms"].alias("changed_ms"),
        F.col("_last")["members"].alias("members"),
    )


def _offsets(
    current_offsets: DataFrame,
    latest: DataFrame,
    spans: DataFrame,
    lags: DataFrame | None,
    at_ms: int,
    thresholds: Thresholds,
) -> DataFrame:
    """Return, per group, its partitions, lag, stalled partitions, and when its first offset expires."""
    place = ["group", "topic", "partition"]
    moved = spans.groupBy(*place).agg(F.max("last_advance_ms").alias("_moved_ms"))
    frame = current_offsets.join(latest, "group", "left").join(moved, place, "left")
    known = lags.select(*place, "lag") if lags is not None else None
    frame = frame.join(known, place, "left") if known is not None else frame.withColumn("lag", F.lit(None).cast("long"))
    stuck = (F.col("lag") > 0) & (F.coalesce("_moved_ms", F.lit(0)) <= at_ms - thresholds.stalled_after_ms)
    return frame.groupBy("group").agg(
        F.count("*").alias("partitions"),
        F.sum("lag").alias("lag"),
        F.sum(F.coalesce(stuck, F.lit(False)).cast("long")).alias("stalled_partitions"),
        F.min(_expires_ms(thresholds.retention_ms)).alias("expires_ms"),
    )


def _expires_ms(retention_ms: int) -> Column:
    """The time at which a committed offset expires if nothing happens; null while the group has members.

    Kafka (OffsetExpirationConditionImpl, ClassicGroup#offsetExpirationCondition): a group that had members counts from
    when it became empty, any other from the commit; a commit with an expiry of its own keeps that.
    """
    empty_since = F.when(
        (F.col("protocol_type") != "") & (F.col("state_timestamp_ms") >= 0), F.col("state_timestamp_ms")
    )
    base = F.coalesce(empty_since, F.col("commit_timestamp_ms"))
    own = F.when(F.col("expire_timestamp_ms") >= 0, F.col("expire_timestamp_ms"))
    return F.when(F.coalesce("members", F.lit(0)) == 0, F.coalesce(own, base + retention_ms))
