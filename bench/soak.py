#!/usr/bin/env python3
"""A pod under a steady load for a long time: commits, latency and memory of each minute, and whether memory stays flat.

The groups commit at a fixed rate, so each minute has the same work. Memory is flat if the last third of the time needs
at most a tenth more than the first third, without the first minute, when caches fill. The figures are also written to
bench/results/.

Exit codes: 0 measured, and memory is flat; 1 it is not, requests were refused, or the pod or the load generator failed;
2 wrong usage, or a program is missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import builds
import servers
from commits import positive
from ending import exit_code
from measure import Load, measure, resident_bytes
from report import REPOSITORY, machine, write

CONNECTIONS, PARTITIONS = 64, 50
WINDOW_S = 60.0
MINUTES_MIN = 4
GROWTH_MAX = 1.1
"""The most that the median resident memory may grow (a factor), from the first third of the time to the last one."""


def main() -> int:
    options = arguments().parse_args()
    rows = list(run(options))
    flat = growth(rows)
    report = {"machine": machine(), "rate": options.rate, "growth": round(flat, 3), "minutes": rows}
    written = write("soak", report)
    refused = sum(row["errors"] for row in rows)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(f"{len(rows)} minutes, {sum(row['commits'] for row in rows):,} commits, {refused} refused; ", end="")
        print(f"memory of the last third is {flat:.2f} times that of the first (at most {GROWTH_MAX:g})")
    print(f"written to {written}", file=sys.stderr)
    return 1 if refused or flat > GROWTH_MAX else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=minutes, default=60, help=f"default 60, at least {MINUTES_MIN}")
    parser.add_argument("--rate", type=positive, default=10_000, help="commits per second (default 10000)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def minutes(text: str) -> int:
    number = positive(text)
    if number < MINUTES_MIN:
        raise argparse.ArgumentTypeError(f"{MINUTES_MIN} or more")
    return number


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each minute."""
    generator = builds.loadgen()
    with (
        servers.data_directory(REPOSITORY) as directory,
        servers.muster(directory, partitions=PARTITIONS, topic_partitions=PARTITIONS, config=[]) as server,
    ):
        for number in range(options.minutes):
            load = Load(CONNECTIONS, 1, 0.0, WINDOW_S, rate=float(options.rate))
            row = measure(generator, server, load) | {"rss_bytes": sum(map(resident_bytes, server.pids))}
            print(
                f"minute {number + 1} of {options.minutes}: {row['commits_per_second']:,.0f} commits/s, "
                f"p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.1f} ms, {row['rss_mb']} MB",
                file=sys.stderr,
            )
            yield row


def growth(rows: Sequence[dict[str, Any]]) -> float:
    """Median resident memory of the last third of the minutes beside that of the first third."""
    sizes = [row["rss_bytes"] for row in rows][1:]
    third = max(len(sizes) // 3, 1)
    return float(median(sizes[-third:]) / median(sizes[:third]))


if __name__ == "__main__":
    sys.exit(exit_code(main))
