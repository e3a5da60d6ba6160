#!/usr/bin/env python3
"""Measures by perf the CPU time of one commit, and of one OffsetFetch, in running pods: in sockets, the event loop, the
durable write, and each folder of the coordinator.

A load is measured without perf, then the same again under it. A sample counts for the system call it is in, or else for
the innermost compiled function of Muster's, by the folder of its module; Python that is not compiled counts for the
compiled function that called it. Needs a pod that is compiled (`hack/compiled run`), and perf (linux-perf). The figures
are also written to bench/results/.

Exit codes: 0 measured; 1 perf or the load generator failed; 2 wrong usage, or a program is missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import builds
import servers
from compare import OF_COMMITS, ROWS_OF_ONE, Row
from ending import exit_code
from measure import Load, measure
from report import REPOSITORY, machine, write

sys.path.insert(0, str(REPOSITORY / "hack"))
from compiled_modules import compiled_modules

LOADS = (
    *((row, 1) for row in ROWS_OF_ONE if row.goal is OF_COMMITS),
    (Row(64), 3),
    (Row(64, operation="fetch"), 1),
    (Row(64, 50, operation="fetch-all"), 1),
)
"""Rows of `make bench`, and replicas."""
SAMPLES_PER_SECOND = 1999
STACK_BYTES = 8192
WARM_UP_S = 8.0

IN_THE_KERNEL = (
    ("do_pwritev", "journal: durable write"),
    ("ksys_pwrite64", "segments: write"),
    ("ext4_sync_file", "segments: sync"),
    ("sock_write_iter", "sockets: write"),
    ("__sys_sendmsg", "sockets: write"),
    ("__sys_sendto", "sockets: write"),
    ("sock_read_iter", "sockets: read"),
    ("__sys_recvmsg", "sockets: read"),
    ("__sys_recvfrom", "sockets: read"),
    ("do_epoll_wait", "event loop"),
    ("do_epoll_ctl", "event loop"),
    ("do_futex", "hand-over between threads"),
    ("vfs_write", "hand-over between threads"),  # that of an eventfd
    ("vfs_read", "hand-over between threads"),
)
"""Functions of Linux, the first of which in a stack says what the system does."""
_COMPILED = re.compile(r"CPy(?:Def|Py)_(\w+?)___")


def folders() -> dict[str, str]:
    """Last part of a compiled module's name -> its folder in the coordinator."""
    lists = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    custom = lists["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    modules = map(Path, compiled_modules(REPOSITORY / custom["package"], custom["modules"]))
    return {name: str(module.parent) for module in modules for name in (module.parent.name, module.name)}


def stage(frames: Sequence[tuple[str, str]], folder_of: dict[str, str]) -> str:
    """The stage that one sample counts for. `frames`: symbols and their owners, the innermost first."""
    symbols = {symbol for symbol, _ in frames}
    for symbol, name in IN_THE_KERNEL:
        if symbol in symbols:
            return name
    for symbol, _ in frames:
        if (function := _COMPILED.match(symbol)) is not None:
            return folder_of.get(function[1], function[1])
    if any("uvloop" in owner or "loop.cpython" in owner for _, owner in frames):
        return "event loop"
    return "interpreter and libraries besides"


def samples(lines: Iterable[str]) -> Iterator[list[tuple[str, str]]]:
    """The samples that `perf script` printed: each is a line, a line for each frame, and an empty line."""
    frames: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(("\t", " ")) and (words := line.split(None, 1)) and len(words) == 2:
            symbol, _, owner = words[1].rstrip().rpartition(" (")
            frames.append((symbol.partition("+0x")[0], owner.rstrip(")")))
        elif not line.strip() and frames:
            yield frames
            frames = []
    if frames:
        yield frames


def shares(recorded: Path) -> dict[str, float]:
    """Stage -> its share of the samples. Raises BenchError."""
    command = ["perf", "script", "--no-inline", "-F", "ip,sym,dso", "-i", str(recorded)]
    folder_of = folders()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as script:
        assert script.stdout is not None
        found = Counter(stage(frames, folder_of) for frames in samples(script.stdout))
    if script.returncode or not found:
        raise builds.BenchError(f"perf script ended with exit code {script.returncode} and {found.total()} samples")
    return {name: count / found.total() for name, count in found.most_common()}


def profiled(generator: Path, row: Row, replicas: int, duration_s: float) -> dict[str, Any]:
    name = row.name + (f", {replicas} replicas" if replicas > 1 else "")
    print(name, file=sys.stderr)
    load = Load(row.connections, row.partitions, 1.0, duration_s, row.operation)
    with (
        servers.data_directory(REPOSITORY) as directory,
        servers.muster(directory, partitions=50, topic_partitions=50, config=[], replication_factor=replicas) as server,
        tempfile.TemporaryDirectory(prefix="muster-perf-") as scratch,
    ):
        measure(generator, server, Load(64, 1, 0.0, WARM_UP_S))
        plain = measure(generator, server, load)
        recorded = Path(scratch, "perf.data")
        options = ["-F", str(SAMPLES_PER_SECOND), "--call-graph", f"dwarf,{STACK_BYTES}"]
        pids = ",".join(map(str, server.pids))
        command = ["perf", "record", *options, "-p", pids, "-o", str(recorded)]
        with servers.process(command, directory / "perf.out"):
            measure(generator, server, load)
        if not recorded.exists():
            raise builds.BenchError(f"perf record: {(directory / 'perf.out').read_text(errors='replace')[-500:]}")
        found = shares(recorded)
    us = 1e6 / plain["commits_per_cpu_second"]
    return {
        "load": name,
        "us": us,
        "p50_ms": plain["p50_ms"],
        "stages": {name: share * us for name, share in found.items()},
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row["stages"])
    lines = ["| stage | " + " | ".join(row["load"] for row in rows) + " |", "|" + "---|" * (len(rows) + 1)]
    for name, _ in total.most_common():
        lines.append(f"| {name} | " + " | ".join(f"{row['stages'].get(name, 0):.1f}" for row in rows) + " |")
    lines.append("| sum: CPU us of a request | " + " | ".join(f"{row['us']:.1f}" for row in rows) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration", type=float, default=4.0, help="seconds of each load (default 4)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    builds.tool("perf", "profiling needs perf: apt-get install linux-perf")
    generator = builds.loadgen()
    rows = [profiled(generator, *load, options.duration) for load in LOADS]
    report = {"machine": machine(), "loads": rows}
    written = write("profile", report)
    print(json.dumps(report, indent=2) if options.json else table(rows))
    print(f"written to {written}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
