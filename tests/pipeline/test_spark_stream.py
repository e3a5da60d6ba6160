"""`spark.readStream.format("muster_offsets")`: every record once over appends, rolls, and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.support.pod import SoloPod
from tests.unit.pipeline.logs import commits_segment

from muster_pipeline.source.files import find_segments

pytestmark = pytest.mark.timeout(300)


@contextmanager
def query(spark: SparkSession, data: Path | str, target: Path, **options: str) -> Iterator[StreamingQuery]:
    stream = (
        spark.readStream.format("muster_offsets")
        .options(**options)
        .schema("offset bigint, group string, committed_offset bigint, problem string, problem_detail string")
        .load(str(data))
    )
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
    told = r"__consumer_offsets-3 was truncated below what was read; it was read up to offset 35"
    with query(spark, data, target) as running, pytest.raises(PySparkException, match=told):
        running.processAllAvailable()
    with query(spark, data, target, onRewrittenLog="RESTART") as running:
        running.processAllAvailable()
        second.write_bytes(commits_segment(6, 1, base_offset=30))
        running.processAllAvailable()
    rows = spark.read.parquet(str(target / "rows")).collect()
    assert [row["problem"] for row in rows if row["problem"]] == ["rewritten"]
    assert any("was truncated below" in row["problem_detail"] for row in rows if row["problem"])
    offsets = sorted(row["offset"] for row in rows if row["offset"] is not None)
    assert offsets == sorted([*range(35), *range(34), 34, 35])


async def commits(pod: SoloPod, first: int, last: int) -> None:
    client = await pod.client()
    for offset in range(first, last):
        for group in ("a", "b", "c"):
            assert await client.commit(group, offset) == 0
    await client.close()


async def test_stream_of_a_pod_survives_rolls_and_restarts_of_pod_and_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    async with SoloPod(tmp_path / "pod", partitions=2, config=("offsets.topic.segment.bytes=1500",)) as pod:
        address = f"http://127.0.0.1:{pod.api_port}"
        with query(spark, address, target) as running:
            await commits(pod, 0, 10)
            await asyncio.to_thread(running.processAllAvailable)
            await commits(pod, 10, 20)
            await asyncio.to_thread(running.processAllAvailable)
            pod.kill()
            await pod.start()
            await commits(pod, 20, 30)
            await asyncio.to_thread(running.processAllAvailable)
        await commits(pod, 30, 40)
        with query(spark, address, target) as running:
            await asyncio.to_thread(running.processAllAvailable)
        assert len(find_segments([address])) > 4
    rows = spark.read.parquet(str(target / "rows")).where("committed_offset is not null").collect()
    found = sorted((row["group"], row["committed_offset"]) for row in rows)
    assert found == sorted((group, offset) for group in ("a", "b", "c") for offset in range(40))
