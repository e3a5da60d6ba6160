#!/usr/bin/env python3
"""The pipeline's speed on segments made for it; the results are also written to bench/results/.

Decoder: offset commits per second and core, outside Spark; half a million commits of 4,000 keys, in batches of 1 to 256
records, and the growth of time with ten times the input. Re-sharding: commits per second, verification included, and
the memory of the process. Spark on local[2]: eight times as many commits in eight partitions, 16 in a batch, all
columns into a sink that drops them, and the largest resident memory of the JVM and of a Python worker. Medians; decoder
and re-sharding by CPU time, Spark by wall time after a first run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import sys
import tempfile
import threading
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
from muster_pipeline.reshard.job import reshard

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "bench" / "results"
START_MS = 1_700_000_000_000
PARTITIONS = 8
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


def write_logs(root: Path, data: bytes) -> None:
    for partition in range(PARTITIONS):
        directory = root / f"__consumer_offsets-{partition}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(data)


def measure_reshard(commits: int, runs: int) -> dict[str, int]:
    data = segment(commits, 16)
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as work:
        logs = Path(work) / "logs"
        logs.mkdir()
        write_logs(logs, data)
        for run in range(runs):
            started = time.process_time()
            reshard([str(logs)], Path(work) / f"new-{run}", 12)
            rates.append(PARTITIONS * commits / (time.process_time() - started))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"commits_per_second": round(statistics.median(rates)), "peak_mib": peak}


def measure_spark(commits: int, runs: int) -> dict[str, int]:
    """Raises JavaMissingError."""
    from muster_pipeline.source.session import spark_session

    session = spark_session("local[2]")
    seconds = []
    with tempfile.TemporaryDirectory() as root, Memory() as memory:
        write_logs(Path(root), segment(commits, 16))
        for _ in range(runs + 1):
            started = time.perf_counter()
            session.read.format("muster_offsets").load(root).write.format("noop").mode("overwrite").save()
            seconds.append(time.perf_counter() - started)
    session.stop()
    rate = PARTITIONS * commits / statistics.median(seconds[1:])
    return {"commits_per_second": round(rate), "jvm_mib": memory.jvm_mib, "worker_mib": memory.worker_mib}


class Memory(threading.Thread):
    """The largest resident memory that the processes below this one had while it ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jvm_mib = self.worker_mib = 0
        self._stop_now = threading.Event()

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join()

    def run(self) -> None:
        while not self._stop_now.wait(0.1):
            for pid in descendants(os.getpid()):
                try:
                    fields = dict(
                        line.split(":", 1)
                        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                        if ":" in line
                    )
                except OSError:  # it has just ended
                    continue
                mib = int(fields.get("VmHWM", "0 kB").split()[0]) >> 10
                if fields["Name"].strip() == "java":
                    self.jvm_mib = max(self.jvm_mib, mib)
                else:
                    self.worker_mib = max(self.worker_mib, mib)


def descendants(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


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
    small, large = (segment(count, 16) for count in (options.commits // 10, options.commits))
    growth = (len(large) / measure(large, None, options.runs)) / (len(small) / measure(small, None, options.runs))
    print(f"\nten times the input takes {growth:.1f} times as long")
    resharding = measure_reshard(options.commits // PARTITIONS, options.runs)
    rate, peak = resharding["commits_per_second"] / 1e6, resharding["peak_mib"]
    print(f"re-sharding 8 to 12 partitions, million offset commits per second: {rate:.2f}; {peak} MiB", flush=True)
    spark = None
    try:
        spark = measure_spark(options.commits, options.runs)
        rate = spark["commits_per_second"] / 1e6
        print(f"Spark on local[2], all columns, million offset commits per second: {rate:.2f}")
        print(f"memory: JVM {spark['jvm_mib']} MiB, Python worker {spark['worker_mib']} MiB")
    except PipelineError as missing:
        print(f"\nskipped: Spark. {missing}", file=sys.stderr)
    RESULTS.mkdir(parents=True, exist_ok=True)
    written = RESULTS / f"pipeline-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    report = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "decoder": rows,
        "growth_of_time_with_10x_input": round(growth, 2),
        "resharding": resharding,
        "spark": spark,
    }
    written.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {written.relative_to(REPOSITORY)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
