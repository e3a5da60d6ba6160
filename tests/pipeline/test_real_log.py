"""The log that a pod wrote for real consumers tells what they did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from tests.pipeline.hand_made import Frames
from tests.support.pod import SoloPod

from muster_pipeline.analytics.ends import LOOK_BACK_MS, EndOffsetsError, ends_from_kafka
from muster_pipeline.analytics.groups import GroupState, Thresholds, group_states
from muster_pipeline.analytics.lag import lag
from muster_pipeline.analytics.regressions import Cause, regressions
from muster_pipeline.analytics.timeline import Departure, timeline
from muster_pipeline.decode.decoder import decode_segment
from muster_pipeline.source.files import find_segments
from muster_pipeline.tables.transforms import current_offsets, rebalances

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("few_rows")]
DEADLINE_S = 60
NOW_MS = 1_800_000_000_000


def consumer(bootstrap: str, name: str) -> Consumer:
    made = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "team", "client.id": name, "enable.auto.commit": False}
    )
    made.subscribe(["orders"])
    return made


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "no such assignment in time"
        for each in consumers:
            each.poll(0.05)


def commit_all(member: Consumer, offset: int) -> None:
    places = [TopicPartition("orders", each.partition, offset) for each in member.assignment()]
    member.commit(offsets=places, asynchronous=False)


def work(bootstrap: str) -> int:
    """One consumer, a second that joins, commits and leaves, and a commit further back. Returns its partition."""
    first = consumer(bootstrap, "first")
    poll_until(lambda: len(first.assignment()) == 4, first)
    commit_all(first, 10)
    second = consumer(bootstrap, "second")
    poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    commit_all(first, 20)
    commit_all(second, 20)
    moved = int(second.assignment()[0].partition)
    second.close()
    poll_until(lambda: len(first.assignment()) == 4, first)
    first.commit(offsets=[TopicPartition("orders", moved, 15)], asynchronous=False)
    first.close()
    return moved


def rows_of(data: Path) -> pa.Table:
    return pa.concat_tables(
        decode_segment(Path(each.path).read_bytes(), offsets_partition=each.offsets_partition)
        for each in find_segments([str(data)])
    )


async def test_log_of_a_pod_tells_what_real_consumers_did(spark: SparkSession, tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", 2, {"orders": 4}, ["group.initial.rebalance.delay.ms=0"]) as pod:
        bootstrap = f"127.0.0.1:{pod.kafka_port}"
        moved = await asyncio.to_thread(work, bootstrap)
        asked = [("orders", moved), ("orders", 9), ("gone", 0)]
        ends = await asyncio.to_thread(ends_from_kafka, bootstrap, asked, NOW_MS)
        assert pod.terminate() == 0
    # a coordinator's topics are empty, and it has not those that it was not told of
    assert ends.to_pylist() == [
        {"topic": "orders", "partition": moved, "timestamp_ms": NOW_MS - age_ms, "end_offset": 0}
        for age_ms in (0, *LOOK_BACK_MS)
    ]
    frames = Frames(spark, rows_of(tmp_path / "data"))
    told = timeline(rebalances(frames.generations), frames.history, frames.spans).orderBy("offset").collect()
    assert [(row["members_before"], row["members_after"]) for row in told if row["joined"] or row["departed"]] == [
        (0, 1),
        (1, 2),
        (2, 1),
        (1, 0),
    ]
    gone = [(each["client_id"], each["how"]) for row in told for each in row["departed"]]
    assert gone == [("second", Departure.LEFT), ("first", Departure.LEFT)]
    assert all(0 <= row["assign_ms"] < 30_000 for row in told if row["members_after"])
    [back] = regressions(frames.spans, frames.history).collect()
    assert (back["partition"], back["from_offset"], back["to_offset"], back["cause"]) == (moved, 20, 15, Cause.FAILOVER)
    current = current_offsets(frames.commits, frames.tombstones, frames.transactions)
    lags = lag(current, spark.createDataFrame(ends))
    assert [(row["lag"], row["end_below_committed"]) for row in lags.collect()] == [(0, True)]
    now_ms = told[-1]["timestamp_ms"] + 1
    [group] = group_states(current, frames.history, frames.spans, lags, now_ms, Thresholds()).collect()
    assert (group["group"], group["state"], group["partitions"]) == ("team", GroupState.EMPTY, 4)


def test_cluster_that_does_not_answer_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_pipeline.analytics.ends.ANSWER_TIMEOUT_S", 0.5)
    with pytest.raises(EndOffsetsError, match=r"127\.0\.0\.1:1 does not answer"):
        ends_from_kafka("127.0.0.1:1", [("orders", 0)], 0)
