#!/usr/bin/env python3
"""Measures the time of one commit: CPU microseconds of each stage, by the pod's own classes, without sockets.

Each of 64 groups commits its partitions in turn to one of 8 logs, as connections of `bench/commits.py` do. A stage is
run alone for all commits of a turn, on what the stage before it gave. The figure is the best of several rounds, since
other programs share the machine. "way" is all of it in one piece, from the bytes of the requests to those of the
answers, with a journal that is left to the operating system. What is not in it: sockets, the event loop, and waiting.

Exit codes: 0 measured; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from crc32c import crc32c

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.listener.exchange import Exchange
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog
from muster_coordinator.records.batch import count_of, encode_batch
from muster_coordinator.requests.groups import OffsetCommitRequest
from muster_coordinator.state_machine import Result
from muster_coordinator.tuning.interpreter import tune_interpreter
from muster_coordinator.wire.framing import FrameReader, encode_response_frame, read_header
from muster_coordinator.wire.k08_offset_commit import API

VERSION = 7
CONNECTIONS = 64
LOGS = 8
NOW_MS = 1_760_000_000_000
FRAME_BYTES_MAX = 100 << 20


class Topics:
    """One topic with as many partitions as anybody wants."""

    def has(self, topic: str, partition: int) -> bool:
        return 0 <= partition < 1 << 20

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


class Connection:
    """Takes answers. Implements `exchange.AnsweringConnection` and `exchange.Answers`, as an exchange uses them."""

    identity: Any = None
    peer = ""
    client_id: str | None = None

    def __init__(self) -> None:
        self.sent = 0

    @property
    def answers(self) -> Connection:
        return self

    def complete(self, exchange: Exchange, frame: bytes) -> None:
        self.sent += len(frame)

    def serve(self, handlers: Any) -> None:
        raise AssertionError("nobody logs in here")

    def close(self) -> None:
        raise AssertionError("no answer ends the connection")


def frame_of(group: int, partitions: int, offset: int) -> bytes:
    """The bytes of one OffsetCommit as `bench/loadgen` sends it, with its length."""

    def string(text: str) -> bytes:
        return struct.pack(">h", len(text)) + text.encode()

    head = struct.pack(">hhi", API.key, VERSION, 1) + string("loadgen") + string(f"bench-{group}")
    head += struct.pack(">i", -1) + string("") + struct.pack(">h", -1) + struct.pack(">i", 1) + string("bench-topic")
    entries = b"".join(struct.pack(">iqih", index, offset, -1, 0) for index in range(partitions))
    body = head + struct.pack(">i", partitions) + entries
    return struct.pack(">i", len(body)) + body


class Stages:
    """Runs turn after turn; `spent` has the CPU seconds of the last one by stage."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.partitions = partitions
        self.spent: dict[str, float] = {}
        disk = OsDisk()
        self._journal = Journal.open(disk, directory / "journal", JournalSettings(durable=False), "boot")
        self._logs = []
        for number in range(LOGS):
            home = directory / str(number)
            PartitionLog.create(disk, home)
            history = self._journal.recovered(number, f"log-{number}")
            self._logs.append(PartitionLog.open(disk, home, number, LogSettings(), history))
        self._machines = [GroupCoordinator(GroupConfig(), Topics(), str) for _ in self._logs]
        self._readers = [FrameReader(FRAME_BYTES_MAX) for _ in range(CONNECTIONS)]
        self._offset = 0

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.spent[name] = time.process_time() - started

    def turn(self) -> None:
        self._offset += 1
        chunks = [frame_of(group, self.partitions, self._offset) for group in range(CONNECTIONS)]
        with self._stage("frame"):
            frames = [reader.feed(chunk)[0] for reader, chunk in zip(self._readers, chunks, strict=True)]
            headers = [read_header(frame) for frame in frames]
        with self._stage("decode"):
            requests = [API.decode_request(head, frame, "/h") for head, frame in zip(headers, frames, strict=True)]
        with self._stage("checks and records"):
            results = [self._operation(group)(request, None, NOW_MS) for group, request in enumerate(requests)]
        with self._stage("replay"):
            for group, result in enumerate(results):
                self._replay(group, result)
        batches = []
        with self._stage("batch"):
            for log in range(LOGS):
                records = [record for result in results[log::LOGS] for record in result.records]
                end = self._logs[log].end_offset
                batches.append(encode_batch(records, base_offset=end, leader_epoch=1, timestamp_ms=NOW_MS))
        with self._stage("of it CRC"):
            for batch in batches:
                crc32c(batch)
        with self._stage("log"):
            for number, batch in enumerate(batches):
                self._append(number, batch)
        self._write()
        with self._stage("answer"):
            for head, result in zip(headers, results, strict=True):
                encode_response_frame(API, VERSION, head.correlation_id, API.encode_response(VERSION, result.response))

    def _operation(self, group: int) -> Callable[[Any, Any, int], Result]:
        return self._machines[group % LOGS].operations[OffsetCommitRequest]

    def _replay(self, group: int, result: Result) -> None:
        replay = self._machines[group % LOGS].replay
        offset = self._logs[group % LOGS].end_offset
        for record in result.records:
            replay(record[2] if isinstance(record, tuple) else cast(Any, record), offset, NOW_MS)
            offset += count_of((record,))

    def _append(self, number: int, batch: bytes) -> None:
        log = self._logs[number]
        base = log.end_offset
        end = base + CONNECTIONS // LOGS * self.partitions
        log.append(batch, base, end, 1)
        self._journal.stage(number, base, end, batch)

    def _write(self) -> None:
        staged = self._journal.take()
        assert staged is not None
        with self._stage("journal"):
            self._journal.write(staged)
        for log in self._logs:
            log.journaled_end = log.end_offset
        with self._stage("segment"):
            for log in self._logs:
                log.flush_segment()
        while closed := self._journal.closed_files():
            self._journal.retire(closed[0])


def measure(partitions: int, seconds: float) -> dict[str, float]:
    """CPU microseconds per commit, by stage."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        stages = Stages(Path(directory), partitions)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            stages.turn()
            best = {name: min(best.get(name, spent), spent) for name, spent in stages.spent.items()}
    figures = {name: spent / CONNECTIONS * 1e6 for name, spent in best.items()}
    return figures | {"sum": sum(figures.values()) - figures["of it CRC"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions-per-commit", default="1,8,50", metavar="N,N,...", help="default 1,8,50")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each (default 5)")
    options = parser.parse_args()
    tune_interpreter()
    counts = [int(each) for each in options.partitions_per_commit.split(",")]
    columns = [measure(count, options.seconds) for count in counts]
    print("| microseconds of CPU per commit |" + "".join(f" {count} |" for count in counts))
    print("|---|" + "---|" * len(counts))
    for name in columns[0]:
        print(f"| {name} |" + "".join(f" {column[name]:.1f} |" for column in columns))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
