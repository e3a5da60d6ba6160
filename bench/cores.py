#!/usr/bin/env python3
"""Measures the gain of a second pod on the same node: commits of one pod and of two that share only the machine.

Each pod leads its part of the partitions, and groups go to the pod that leads theirs. The load generator needs a share
of the same cores, and it is shown: on two cores the second pod has what generator and first pod leave. The figures are
also written to bench/results/.

Exit codes: 0 measured; 1 a server or the load generator failed; 2 wrong usage, or a program is missing; 130
interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median
from typing import Any

import builds
import servers
from commits import positive
from ending import exit_code
from measure import Load, measure
from report import REPOSITORY, machine, write

PODS = (1, 2)
CONNECTIONS = 256
PARTITIONS = (1, 50)
WARM_UP_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=3, help="default 3")
    parser.add_argument("--duration", type=float, default=4.0, help="seconds of each load (default 4)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    generator = builds.loadgen()
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for number in range(options.rounds):
        for pods in PODS if number % 2 == 0 else reversed(PODS):
            print(f"round {number + 1} of {options.rounds}: {pods} pods", file=sys.stderr)
            with (
                servers.data_directory(REPOSITORY) as directory,
                servers.muster(directory, partitions=50, topic_partitions=50, config=[], pods=pods) as server,
            ):
                for partitions in PARTITIONS:
                    load = Load(CONNECTIONS, partitions, WARM_UP_S, options.duration)
                    found.setdefault((partitions, pods), []).append(measure(generator, server, load))
    keys = ("commits_per_second", "commits_per_cpu_second", "p50_ms", "generator_cpu_seconds")
    rows = [
        {"partitions": partitions, "pods": pods, **{key: median(each[key] for each in figures) for key in keys}}
        for (partitions, pods), figures in sorted(found.items())
    ]
    written = write("cores", {"machine": machine(), "seconds": options.duration, "rows": rows})
    print(json.dumps(rows, indent=2) if options.json else table(rows, options.duration))
    print(f"written to {written}", file=sys.stderr)
    return 0


def table(rows: list[dict[str, Any]], duration_s: float) -> str:
    lines = [
        "| connections x partitions | pods | commits/s | per CPU-s | p50, ms | generator's cores |",
        "|" + "---|" * 6,
    ]
    for row in rows:
        lines.append(
            f"| {CONNECTIONS} x {row['partitions']} | {row['pods']} | {row['commits_per_second']:,.0f} "
            f"| {row['commits_per_cpu_second']:,.0f} | {row['p50_ms']:.2f} "
            f"| {row['generator_cpu_seconds'] / duration_s:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code(main))
