#!/usr/bin/env python3
"""Commits of one pod, or of three replicas: commits/s, commits per CPU-second of the server, latencies and memory.

Each connection has a group of its own and sends its next commit when the answer to the last one has come. Server and
load generator share this machine, so compare ratios (commits per CPU-second, Muster beside Kafka), not machines. The
results are also written to bench/results/.

Exit codes: 0 measured; 1 a server or the load generator failed, or commits were refused; 2 wrong usage, or a program is
missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import builds
import servers
from ending import exit_code
from measure import Load, measure
from report import REPOSITORY, machine, write
from secured import Secured

FILES_BESIDE_CONNECTIONS = 256  # segments, journal, listeners, streams of the pod


def main() -> int:
    options = arguments().parse_args()
    need_files(max(options.connections) + FILES_BESIDE_CONNECTIONS + options.offsets_partitions)
    rows = list(run(options))
    report: dict[str, Any] = {"machine": machine(), "offsets_partitions": options.offsets_partitions}
    report |= {"replication_factor": options.replication_factor, "runs": rows}
    written = write("commits", report)
    print(json.dumps(report, indent=2) if options.json else table(rows))
    print(f"written to {written}", file=sys.stderr)
    return 1 if any(row["errors"] for row in rows) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=numbers, default=[1, 64, 512], metavar="N,N,...", help="default 1,64,512")
    parser.add_argument("--partitions-per-commit", type=positive, default=1, help="default 1")
    parser.add_argument("--offsets-partitions", type=positive, default=50, help="of the offsets topic (default 50)")
    parser.add_argument(
        "--replication-factor", type=int, choices=(1, 3, 5), default=1, help="replicas, a pod each (default 1)"
    )
    parser.add_argument("--duration", type=float, default=10.0, help="seconds to measure each (default 10)")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before measuring (default 3)")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="setting of the pod")
    parser.add_argument("--secured", action="store_true", help="also each server with TLS and logins (PLAIN)")
    parser.add_argument("--with-kafka", action="store_true", help=f"also Kafka {builds.KAFKA_VERSION}, where it is")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def need_files(files: int) -> None:
    """Raise the limit of open files, which the servers that we start inherit. Raises BenchError when it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return
    if hard != resource.RLIM_INFINITY and hard < files:
        raise builds.BenchError(f"{files} open files needed, the hard limit is {hard}: raise it (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One server after the other, never two at a time; one row for each number of connections."""
    generator = builds.loadgen()
    shape = {"partitions": options.offsets_partitions, "topic_partitions": options.partitions_per_commit}
    with servers.data_directory(REPOSITORY) as directory:
        kinds = [None, Secured.made(directory / "secured")] if options.secured else [None]
        for secured in kinds:
            muster = servers.muster(
                directory,
                config=options.config,
                replication_factor=options.replication_factor,
                secured=secured,
                **shape,
            )
            yield from run_server(options, generator, muster)
        if options.with_kafka:
            try:
                builds.kafka_jars()
            except builds.MissingTool as missing:
                print(f"skipped Kafka: {missing}", file=sys.stderr)
                return
            for secured in kinds:
                kafka = servers.kafka(
                    directory, replication_factor=options.replication_factor, secured=secured, **shape
                )
                yield from run_server(options, generator, kafka)


def run_server(
    options: argparse.Namespace, generator: Path, starting: AbstractContextManager[servers.Server]
) -> Iterator[dict[str, Any]]:
    with starting as server:
        for connections in options.connections:
            print(f"{server.name}: {connections} connections, {options.duration:g} s", file=sys.stderr)
            load = Load(connections, options.partitions_per_commit, options.warm_up, options.duration)
            yield measure(generator, server, load)


COLUMNS = (
    ("server", "server", "{}"),
    ("connections", "connections", "{:,}"),
    ("commits/s", "commits_per_second", "{:,.0f}"),
    ("per CPU-second", "commits_per_cpu_second", "{:,}"),
    ("p50 ms", "p50_ms", "{:.2f}"),
    ("p99 ms", "p99_ms", "{:.2f}"),
    ("p99.9 ms", "p99_9_ms", "{:.2f}"),
    ("RSS MB", "rss_mb", "{:,}"),
    ("errors", "errors", "{:,}"),
    ("durability", "durability", "{}"),
)


def table(rows: list[dict[str, Any]]) -> str:
    cells = [[title for title, _, _ in COLUMNS]]
    for row in rows:
        cells.append(["-" if row[key] is None else form.format(row[key]) for _, key, form in COLUMNS])
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


if __name__ == "__main__":
    sys.exit(exit_code(main))
