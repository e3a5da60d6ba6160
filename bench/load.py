#!/usr/bin/env python3
"""Loading of a pod: time, records/s and memory, and what the groups of partitions that are active already see of it.

A pod starts over 50 logs that hold 5 million offset commits. Some partitions are elected first; their groups commit at
a steady pace. Then all others are elected at once, and the commits' latencies are taken until the last one is ACTIVE.
A commit's latency counts from when it was due, so that a pause of the pod shows in every commit that it delayed. No
commit is faster than the disk or the CPU that it shares with others: so durable writes of this process are timed
beside it, and CPU-seconds far below the seconds of the load say that the pod waited for a CPU. How long the load keeps
the event loop at a time is told in CPU time. The result is also written to bench/results/.

Exit codes: 0 measured; 1 the pod failed, or the p99 while loading was above the limit; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from builds import BenchError
from diskprobe import DiskProbe
from ending import exit_code
from measure import cpu_seconds, peak_resident_bytes
from offsetlogs import EPOCH, TOPIC, Shape, copy_logs, group_names
from pods import RunningPod, running_pod
from report import REPOSITORY, machine, write
from servers import data_directory

P99_LIMIT_MS = 50.0
COMMIT_API, COMMIT_VERSION = 8, 7
NO_GENERATION = NO_STRING = -1
WARM_UP_S = 2.0


def main() -> int:
    options = arguments().parse_args()
    shape = Shape(partitions=options.partitions, records=options.records, groups=options.groups)
    if not 0 < options.active < shape.partitions:
        print(f"bench: --active must be between 1 and {shape.partitions - 1}", file=sys.stderr)
        return 2
    figures = asyncio.run(run(options, shape))
    report = {"machine": machine(), "shape": vars(shape), "figures": figures}
    written = write("load", report)
    print(json.dumps(report, indent=2) if options.json else text(figures))
    print(f"written to {written}", file=sys.stderr)
    return 0 if figures["while_loading"]["p99_ms"] < P99_LIMIT_MS else 1


def arguments() -> argparse.ArgumentParser:
    shape = Shape()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=shape.records, help=f"in all (default {shape.records:,})")
    parser.add_argument("--partitions", type=int, default=shape.partitions, help=f"default {shape.partitions}")
    parser.add_argument("--groups", type=int, default=shape.groups, help=f"of each partition (default {shape.groups})")
    parser.add_argument("--active", type=int, default=5, help="partitions that serve while the others load (default 5)")
    parser.add_argument("--committers", type=int, default=20, help="connections that commit meanwhile (default 20)")
    parser.add_argument("--every-ms", type=float, default=10.0, help="pace of each connection (default 10)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a text")
    return parser


async def run(options: argparse.Namespace, shape: Shape) -> dict[str, Any]:
    with data_directory(REPOSITORY) as directory:
        data = directory / "load"
        copy_logs(shape, data)
        started = time.monotonic()
        async with running_pod(directory, data) as pod:
            await pod.logs_open(shape.partitions)
            opened_s = time.monotonic() - started
            with DiskProbe(directory) as probe:
                figures = await measure(options, shape, pod, probe)
            return {"open_s": round(opened_s, 2)} | figures


async def measure(options: argparse.Namespace, shape: Shape, pod: RunningPod, probe: DiskProbe) -> dict[str, Any]:
    epoch = EPOCH + 1
    active = range(options.active)
    await pod.elect(active, epoch)
    await pod.push_metadata(shape.partitions, TOPIC, shape.topic_partitions, epoch)
    groups = [name for p in active for name in islice(group_names(p, shape.partitions), options.committers)]
    committers = [
        await Committer.connect(pod.kafka_port, group, options.every_ms / 1000)
        for group in groups[:: len(active)][: options.committers]
    ]
    tasks = [asyncio.create_task(committer.run()) for committer in committers]
    await asyncio.sleep(WARM_UP_S)
    quiet, quiet_disk = take(committers), probe.take()
    others = range(options.active, shape.partitions)
    used, started = cpu_seconds(pod.pid), time.monotonic()
    await pod.elect(others, epoch)
    seconds = time.monotonic() - started
    used = cpu_seconds(pod.pid) - used
    loading, loading_disk = take(committers), probe.take()
    for committer in committers:
        committer.stop()
    await asyncio.gather(*tasks)
    records = shape.records_per_partition * len(others)
    waits = sorted(pod.active_at[p] - started for p in others)
    return {
        "records": records,
        "load_s": round(seconds, 2),
        "records_per_second": round(records / seconds),
        "cpu_seconds": round(used, 2),
        "partition_active_p50_s": round(waits[len(waits) // 2], 2),
        "peak_rss_mb": round(peak_resident_bytes(pod.pid) / 1e6),
        "before_loading": percentiles(quiet),
        "while_loading": percentiles(loading),
        "disk_before_loading": percentiles(quiet_disk),
        "disk_while_loading": percentiles(loading_disk),
        "slices": slices(await pod.slices()),
        "refused": sum(committer.refused for committer in committers),
    }


@dataclass
class Committer(asyncio.Protocol):
    """One connection whose group commits one offset every `every_s` seconds, whether the last one was answered or
    not."""

    group: str
    every_s: float
    latencies: list[float] = field(default_factory=list)
    refused: int = 0

    @classmethod
    async def connect(cls, port: int, group: str, every_s: float) -> Committer:
        committer = cls(group, every_s)
        await asyncio.get_running_loop().create_connection(lambda: committer, "127.0.0.1", port)
        return committer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._due: deque[float] = deque()  # of the commits that are not answered yet
        self._received = b""
        self._stopped = False
        self._lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True

    async def run(self) -> None:
        """Commit until `stop`, then wait for the last answers. Raises BenchError when the connection is lost."""
        due = time.perf_counter()
        number = 0
        while not self._stopped or self._due:
            if self._lost:
                raise BenchError("the pod closed a connection that committed")
            if not self._stopped:
                number += 1
                self._due.append(due)
                self._transport.write(commit_request(self.group, number))
            due += self.every_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        self._transport.close()

    def stop(self) -> None:
        self._stopped = True

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        received = self._received + data
        while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            # the error code of its only partition ends a v7 answer
            self.refused += received[2 + size : 4 + size] != b"\0\0"
            self.latencies.append((now - self._due.popleft()) * 1000)
            received = received[4 + size :]
        self._received = received


_STRING = struct.Struct(">h")


def commit_request(group: str, offset: int) -> bytes:
    """A whole OffsetCommit v7 of a group without members, one partition."""
    header = struct.pack(">hhih", COMMIT_API, COMMIT_VERSION, offset & 0x7FFFFFFF, NO_STRING)
    body = b"".join(
        (
            _string(group),
            struct.pack(">i", NO_GENERATION),
            _string(""),
            _STRING.pack(NO_STRING),
            struct.pack(">i", 1),
            _string(TOPIC),
            struct.pack(">iiqi", 1, 0, offset, -1),
            _string(""),
        )
    )
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    return _STRING.pack(len(text)) + text.encode("ascii")


def take(committers: Sequence[Committer]) -> list[float]:
    """The latencies since the last call, in ms, of all connections."""
    taken = []
    for committer in committers:
        taken += committer.latencies
        committer.latencies = []
    return sorted(taken)


def percentiles(ordered: Sequence[float]) -> dict[str, float]:
    if not ordered:
        raise BenchError("nothing was measured")
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        **{f"p{share * 100:g}_ms": round(ordered[int(last * share)], 2) for share in (0.5, 0.99)},
        "max_ms": round(ordered[-1], 2),
    }


def slices(counts: Sequence[tuple[float, int]]) -> dict[str, float]:
    """The CPU time for which the load kept the event loop at a time, which no scheduler of a busy machine changes.

    Bounds of a histogram's buckets: "at most".
    """
    total = counts[-1][1]
    if not total:
        raise BenchError("the pod counted no slices of its loads")
    return {
        "count": total,
        **{f"p{share:g}_ms": next(ms for ms, n in counts if n >= total * share / 100) for share in (99, 99.9, 100)},
    }


def text(figures: dict[str, Any]) -> str:
    lines = [
        f"loaded {figures['records']:,} records in {figures['load_s']:.2f} s "
        f"({figures['records_per_second']:,} records/s, {figures['cpu_seconds']:.2f} CPU-seconds), "
        f"half of the partitions active after {figures['partition_active_p50_s']:.2f} s",
        f"logs open {figures['open_s']:.2f} s after the start of the pod; peak RSS {figures['peak_rss_mb']:,} MB",
    ]
    for when in ("before_loading", "while_loading"):
        each, disk = figures[when], figures[f"disk_{when}"]
        lines.append(
            f"{when.replace('_', ' ')}: {each['count']:,} commits of active partitions, "
            f"p50 {each['p50_ms']:.2f} ms, p99 {each['p99_ms']:.2f} ms, max {each['max_ms']:.2f} ms "
            f"(one durable write of this process: p50 {disk['p50_ms']:.2f} ms, p99 {disk['p99_ms']:.2f} ms, "
            f"max {disk['max_ms']:.2f} ms)"
        )
    taken = figures["slices"]
    lines.append(
        f"slices of the load, in CPU time: {taken['count']:,}, 99 % take at most {taken['p99_ms']:g} ms, "
        f"99.9 % {taken['p99.9_ms']:g} ms, all {taken['p100_ms']:g} ms"
    )
    lines.append(f"refused: {figures['refused']}; limit of the p99 while loading: {P99_LIMIT_MS:g} ms")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code(main))
