"""Cold start of a pod with its default settings over many stored offsets, beside Kafka's load of the very same logs.

Groups have 1,000 topic partitions each. Two logs: one as compaction leaves it, in which each offset comes twice, and
one that was not compacted for long. Behind the checkpoint of each partition lies nothing, half of what makes the next
one due, or all of it: the worst moment to crash, in all partitions at once. No group commits a partition twice in such
a tail, which is the slowest there is to replay. The logs are written once and kept.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import kafkaload
import offsetlogs
from pods import running_pod

PARTITIONS = 50
TOPIC_PARTITIONS = 1000
REWRITTEN = (2, 10)
"""Number of times that each offset is in the log."""
TAILS = (0.0, 0.5, 1.0)
"""Shares of what makes the next checkpoint due."""


def measure(directory: Path, offsets: int, *, with_kafka: bool) -> list[dict[str, Any]]:
    """Measures for each log its `starts`: from the start of a process until it leads everything, by the length of the
    tail; and Kafka over the same log. Raises BenchError, MissingTool.
    """
    groups = max(offsets // (PARTITIONS * TOPIC_PARTITIONS), 1)
    stored = PARTITIONS * groups * TOPIC_PARTITIONS
    shapes = [offsetlogs.Shape(PARTITIONS, stored * times, groups, TOPIC_PARTITIONS) for times in REWRITTEN]
    return [{"offsets": stored} | _over(directory / f"cold-{s.records}", s, with_kafka=with_kafka) for s in shapes]


def _over(directory: Path, shape: offsetlogs.Shape, *, with_kafka: bool) -> dict[str, Any]:
    data = directory / "data"
    offsetlogs.copy_logs(shape, data)
    logs = sorted(data.glob("__consumer_offsets-*"))
    log_bytes = sum(file.stat().st_size for log in logs for file in log.glob("*.log"))
    figures: dict[str, Any] = {"records": shape.records, "log_bytes": log_bytes}
    if with_kafka:
        figures["kafka"] = kafkaload.measure(directory / "kafka", logs, TOPIC_PARTITIONS)
    figures["starts"] = [_start(directory, shape, share) for share in TAILS]
    shutil.rmtree(directory)
    return figures


def _start(directory: Path, shape: offsetlogs.Shape, share: float) -> dict[str, Any]:
    data = directory / "data"
    shutil.rmtree(data)
    offsetlogs.copy_logs(shape, data)
    print(f"cold start over {shape.records:,} records, {share:.0%} of the longest tail", file=sys.stderr)
    behind = offsetlogs.checkpoint_logs(shape, data, share)
    os.sync()  # or the first fsync of the pod would write the checkpoints out
    return {"tail": share, "tail_records": behind, "ms": asyncio.run(_until_it_leads(directory, data))}


async def _until_it_leads(directory: Path, data: Path) -> float:
    started = time.monotonic()
    async with running_pod(directory, data) as pod:
        await pod.logs_open(PARTITIONS)
        await pod.elect(range(PARTITIONS), offsetlogs.EPOCH + 1)
        return round((time.monotonic() - started) * 1000, 1)


def exceeded(logs: list[dict[str, Any]]) -> list[str]:
    """A line for each start that is not faster than Kafka's."""
    return [
        f"cold start over {log['records']:,} records, {start['tail_records']:,} of them behind the checkpoints: "
        f"{start['ms']:,.0f} ms, Kafka's {log['kafka']['ms']:,.0f} ms"
        for log in logs
        for start in log["starts"]
        if "kafka" in log and start["ms"] >= log["kafka"]["ms"]
    ]


def text(logs: list[dict[str, Any]]) -> str:
    return "\n".join(line for log in logs for line in _lines(log))


def _lines(log: dict[str, Any]) -> list[str]:
    what = f"{log['offsets']:,} stored offsets, {log['records']:,} records, {log['log_bytes'] / 1e6:,.0f} MB"
    lines = [f"cold start of a pod until it leads everything, {what}"]
    kafka = log.get("kafka")
    for start in log["starts"]:
        share = f", {start['ms'] / kafka['ms']:.2f} of Kafka's time" if kafka is not None else ""
        lines.append(f"  {start['tail_records']:>9,} records behind the checkpoints: {start['ms']:,.0f} ms{share}")
    if kafka is not None:
        lines.append(f"  Kafka: {kafka['ms']:,.0f} ms, {kafka['load_ms']:,.0f} of them after its first answer")
    return lines
