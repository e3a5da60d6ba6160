"""Where a real Kafka broker's partitions end, now and before: asked, kept in a mirror, and what lag comes of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.pipeline.hand_made import Frames, HandMadeLog
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet

from muster_cli.main import cli
from muster_pipeline.analytics.ends import LOOK_BACK_MS, ends_from_file, ends_from_kafka
from muster_pipeline.analytics.lag import lag
from muster_pipeline.tables.transforms import current_offsets

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("few_rows"),
]
MINUTE_MS = 60_000
WRITTEN = {120: 100, 30: 40, 3: 10}
"""Minutes ago: records."""


def produce(bootstrap: str, now_ms: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for minutes, count in WRITTEN.items():
        for _ in range(count):
            producer.produce("orders", b"x", partition=1, timestamp=now_ms - minutes * MINUTE_MS)
    assert producer.flush(60) == 0


def ends_of(bootstrap: str, now_ms: int) -> dict[int, int]:
    """Age in minutes: end of orders-1."""
    found = ends_from_kafka(bootstrap, [("orders", 1), ("orders", 9), ("gone", 0)], now_ms).to_pylist()
    assert {(row["topic"], row["partition"]) for row in found} == {("orders", 1)}
    return {(now_ms - row["timestamp_ms"]) // MINUTE_MS: row["end_offset"] for row in found}


async def test_ends_of_a_broker_and_of_its_mirror_give_lag_and_lag_in_time(spark: SparkSession, tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    mirror = tmp_path / "mirror"
    arguments = ["pipeline", "mirror", "--output", str(mirror), "--bootstrap-server"]
    async with KafkaBroker(tmp_path / "broker", {}, {"orders": 2}) as broker:
        bootstrap = f"127.0.0.1:{broker.port}"
        await asyncio.to_thread(produce, bootstrap, now_ms)
        asked = await asyncio.to_thread(ends_of, bootstrap, now_ms)
        past = await asyncio.to_thread(ends_of, bootstrap, now_ms - 60 * MINUTE_MS)
        for _ in range(2):
            made = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, bootstrap])
            assert made.exit_code == 0, made.output
        refused = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, bootstrap, "--topic", "away"])
    assert (refused.exit_code, "has no topic away" in refused.output) == (1, True)
    assert asked == {0: 150, 1: 150, 5: 140, 15: 140, 60: 100, 360: 0, 1440: 0, 10080: 0}
    assert past[0] == 100
    kept = ends_from_file(mirror)
    assert kept.num_rows == 2 * (2 + len(LOOK_BACK_MS))  # of two partitions: the first time at all moments, then now
    assert {row["topic"] for row in kept.to_pylist()} == {"orders"}
    log = HandMadeLog()
    log.commit(0, "team", 1, 120)
    frames = Frames(spark, log)
    current = current_offsets(frames.commits, frames.tombstones, frames.transactions)
    [row] = lag(current, spark.createDataFrame(kept)).collect()
    assert (row["lag"], row["at_least"]) == (30, False)
    # offset 120 was passed between 60 and 15 minutes ago, half way on a straight line
    assert 35 * MINUTE_MS < row["time_lag_ms"] < 45 * MINUTE_MS
