#!/usr/bin/env python3
"""The pipeline's speed against its bounds, on segments made for it. Exit code 1 when a line does not hold.

decoder    offset commits per second of CPU time of one core, outside Spark, all columns; batches of 1 to 64 records,
           and of 16 compressed ones
reshard    8 to 12 partitions, verification included
spark      local[2], in one session: the current offsets from 16 million commits into Parquet, first thing after the
           start; all columns of the same commits into a sink that drops them; ten times the input against one; the
           largest resident memory of the JVM and of any Python process below it

Medians of several runs, by wall time unless said; the first query is one run, as it comes once. The commits are of
4,000 keys in each of 8 offsets partitions, in random order. Compressed batches have no bound: a broker writes offsets
uncompressed unless it is told otherwise. The results are also written to bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cramjam
from crc32c import crc32c
from ending import exit_code
from measure import peak_resident_bytes

from muster_coordinator.records.batch import HEADER_BYTES, encode_batch
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_pipeline.decode.bytes_source import MemoryBytes
from muster_pipeline.decode.decoder import Decoder
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.reshard.job import reshard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "bench" / "results"
START_MS = 1_700_000_000_000
PARTITIONS = 8
TYPICAL_RECORDS = 16  # in a batch, as a busy broker has them
CODECS = {"gzip": (1, cramjam.gzip.compress), "lz4": (3, cramjam.lz4.compress), "zstd": (4, cramjam.zstd.compress)}
PARTS = ("decoder", "reshard", "spark")
MILLION = 1e6


@dataclass(frozen=True)
class Line:
    """One figure and the bound that it has to hold, if there is one: at least, or at most."""

    name: str
    value: float
    bound: float | None
    unit: str
    at_most: bool = False

    @property
    def holds(self) -> bool:
        if self.bound is None:
            return True
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        figure = f"{self.name:<48} {self.value:>8.2f} {self.unit}"
        if self.bound is None:
            return figure
        sign = "<=" if self.at_most else ">="
        verdict = "ok" if self.holds else "NOT OK"
        return f"{figure:<64} {sign} {self.bound:<5g} {verdict}"


def segment(commits: int, per_batch: int, codec: str = "") -> bytes:
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
            for number in range(first, min(first + per_batch, commits))
        ]
        batch = encode_batch(records, base_offset=first, leader_epoch=3, timestamp_ms=START_MS + first)
        out.append(compressed(batch, codec) if codec else batch)
    return b"".join(out)


def compressed(batch: bytes, codec: str) -> bytes:
    """The same batch with compressed records: another length, CRC and attributes."""
    number, compress = CODECS[codec]
    checked = struct.pack(">h", number) + batch[23:HEADER_BYTES] + bytes(compress(batch[HEADER_BYTES:]))
    head = bytearray(batch[:21])
    struct.pack_into(">i", head, 8, len(checked) + 9)
    struct.pack_into(">I", head, 17, crc32c(checked))
    return bytes(head) + checked


def decoder_lines(commits: int, runs: int) -> Iterator[Line]:
    shapes = [(per_batch, "") for per_batch in (1, 4, TYPICAL_RECORDS, 64)]
    for per_batch, codec in [*shapes, *((TYPICAL_RECORDS, codec) for codec in CODECS)]:
        data = segment(commits, per_batch, codec)
        rates = []
        for _ in range(runs):
            started = time.process_time()
            rows = sum(batch.num_rows for batch in Decoder().decode(MemoryBytes(data)))
            rates.append(rows / (time.process_time() - started))
        name = f"decoder, {per_batch} in a batch{', ' + codec if codec else ''}, per core"
        yield Line(name, statistics.median(rates) / MILLION, None if codec else 2, "M/s")


def write_logs(root: Path, data: bytes) -> Path:
    """The same segment as the log of each partition."""
    root.mkdir()
    first = root / "segment"
    first.write_bytes(data)
    for partition in range(PARTITIONS):
        directory = root / f"__consumer_offsets-{partition}"
        directory.mkdir()
        (directory / f"{0:020d}.log").hardlink_to(first)
    first.unlink()
    return root


def reshard_lines(commits: int, runs: int) -> Iterator[Line]:
    rates = []
    with tempfile.TemporaryDirectory() as work:
        logs = write_logs(Path(work) / "logs", segment(commits // PARTITIONS, TYPICAL_RECORDS))
        for run in range(runs):
            started = time.perf_counter()
            reshard([str(logs)], Path(work) / f"new-{run}", 12)
            rates.append(commits / (time.perf_counter() - started))
    yield Line("re-sharding 8 to 12 partitions", statistics.median(rates) / MILLION, 0.4, "M/s")


def spark_lines(commits: int, runs: int) -> Iterator[Line]:
    """Raises JavaMissingError."""
    from muster_pipeline.source.session import spark_session
    from muster_pipeline.tables.current import offsets_of_logs

    with tempfile.TemporaryDirectory() as work, Memory() as memory:
        tenth, whole = (
            str(write_logs(Path(work) / name, segment(count // PARTITIONS, TYPICAL_RECORDS)))
            for name, count in (("tenth", commits // 10), ("whole", commits))
        )
        session = spark_session("local[2]")
        try:
            started = time.perf_counter()
            with offsets_of_logs(session, [whole]) as offsets:
                offsets.write.parquet(f"{work}/offsets")
            seconds = time.perf_counter() - started
            yield Line(f"current offsets of {commits / MILLION:g} M commits", seconds, 25, "s", at_most=True)
            short, long = (statistics.median(drop_all(session, logs, runs)) for logs in (tenth, whole))
        finally:
            session.stop()
    yield Line("local[2], all columns into a no-op sink", commits / long / MILLION, 0.8, "M/s")
    yield Line("ten times the input takes as long", long / short, 11, "times", at_most=True)
    yield Line("memory of the JVM", memory.jvm / 1e9, 1, "GB", at_most=True)
    yield Line("memory of a Python process", memory.python / 1e9, 1, "GB", at_most=True)


def drop_all(session: SparkSession, logs: str, runs: int) -> Iterator[float]:
    """Seconds of each run."""
    for _ in range(runs):
        started = time.perf_counter()
        session.read.format("muster_offsets").load(logs).write.format("noop").mode("overwrite").save()
        yield time.perf_counter() - started


class Memory(threading.Thread):
    """The largest resident memory, in bytes, that a process below this one had while it ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jvm = self.python = 0
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
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                    peak = peak_resident_bytes(pid)
                except (OSError, StopIteration):  # it has just ended
                    continue
                if name == "java":
                    self.jvm = max(self.jvm, peak)
                elif name.startswith("python"):
                    self.python = max(self.python, peak)


def descendants(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def lines(options: argparse.Namespace) -> Iterator[Line]:
    if "decoder" in options.parts:
        yield from decoder_lines(options.commits // 64, options.runs)
    if "reshard" in options.parts:
        yield from reshard_lines(options.commits // 32, options.runs)
    if "spark" in options.parts:
        yield from spark_lines(options.commits, options.runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument(
        "--commits",
        type=int,
        default=16_000_000,
        help="through Spark; 1/32 of them are re-sharded, 1/64 decoded at a time",
    )
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end instead of lines")
    options = parser.parse_args()
    options.parts = options.parts or PARTS
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    found: list[Line] = []
    skipped = ""
    try:
        for line in lines(options):
            found.append(line)
            print(line, file=sys.stderr if options.json else sys.stdout, flush=True)
    except PipelineError as missing:
        skipped = str(missing)
        print(f"skipped: {skipped}", file=sys.stderr)
    report = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "commits": options.commits,
        "runs": options.runs,
        "lines": [asdict(line) | {"holds": line.holds} for line in found],
        "skipped": skipped,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    written = RESULTS / f"pipeline-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    written.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {written.relative_to(REPOSITORY)}", file=sys.stderr)
    if options.json:
        print(json.dumps(report))
    return 0 if all(line.holds for line in found) and not skipped else 1


if __name__ == "__main__":
    sys.exit(exit_code(main))
