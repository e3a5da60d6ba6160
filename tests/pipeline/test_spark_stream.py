"""``spark.readStream.format("muster_offsets")``: every record once over appends, a roll and a restart of the query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.unit.pipeline.logs import commits_segment

pytestmark = pytest.mark.timeout(300)


@contextmanager
def query(spark: SparkSession, data: Path, target: Path) -> Iterator[StreamingQuery]:
    stream = spark.readStream.format("muster_offsets").schema("offset bigint, group string").load(str(data))
    running = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(target / "checkpoint"))
        .start(str(target / "rows"))
    )
    try:
        yield running
    finally:
        running.stop()


def test_stream_gives_every_record_once_and_refuses_a_truncated_log(spark: SparkSession, tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "target"
    directory = data / "__consumer_offsets-3"
    directory.mkdir(parents=True)
    first, second = directory / f"{0:020d}.log", directory / f"{30:020d}.log"
    first.write_bytes(commits_segment(10, 2))
    with query(spark, data, target) as running:
        running.processAllAvailable()
        with first.open("ab") as file:
            file.write(commits_segment(20, 2, base_offset=10))
        running.processAllAvailable()
    second.write_bytes(commits_segment(5, 1, base_offset=30))
    with query(spark, data, target) as running:
        running.processAllAvailable()
    rows = spark.read.parquet(str(target / "rows")).collect()
    assert sorted(row["offset"] for row in rows) == list(range(35))
    second.write_bytes(commits_segment(4, 1, base_offset=30))
    with query(spark, data, target) as running, pytest.raises(PySparkException, match="it was truncated"):
        running.processAllAvailable()
