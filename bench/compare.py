#!/usr/bin/env python3
"""Muster beside Kafka on every row, in turns: commits, fetches, heartbeats and rebalances of one node, and commits of
three replicas; what groups and offsets cost to keep, and what twice the load does that a node can take.

A round starts each server once, on an empty disk, warms it up, and measures all rows; the order changes from round to
round. The figures of a row are medians over the rounds, and its ratio is of the medians. Requests per CPU-second count
the processor time of the server's processes only; the load generator shares the machine, and its own share is shown.
There are two promises, and each server is measured under both: that what is answered is on disk ("muster", and "kafka,
synced" by log.flush.interval.messages=1), and that the operating system has it ("muster, os" by `muster.flush.os`, and
"kafka" as it comes). A row has a goal under each; `--goals` measures the rows of plain commits alone, which have the
high ones.

The results are written to bench/results/; with --document, which needs all rows or --goals, also into
docs/performance.md. After Ctrl-C or a failure the rounds count that are complete.

Exit codes: 0 measured; 1 a server or the load generator failed, or requests were refused; 2 wrong usage, or a program
is missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import builds
import servers
from commits import FILES_BESIDE_CONNECTIONS, need_files, positive
from ending import exit_code
from measure import Load, measure, resident_bytes
from report import REPOSITORY, machine, write

OFFSETS_PARTITIONS = 50
TOPIC_PARTITIONS = 50
PAGE = REPOSITORY / "docs" / "performance.md"
BEGIN, END = "<!-- written by `make bench` -->\n", "<!-- end of what `make bench` wrote -->\n"
WARM_UP_CONNECTIONS = 64
GROUP_SOCKETS = 64
"""Connections that the members of one group of the new protocol share, at most."""
JUST_BEFORE_S = 1.0
"""The seconds of load before each row: after it its groups exist, and their coordinators have answered."""


@dataclass(frozen=True)
class Goal:
    """Requests per CPU-second that Muster shall answer for one of Kafka's, if both are synced and if both are not;
    `p50`: its median latency at most, as a share of Kafka's."""

    synced: float
    unsynced: float
    p50: float

    def __str__(self) -> str:
        return f"{self.synced:g}x, {self.unsynced:g}x; p50 {self.p50:g}x"


OF_COMMITS, NOT_BEHIND = Goal(3, 2, 0.8), Goal(1, 1, 1)


@dataclass(frozen=True)
class Row:
    """`overload`: the rate is so many times what the row before has done (0: the rate is `rate`)."""

    connections: int
    partitions: int = 1
    operation: str = "commit"
    members: int = 0
    rate: float = 0.0
    overload: float = 0.0
    topic_partitions: int = TOPIC_PARTITIONS

    @property
    def name(self) -> str:
        each = self.members // self.connections
        what = {
            "heartbeat": f"heartbeat {self.members:,} members",
            "rebalance": f"rebalance {self.connections:,} x {each:,} members",
            "consumer-heartbeat": f"heartbeat {self.members:,} members, new protocol",
            "consumer-rebalance": f"rebalance {self.connections:,} x {each:,} members, new protocol"
            + self._of_partitions,
            "consumer-assembly": f"from nothing {self.connections:,} x {each:,} members, new protocol"
            + self._of_partitions,
            "store": f"commit {self.connections} x {self.partitions} in {self.members:,} groups",
        }.get(self.operation, f"{self.operation} {self.connections} x {self.partitions}")
        pace = f" at {self.rate:,.0f}/s" if self.rate else f" at {self.overload:g} times that" if self.overload else ""
        return f"{what}{pace}"

    @property
    def _of_partitions(self) -> str:
        return f", {self.partitions:,} partitions" if self.partitions != TOPIC_PARTITIONS else ""

    @property
    def samples(self) -> int:
        """Times to measure an assembly; of many groups once is enough."""
        return 3 if self.connections == 1 else 1

    @property
    def goal(self) -> Goal:
        return NOT_BEHIND if self.operation != "commit" or self.rate or self.overload else OF_COMMITS

    @property
    def sockets(self) -> int:
        groups = self.connections + GROUP_SOCKETS
        of_groups = {"rebalance": self.members, "consumer-rebalance": groups, "consumer-assembly": groups}
        return of_groups.get(self.operation, self.connections)


ROWS_OF_ONE = (
    Row(1),
    Row(8),
    Row(64),
    Row(256),
    Row(512),
    Row(512, overload=2),
    Row(64, 8),
    Row(64, 20),
    Row(64, 50),
    Row(64, rate=10_000),
    Row(64, operation="fetch"),
    Row(1, 50, operation="fetch-all"),
    Row(64, 50, operation="fetch-all"),
    Row(64, operation="heartbeat", members=10_000),
    Row(1, operation="rebalance", members=1_000),
    Row(1_000, operation="rebalance", members=3_000),
    Row(64, TOPIC_PARTITIONS, operation="consumer-heartbeat", members=10_000),
    Row(1, TOPIC_PARTITIONS, operation="consumer-rebalance", members=1_000),
    Row(1_000, TOPIC_PARTITIONS, operation="consumer-rebalance", members=10_000),
    Row(1, TOPIC_PARTITIONS, operation="consumer-assembly", members=1_000),
    Row(1_000, TOPIC_PARTITIONS, operation="consumer-assembly", members=10_000),
    Row(64, operation="store", members=100_000),
    Row(64, 50, operation="store", members=20_000),
    Row(1, 10_000, operation="consumer-rebalance", members=100, topic_partitions=10_000),
    Row(1, 10_000, operation="consumer-assembly", members=100, topic_partitions=10_000),
)
ROWS_OF_THREE = (Row(1), Row(64), Row(256))


@dataclass(frozen=True)
class Contestant:
    name: str
    replicas: int
    start: Callable[..., AbstractContextManager[servers.Server]]
    """Takes a directory, and the numbers of partitions."""


MUSTER, MUSTER_OS, KAFKA, KAFKA_SYNCED = "muster", "muster, os", "kafka", "kafka, synced"
JOINS_AT_ONCE = "group.initial.rebalance.delay.ms=0"
ASSIGNS_AT_ONCE = "group.consumer.assignment.interval.ms=0"
_muster = partial(servers.muster, config=[JOINS_AT_ONCE, ASSIGNS_AT_ONCE])
_muster_os = partial(servers.muster, config=[JOINS_AT_ONCE, ASSIGNS_AT_ONCE, "muster.flush.os=1"])
CONTESTANTS = tuple(
    Contestant(name, replicas, partial(start, replication_factor=replicas))
    for replicas in (1, 3)
    for name, start in (
        (MUSTER, _muster),
        (MUSTER_OS, _muster_os),
        (KAFKA, servers.kafka),
        (KAFKA_SYNCED, partial(servers.kafka, synced=True)),
    )
)


def rows_of(replicas: int, text: str = "") -> tuple[Row, ...]:
    """Those whose name has the text, and what an overload doubles."""
    rows = ROWS_OF_ONE if replicas == 1 else ROWS_OF_THREE
    return tuple(
        row
        for row, after in zip(rows, (*rows[1:], Row(0)), strict=True)
        if text in row.name or (after.overload and text in after.name)
    )


def main() -> int:
    options = arguments().parse_args()
    need_files(max(row.sockets for row in ROWS_OF_ONE) + FILES_BESIDE_CONNECTIONS + OFFSETS_PARTITIONS)
    builds.kafka_jars()
    measured: list[dict[str, Any]] = []
    ended: BaseException | None = None
    try:
        for round_ in run(options):
            measured += round_
    except (KeyboardInterrupt, builds.BenchError) as early:
        if not measured:
            raise
        ended = early
    rounds = measured[-1]["round"] + 1
    report: dict[str, Any] = {"machine": machine(), "kafka": builds.KAFKA_VERSION, "rounds": rounds}
    report |= {"seconds": options.duration, "goals": options.goals, "figures": measured}
    written = write("compare", report)
    page = tables(report)
    print(json.dumps(report, indent=2) if options.json else page)
    print(f"written to {written}", file=sys.stderr)
    if options.document:
        document(page)
    if ended is not None:
        raise ended
    return 1 if any(figures["errors"] for figures in measured) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=5, help="default 5")
    parser.add_argument("--duration", type=float, default=4.0, help="seconds to measure each row (default 4)")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds of load after a start (default 10)")
    parser.add_argument("--rows", default="", help="only rows whose name has this, such as 'commit 64 x 50'")
    parser.add_argument("--goals", action="store_true", help="only rows for which more is asked than to be ahead")
    parser.add_argument("--replicas", type=int, choices=(1, 3), help="only these")
    parser.add_argument("--document", action="store_true", help=f"write the tables into {PAGE.relative_to(REPOSITORY)}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def run(options: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Yields for each round the figures of each server and row. One server runs at a time."""
    generator = builds.loadgen()
    chosen = [
        (
            contestant,
            [row for row in rows_of(contestant.replicas, options.rows) if row.goal is OF_COMMITS or not options.goals],
        )
        for contestant in CONTESTANTS
        if options.replicas in (None, contestant.replicas)
    ]
    if not any(rows for _, rows in chosen):
        raise builds.BenchError(f"no row has {options.rows!r} in its name")
    if options.document and (options.rows or options.replicas):
        raise builds.BenchError("--document needs all rows, or --goals: leave out --rows and --replicas")
    for number in range(options.rounds):
        found = []
        for contestant, rows in chosen if number % 2 == 0 else reversed(chosen):
            if rows:
                print(
                    f"round {number + 1} of {options.rounds}: {contestant.name} x{contestant.replicas}", file=sys.stderr
                )
                for figures in run_rows(options, generator, contestant, rows):
                    for what, times in figures.get("error_kinds", {}).items():
                        print(f"{contestant.name}, {figures['row']}: {times} times: {what}", file=sys.stderr)
                    where = {"round": number, "contestant": contestant.name, "replicas": contestant.replicas}
                    found.append(figures | where)
        yield found


def run_rows(
    options: argparse.Namespace, generator: Path, contestant: Contestant, rows: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """Yields the figures of each row, from one server for all rows with topics of the same size."""
    for topic_partitions, of_size in groupby(rows, lambda row: row.topic_partitions):
        yield from run_on_one_server(options, generator, contestant, [*of_size], topic_partitions)


def run_on_one_server(
    options: argparse.Namespace, generator: Path, contestant: Contestant, rows: Sequence[Row], topic_partitions: int
) -> Iterator[dict[str, Any]]:
    with servers.data_directory(REPOSITORY) as directory:
        shape = {"partitions": OFFSETS_PARTITIONS, "topic_partitions": topic_partitions}
        with contestant.start(directory, **shape) as server:
            idle = sum(map(resident_bytes, server.pids))
            measure(generator, server, Load(WARM_UP_CONNECTIONS, 1, 0.0, options.warm_up))
            done = 0.0
            for row in rows:
                load = Load(
                    row.connections,
                    row.partitions,
                    JUST_BEFORE_S,
                    options.duration,
                    row.operation,
                    row.members,
                    row.overload * done or row.rate,
                    row.samples,
                )
                before = sum(map(resident_bytes, server.pids))
                figures = measure(generator, server, load)
                done = figures["commits_per_second"]
                sizes = {"idle_rss_mb": round(idle / 1e6), "rss_before_mb": round(before / 1e6)}
                yield figures | {"row": row.name} | sizes


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(report: dict[str, Any]) -> str:
    where = report["machine"]
    lines = [
        f"Measured {where['time'][:10]} with {where['commit']}, Kafka {report['kafka']}, Python {where['python']}; "
        f"{where['cpus']} x {where['cpu']}, Linux {where['kernel']}. Medians of {report['rounds']} rounds in turns, "
        f"{report['seconds']:g} s each{', of the rows with a high goal' if report['goals'] else ''}.",
    ]
    for replicas in sorted({figures["replicas"] for figures in report["figures"]}):
        title = "One node" if replicas == 1 else f"{replicas} replicas, {replicas // 2 + 1} in sync"
        lines += ["", f"### {title}", "", *_table(report["figures"], replicas)]
    return "\n".join(lines) + "\n"


def _table(figures: Sequence[dict[str, Any]], replicas: int) -> Iterator[str]:
    yield (
        "| row | both synced, per CPU-s: Kafka, Muster | ratio | p50 ms | ratio | both not: Kafka, Muster | ratio "
        "| p50 ms | ratio | goal | Muster synced, Kafka as it comes: ratio | p50 | p99 ms | generator's CPU |"
    )
    yield "|" + "---|" * 14
    for row in rows_of(replicas):
        of_row = [each for each in figures if each["row"] == row.name and each["replicas"] == replicas]
        if of_row:
            names = (KAFKA, KAFKA_SYNCED, MUSTER, MUSTER_OS)
            yield _line(row, {name: [f for f in of_row if f["contestant"] == name] for name in names})
    of_size = [each for each in figures if each["replicas"] == replicas]
    sizes = {
        name: [
            f"{median(f[key] for f in of_size if f['contestant'] == name):,.0f}" for key in ("idle_rss_mb", "rss_mb")
        ]
        for name in (KAFKA, MUSTER)
    }
    yield ""
    yield (
        f"Resident memory of all processes, MB, idle / under load: Kafka {' / '.join(sizes[KAFKA])}, "
        f"Muster {' / '.join(sizes[MUSTER])}."
    )
    for row in rows_of(replicas):
        of_row = [each for each in figures if each["row"] == row.name and each["replicas"] == replicas]
        if row.operation == "store" and of_row:
            grown = ", ".join(f"{name} {_grown(of_row, name):,.0f} MB" for name in (KAFKA, MUSTER))
            yield f"{row.members:,} groups with {row.partitions} offsets each have made it grow: {grown}."
        if row.operation == "consumer-assembly" and of_row:
            yield f"{row.name}: {'; '.join(_assembled(of_row, name) for name in (KAFKA, MUSTER))}."


def _grown(figures: Sequence[dict[str, Any]], name: str) -> float:
    return float(median(f["rss_mb"] - f["rss_before_mb"] for f in figures if f["contestant"] == name))


def _assembled(figures: Sequence[dict[str, Any]], name: str) -> str:
    """The price of one group until its assignment is whole."""
    of_server = [each for each in figures if each["contestant"] == name]
    requests = median(each["requests_each"] for each in of_server)
    cpu = median(each["cpu_seconds"] / each["commits"] for each in of_server)
    return f"{name} {requests:,.0f} requests and {cpu * 1000:,.1f} ms of processor for a group"


def _line(row: Row, by_name: dict[str, list[dict[str, Any]]]) -> str:
    def mid(name: str, key: str) -> float:
        return median(each[key] or 0.0 for each in by_name[name])

    def ratio(name: str, other: str, key: str) -> float:
        return mid(name, key) / mid(other, key) if mid(other, key) else 0.0

    per_cpu, p50, goal = "commits_per_cpu_second", "p50_ms", row.goal
    cells, missed = [row.name], False
    for ours, theirs, at_least in ((MUSTER, KAFKA_SYNCED, goal.synced), (MUSTER_OS, KAFKA, goal.unsynced)):
        times, share = ratio(ours, theirs, per_cpu), ratio(ours, theirs, p50)
        missed = missed or times < at_least or share > goal.p50
        cells += [f"{_rate(mid(theirs, per_cpu))}, {_rate(mid(ours, per_cpu))}", f"{times:.2f}x"]
        cells += [f"{mid(theirs, p50):.2f}, {mid(ours, p50):.2f}", f"{share:.2f}x"]
    generator = sum(each["generator_cpu_seconds"] for each in by_name[MUSTER])
    of_generator = generator / (generator + sum(each["cpu_seconds"] for each in by_name[MUSTER]))
    cells += [
        f"{goal} {'missed' if missed else 'holds'}",
        f"{ratio(MUSTER, KAFKA, per_cpu):.2f}x",
        f"{ratio(MUSTER, KAFKA, p50):.2f}x",
        f"{mid(KAFKA_SYNCED, 'p99_ms'):.1f}, {mid(MUSTER, 'p99_ms'):.1f}",
        f"{of_generator:.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def document(page: str) -> None:
    """Put the tables between the marks of docs/performance.md."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + BEGIN + page + END + tail, encoding="utf-8")
    print(f"tables written into {PAGE.relative_to(REPOSITORY)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code(main))
