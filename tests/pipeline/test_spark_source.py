"""`spark.read.format("muster_offsets")` gives what the decoder gives: whole, in splits, selected, filtered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.unit.pipeline.logs import commits_segment

from muster_pipeline.decode.decoder import decode_segment

GOLDEN = Path(__file__).parents[1] / "golden" / "segments"
SEGMENT = f"{0:020d}.log"
pytestmark = pytest.mark.timeout(300)  # the first test waits for the JVM


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partition 0: ours, many batches; 1: Kafka's; 2: ours with a zero tail."""
    root = tmp_path_factory.mktemp("data")
    contents = {
        0: commits_segment(3000, 3),
        1: (GOLDEN / "kafka-4.1.0-zstd-1.log").read_bytes(),
        2: commits_segment(10, 2) + bytes(100),
    }
    for partition, content in contents.items():
        (root / f"__consumer_offsets-{partition}").mkdir()
        (root / f"__consumer_offsets-{partition}" / SEGMENT).write_bytes(content)
    return root


def load(spark: SparkSession, path: Path, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("muster_offsets").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["offsets_partition"], row["position"], -1 if row["offset"] is None else row["offset"]


def expected_rows(data: Path) -> list[dict[str, Any]]:
    rows = []
    for partition in range(3):
        path = data / f"__consumer_offsets-{partition}" / SEGMENT
        rows += decode_segment(path.read_bytes(), file=str(path), offsets_partition=partition).to_pylist()
    return sorted(rows, key=key)


@pytest.mark.parametrize("split_bytes", ["100000000", "5000"])
def test_frame_holds_the_rows_of_the_decoder_once(spark: SparkSession, data: Path, split_bytes: str) -> None:
    frame = load(spark, data, splitBytes=split_bytes)
    if split_bytes == "5000":
        assert frame.rdd.getNumPartitions() > 10
    rows = sorted((row.asDict(recursive=True) for row in frame.collect()), key=key)
    # Spark's binary type comes back as bytearray
    assert rows == expected_rows(data)


def test_schema_selects_columns(spark: SparkSession, data: Path) -> None:
    frame = load(spark, data / "__consumer_offsets-2", "committed_offset bigint, group string")
    assert frame.columns == ["committed_offset", "group"]
    assert sorted(row[0] for row in frame.where("group is not null").collect()) == list(range(10))


def test_filters_on_kind_group_and_partition_are_pushed_down_and_right(spark: SparkSession, data: Path) -> None:
    frame = load(spark, data).where(
        "kind = 'offset_commit' and group in ('group-1', 'payments') and offsets_partition in (0, 1) and partition < 2"
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    conditions = plan.split("Filter (")[1].split("\n")[0]
    assert "partition#" in conditions
    assert "group#" not in conditions.replace("isnotnull(group#", "")
    assert "offset_commit" not in conditions
    assert sorted(tuple(row) for row in frame.select("offsets_partition", "offset").collect()) == sorted(
        (row["offsets_partition"], row["offset"])
        for row in expected_rows(data)
        if row["kind"] == "offset_commit"
        and row["group"] in ("group-1", "payments")
        and row["offsets_partition"] in (0, 1)
        and row["partition"] < 2
    )


def test_keep_last_gives_the_last_of_what_a_task_reads(spark: SparkSession, data: Path) -> None:
    frame = load(spark, data / "__consumer_offsets-0", "group string, partition int, offset bigint", keep="last")
    assert sorted(row["offset"] for row in frame.collect()) == list(range(2985, 3000))  # of 5 groups and 3 partitions


def test_filter_on_the_partition_opens_no_other_file(spark: SparkSession, data: Path) -> None:
    frame = load(spark, data, mode="FAILFAST").where("offsets_partition = 1")  # 2 would fail
    assert frame.count() > 10


def test_failfast_fails_with_file_and_position(spark: SparkSession, data: Path) -> None:
    with pytest.raises(PySparkException, match=rf"__consumer_offsets-2/{SEGMENT}, byte \d+: zero_tail"):
        load(spark, data, mode="FAILFAST").collect()


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        (None, {"header": "true"}, "no such options: header"),
        (None, {"keep": "first"}, "option keep is FIRST, it can be ALL or LAST"),
        ("groop string", {}, "no such columns: groop"),
        ("offset int", {}, "column offset is int64, not int32"),
    ],
)
def test_wrong_use_is_refused_with_a_reason(
    spark: SparkSession, data: Path, schema: str | None, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        load(spark, data, schema, **options).collect()


def test_file_that_vanishes_between_planning_and_reading_is_an_error_with_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    for base in (0, 100):
        (directory / f"{base:020d}.log").write_bytes(commits_segment(100, 1, base_offset=base))
    frame = load(spark, tmp_path, splitBytes="5000")
    assert frame.rdd.getNumPartitions() > 1  # planned now
    (directory / f"{100:020d}.log").unlink()
    with pytest.raises(PySparkException, match=r"00000000000000000100\.log, byte 0: No such file"):
        frame.collect()
