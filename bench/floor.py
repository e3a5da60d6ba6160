#!/usr/bin/env python3
"""Measures the least that any server on this event loop can cost: an echo that the load generator takes for a
coordinator, and a durable write.

The echo answers each OffsetCommit with the bytes that would be right, and looks at nothing but the request's length,
API key and correlation id: what is left are sockets and the loop. Its requests per CPU-second are the most that a pod
could do with each number of connections. A durable write is one of 4 KiB in place, as the journal makes them, with
RWF_DSYNC. The figures are also written to bench/results/.

Exit codes: 0 measured; 1 the load generator failed; 2 wrong usage, or a program is missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, cast

import builds
import servers
import uvloop
from commits import FILES_BESIDE_CONNECTIONS, need_files, positive
from diskprobe import WRITE_BYTES
from ending import exit_code
from measure import Load, measure
from report import REPOSITORY, machine, write

from muster_coordinator.tuning.interpreter import tune_interpreter

CONNECTIONS = (1, 8, 64, 256, 512)
WARM_UP_S = 1.0
WRITES = 500
HOST, PORT = "127.0.0.1", "port="
OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
_HEAD = struct.Struct(">ihhi")
"""Length, API key, version, correlation id."""


class Echo(asyncio.Protocol):
    def __init__(self, commit_answer: bytes, coordinator: bytes) -> None:
        self._answers = {OFFSET_COMMIT: commit_answer, FIND_COORDINATOR: coordinator}
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        at, answers = 0, []
        while len(data) - at >= _HEAD.size:
            length, key, _version, correlation_id = _HEAD.unpack_from(data, at)
            if len(data) - at < 4 + length:
                break
            body = self._answers[key]
            answers.append(struct.pack(">ii", 4 + len(body), correlation_id) + body)
            at += 4 + length
        self._rest = data[at:]
        if answers:
            self._transport.write(b"".join(answers))


def commit_answer(partitions: int) -> bytes:
    """The body of an OffsetCommit answer of version 7 without errors."""
    topic = servers.TOPIC.encode()
    entries = b"".join(struct.pack(">ih", index, 0) for index in range(partitions))
    return struct.pack(">iih", 0, 1, len(topic)) + topic + struct.pack(">i", partitions) + entries


def coordinator(port: int) -> bytes:
    """The body of a FindCoordinator answer of version 1."""
    host = HOST.encode()
    return struct.pack(">ihhi", 0, 0, -1, 0) + struct.pack(">h", len(host)) + host + struct.pack(">i", port)


async def serve(partitions: int) -> None:
    """Serves until it is killed; prints its port."""
    port = 0
    server = await asyncio.get_running_loop().create_server(
        lambda: Echo(commit_answer(partitions), coordinator(port)), HOST, 0
    )
    port = server.sockets[0].getsockname()[1]
    print(f"{PORT}{port}", flush=True)
    await server.serve_forever()


@contextmanager
def echo(partitions: int) -> Iterator[servers.Server]:
    """Raises BenchError."""
    command = [sys.executable, __file__, "--serve", str(partitions)]
    with servers.data_directory(REPOSITORY) as directory:
        output = directory / "echo.out"
        with servers.process(command, output) as child:
            port = servers.wait_for_line(child, output, PORT).removeprefix(PORT)
            yield servers.Server("echo", f"{HOST}:{port}", (child.pid,), "none")


def durable_writes() -> dict[str, float]:
    """Median time and CPU time of a durable write, in microseconds."""
    with servers.data_directory(REPOSITORY) as directory:
        data = bytes(WRITE_BYTES)
        descriptor = os.open(directory / "probe", os.O_CREAT | os.O_RDWR)
        try:
            took = []
            used = time.process_time()
            for _ in range(WRITES):
                started = time.perf_counter()
                os.pwritev(descriptor, [data], 0, os.RWF_DSYNC)
                took.append(time.perf_counter() - started)
            used = time.process_time() - used
        finally:
            os.close(descriptor)
    return {"p50_us": round(median(took) * 1e6, 1), "cpu_us": round(used / WRITES * 1e6, 1)}


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    generator = builds.loadgen()
    for partitions, numbers in ((1, CONNECTIONS), (50, (64,))):
        with echo(partitions) as server:
            for number in numbers:
                load = Load(number, partitions, WARM_UP_S, options.duration)
                yield measure(generator, server, load)


def main() -> int:
    options = arguments().parse_args()
    if options.serve:
        tune_interpreter()
        uvloop.run(serve(options.serve))
    need_files(max(CONNECTIONS) + FILES_BESIDE_CONNECTIONS)
    rows = list(run(options))
    durable = durable_writes()
    report = {"machine": machine(), "echo": rows, "durable_write": durable}
    written = write("floor", report)
    print(json.dumps(report, indent=2) if options.json else table(rows, durable))
    print(f"written to {written}", file=sys.stderr)
    return 0


def table(rows: list[dict[str, Any]], durable: dict[str, float]) -> str:
    lines = ["| connections x partitions | per CPU-second | CPU us of each | p50 ms |", "|---|---|---|---|"]
    for row in rows:
        per = row["commits_per_cpu_second"]
        lines.append(
            f"| {row['connections']} x {row['partitions']} | {per:,} | {1e6 / per:.1f} | {row['p50_ms']:.2f} |"
        )
    return "\n".join([*lines, "", f"A durable write: {durable['p50_us']} us, of it CPU {durable['cpu_us']} us."])


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration", type=float, default=4.0, help="seconds to measure each (default 4)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--serve", type=positive, default=0, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main))
