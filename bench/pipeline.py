#!/usr/bin/env python3
"""The pipeline's speed on segments made for it; the results are also written to bench/results/.

Decoder: offset commits per second and core, outside Spark; half a million commits of 4,000 keys, in batches of 1 to 256
records. Spark on local[2]: as many commits in eight partitions, 16 in a batch, all columns into a sink that drops them.
Medians; the decoder by CPU time, Spark by wall time after a first run.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.offset_commit import (
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from muster_pipeline.decode.bytes_source import MemoryBytes
from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.decode.schema import select_schema

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "bench" / "results"
START_MS = 1_700_000_000_000
SPARK_PARTITIONS = 8
FEW_COLUMNS = ["group", "topic", "partition", "committed_offset", "offset"]


def segment(commits: int, per_batch: int) -> bytes:
    chance = random.Random(per_batch)
    keys = [
        encode_offset_commit_key(f"group-{group:05d}", f"topic-{group % 7}-events", partition)
        for group in range(500)
        for partition in range(8)
    ]
    out = []
    for first in range(0, commits, per_batch):
        records = [
            (chance.choice(keys), encode_offset_commit_value(OffsetCommitValue(number, 3, "", START_MS + number)))
            for number in range(first, first + per_batch)
        ]
        out.append(encode_batch(records, base_offset=first, leader_epoch=3, timestamp_ms=START_MS + first))
    return b"".join(out)


def measure(data: bytes, columns: list[str] | None, runs: int) -> float:
    """Commits per CPU second, the median."""
    decoder = Decoder(Selection(select_schema(columns)))
    rates: list[float] = []
    for _ in range(runs):
        started = time.process_time()
        rows = sum(batch.num_rows for batch in decoder.decode(MemoryBytes(data)))
        rates.append(rows / (time.process_time() - started))
    return statistics.median(rates)


def measure_spark(commits: int, runs: int) -> float:
    """Commits per second. Raises JavaMissingError."""
    from muster_pipeline.source.session import spark_session

    session = spark_session("local[2]")
    data = segment(commits, 16)
    seconds = []
    with tempfile.TemporaryDirectory() as root:
        for partition in range(SPARK_PARTITIONS):
            directory = Path(root) / f"__consumer_offsets-{partition}"
            directory.mkdir()
            (directory / f"{0:020d}.log").write_bytes(data)
        for _ in range(runs + 1):
            started = time.perf_counter()
            session.read.format("muster_offsets").load(root).write.format("noop").mode("overwrite").save()
            seconds.append(time.perf_counter() - started)
    session.stop()
    return SPARK_PARTITIONS * commits / statistics.median(seconds[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1 << 19, help="in each segment (default 524288)")
    parser.add_argument("--runs", type=int, default=7, help="of which the median counts (default 7)")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("decoder, million offset commits per second and core\n")
    print(f"{'records per batch':>17}  {'bytes per commit':>16}  {'all columns':>11}  {'5 columns':>9}")
    for per_batch in (1, 4, 16, 64, 256):
        data = segment(options.commits, per_batch)
        every, few = measure(data, None, options.runs), measure(data, FEW_COLUMNS, options.runs)
        size = len(data) / options.commits
        print(f"{per_batch:>17}  {size:>16.0f}  {every / 1e6:>11.2f}  {few / 1e6:>9.2f}", flush=True)
        rows.append({"records_per_batch": per_batch, "all_columns": round(every), "five_columns": round(few)})
    spark = None
    try:
        spark = round(measure_spark(options.commits // SPARK_PARTITIONS, options.runs))
        print(f"\nSpark on local[2], all columns, million offset commits per second: {spark / 1e6:.2f}")
    except PipelineError as missing:
        print(f"\nskipped: Spark. {missing}", file=sys.stderr)
    RESULTS.mkdir(parents=True, exist_ok=True)
    written = RESULTS / f"pipeline-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    report = {"machine": platform.machine(), "python": platform.python_version(), "decoder": rows, "spark": spark}
    written.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {written.relative_to(REPOSITORY)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
