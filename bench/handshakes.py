#!/usr/bin/env python3
"""New connections beside groups that commit: how many TLS handshakes, or logins, a second a pod takes, and how long
commits of its groups take meanwhile.

The groups commit at a fixed rate over connections that stay. Beside them the load generator makes connections: it ends
them after the TLS handshake, as somebody without an account does, or after a login by PLAIN. Server and load generator
share this machine, so compare rows of one run, not machines. The results are also written to bench/results/.

Exit codes: 0 measured; 1 a server or the load generator failed, or commits were refused; 2 wrong usage, or a program is
missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import builds
import servers
from commits import FILES_BESIDE_CONNECTIONS, need_files, numbers, positive
from ending import exit_code
from measure import Load, measure
from report import REPOSITORY, machine, write
from secured import Secured

PARTITIONS = 50
AT_ONCE = 32
"""Handshakes under way at a time, at most."""
LEAD_S, TAIL_S = 1.0, 1.0
"""The connections begin before the commits and end after them."""

COLUMNS = ("beside", "asked/s", "done/s", "commits/s", "p50 ms", "p99 ms", "p99.9 ms", "pod's CPU")


def main() -> int:
    options = arguments().parse_args()
    need_files(options.groups + AT_ONCE + FILES_BESIDE_CONNECTIONS + PARTITIONS)
    rows = list(run(options))
    written = write("handshakes", {"machine": machine(), "groups": options.groups, "runs": rows})
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    print(f"written to {written}", file=sys.stderr)
    return 1 if any(row["errors"] for row in rows) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=positive, default=100, help="each with a connection (default 100)")
    parser.add_argument("--commits", type=positive, default=1000, help="of all groups, per second (default 1000)")
    parser.add_argument(
        "--rates",
        type=numbers,
        default=[25, 50, 100, 200, 400, 800],
        metavar="N,N,...",
        help="of new connections, per second",
    )
    parser.add_argument("--duration", type=float, default=6.0, help="seconds to measure each (default 6)")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds before measuring (default 2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row without new connections, then one for each kind and rate, and one without again."""
    generator = builds.loadgen()
    with servers.data_directory(REPOSITORY) as directory:
        secured = Secured.made(directory / "secured")
        with servers.muster(directory, partitions=PARTITIONS, topic_partitions=1, config=[], secured=secured) as server:
            load = Load(options.groups, 1, options.warm_up, options.duration, rate=options.commits)
            yield row("nothing", 0, measure(generator, server, load))
            for kind in ("handshake", "login"):
                for rate in options.rates:
                    print(f"{rate} of {kind} a second, {options.duration:g} s", file=sys.stderr)
                    with beside(generator, server, kind, rate, load) as others:
                        commits = measure(generator, server, load)
                    yield row(kind, rate, commits, others)
            yield row("nothing", 0, measure(generator, server, load))


@contextmanager
def beside(generator: Path, server: servers.Server, kind: str, rate: int, load: Load) -> Iterator[dict[str, Any]]:
    """New connections at that rate while the commits are measured; their figures are there afterwards. Raises
    BenchError."""
    figures: dict[str, Any] = {}
    command = [
        *(str(generator), "-bootstrap", server.bootstrap, "-login", server.login, "-operation", kind),
        *("-connections", str(AT_ONCE), "-rate", str(rate)),
        *("-warm-up", f"{LEAD_S}s", "-duration", f"{load.warm_up_s + load.duration_s + TAIL_S}s"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        yield figures
        output, said = running.communicate()
    if not output:
        raise builds.BenchError(f"load generator failed: {said.strip()}")
    figures |= json.loads(output)


def row(kind: str, rate: int, commits: dict[str, Any], others: dict[str, Any] | None = None) -> dict[str, Any]:
    entered = others or {"commits_per_second": 0.0, "errors": 0, "error_kinds": {}}
    return {
        "beside": kind,
        "asked_per_second": rate,
        "done_per_second": round(entered["commits_per_second"], 1),
        "commits_per_second": round(commits["commits_per_second"]),
        "p50_ms": commits["p50_ms"],
        "p99_ms": commits["p99_ms"],
        "p99_9_ms": commits["p99_9_ms"],
        "cpu": round(commits["cpu_seconds"] / commits["seconds"], 2),
        "errors": commits["errors"] + entered["errors"],
        "error_kinds": {**commits.get("error_kinds", {}), **entered.get("error_kinds", {})},
    }


def table(rows: list[dict[str, Any]]) -> str:
    cells = [list(COLUMNS), *([str(each) for each in list(row.values())[: len(COLUMNS)]] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


if __name__ == "__main__":
    sys.exit(exit_code(main))
