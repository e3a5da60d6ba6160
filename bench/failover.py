#!/usr/bin/env python3
"""Failover: how long groups are interrupted, beside Kafka; election of a warm standby and cold start over a million
stored offsets.

The interruptions are those of `make chaos`: three pods (nodes), 50 partitions, 100 groups that commit every 10 ms, the
leader of a third of them killed or asked to end. Kafka runs the same on this machine where Java is and its jars
were fetched; otherwise the figures of bench/kafka-failover.json, from another machine, stand beside it and say so.
Stored offsets: how long the elections of a drain take, and from the start of a pod until it leads everything, with
several lengths of what lies behind its checkpoints, beside Kafka's start over the same log. The results are also
written to bench/results/.

Exit codes: 0 all bounds hold; 1 one does not, or something failed or was lost; 2 wrong usage, or a program is missing;
130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

import builds
import coldstart
import stored
from ending import exit_code
from report import REPOSITORY, machine, write
from servers import data_directory

FAULTS = {"SIGKILL": ("kill", "kafka-kill"), "SIGTERM": ("terminate", "kafka-terminate"), "planned move": ("drain", "")}
BASELINE = REPOSITORY / "bench" / "kafka-failover.json"
PARTS = ("faults", "warm", "cold")
COLUMNS = ("interrupted_p50", "interrupted_p99", "interrupted_max", "elsewhere_p99", "lost")


def main() -> int:
    options = arguments().parse_args()
    report: dict[str, Any] = {"machine": machine()}
    if "faults" in options.parts:
        report["muster"] = chaos([ours for ours, _ in FAULTS.values()], options)
        report["kafka"] = with_kafka(options)
    with data_directory(REPOSITORY) as directory:
        if "warm" in options.parts:
            report["warm"] = stored.warm(directory, options.offsets)
        if "cold" in options.parts:
            report["cold"] = coldstart.measure(directory, options.offsets, with_kafka=has_kafka(options))
    written = write("failover", report)
    print(json.dumps(report, indent=2) if options.json else text(report))
    print(f"written to {written}", file=sys.stderr)
    failed = faults_exceeded(report)
    if "warm" in report:
        failed += stored.exceeded(report["warm"])
    if "cold" in report:
        failed += coldstart.exceeded(report["cold"])
    for line in failed:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if failed else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of faults of each kind (default 20)")
    parser.add_argument("--offsets", type=int, default=1_000_000, help="stored ones (default 1,000,000)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="of the measurement (default: all)")
    parser.add_argument("--without-kafka", action="store_true", help="compare with the baseline file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def has_kafka(options: argparse.Namespace) -> bool:
    """True if Kafka is to be measured, and can be here."""
    if options.without_kafka:
        return False
    try:
        builds.kafka_jars()
    except builds.MissingTool as missing:
        print(f"Kafka is not measured: {missing}", file=sys.stderr)
        return False
    return True


def faults_exceeded(report: dict[str, Any]) -> list[str]:
    """Bounds of the scenarios that do not hold, and what was lost."""
    lines = []
    for name, row in report.get("muster", {}).items():
        lines += [f"{name}: {reason}" for reason in row.get("failed", ())]
        if row.get("lost") or row.get("skipped"):
            lines.append(f"{name}: lost {row.get('lost')} {row.get('skipped', '')}".rstrip())
    return lines


def chaos(scenarios: list[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Scenario -> figures. Raises BenchError when it says nothing."""
    print(f"faults: {', '.join(scenarios)}", file=sys.stderr)
    command = [sys.executable, "-m", "tests.chaos", *scenarios, "--seconds", str(options.seconds), "--json"]
    # a session of its own: an interruption is told to it by us, and it has the time to end its clusters
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            told, _ = child.communicate()
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise
    try:
        rows = json.loads(told.splitlines()[-1])
    except (ValueError, IndexError):
        raise builds.BenchError(f"`{' '.join(command[1:])}` ended with exit code {child.returncode}") from None
    return {row["scenario"]: row for row in rows}


def with_kafka(options: argparse.Namespace) -> dict[str, Any]:
    """Kafka's figures from here, or those of the baseline file; `source` says which."""
    if has_kafka(options):
        return chaos([theirs for _, theirs in FAULTS.values() if theirs], options) | {"source": "this machine"}
    figures: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return figures


def text(report: dict[str, Any]) -> str:
    parts = [_faults(report)] if "muster" in report else []
    if "warm" in report:
        parts.append(stored.text(report["warm"]))
    if "cold" in report:
        parts.append(coldstart.text(report["cold"]))
    return "\n".join(parts)


def _faults(report: dict[str, Any]) -> str:
    lines = ["interruption of groups, ms" + " " * 14 + "p50      p99      max   elsewhere p99   lost"]
    for fault, (ours, theirs) in FAULTS.items():
        row = report["muster"][ours]
        lines.append(_line(f"Muster, {fault}", row))
        if theirs:
            other = report["kafka"][theirs]
            lines.append(_line(f"Kafka, {fault}", other))
            pairs = [(row.get(key), other.get(key)) for key in ("interrupted_p50", "interrupted_max")]
            ratios = [f"{mine / other:.3f}" if mine and other else "-" for mine, other in pairs]
            lines.append(f"  Muster's share of Kafka's time: p50 {ratios[0]}, max {ratios[1]}")
    return "\n".join([*lines, f"Kafka's figures: {report['kafka']['source']}", ""])


def _line(name: str, row: dict[str, Any]) -> str:
    values = ["-" if row.get(key) is None else f"{row[key]:,.0f}" for key in COLUMNS]
    return f"{name:<30}" + "".join(f"{value:>{width}}" for value, width in zip(values, (13, 9, 9, 16, 7), strict=True))


if __name__ == "__main__":
    sys.exit(exit_code(main))
