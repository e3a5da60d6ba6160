"""Clients of a site that commit rising offsets, each for a group of its own, and note when each was acknowledged; and
the commits that the logs of a stopped instance have. They use sockets, so that no library decides when to try again."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster_cli.demo.bare_client import call, string
from muster_coordinator.records.batch import CorruptBatchError, iter_batches
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.structs import OffsetCommitRecord

TOPIC = "orders"
REQUEST_S = 2.0


@dataclass(frozen=True)
class Acked:
    """A commit that was acknowledged. Times are of the wall (ms)."""

    group: str
    offset: int
    begun_ms: int
    acked_ms: int


class SiteClients:
    """Runs in threads until `stop`. A commit that fails is tried again with the next offset."""

    def __init__(self, bootstrap: str, groups: int, first: int = 1) -> None:
        self._bootstrap = bootstrap
        self._first = first
        self._ended = threading.Event()
        self.acked: list[Acked] = []
        self.begun: dict[str, int] = {}
        self.refused = 0
        self._threads = [threading.Thread(target=self._run, args=(f"group-{number}",)) for number in range(groups)]
        for thread in self._threads:
            thread.start()

    def highest(self, until_ms: float = float("inf")) -> dict[str, int]:
        """The last offset of each group that was acknowledged by then."""
        return {each.group: each.offset for each in list(self.acked) if each.acked_ms <= until_ms}

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, group: str) -> None:
        offset, coordinator = self._first, None
        while not self._ended.is_set():
            self.begun[group] = offset
            begun_ms = time.time_ns() // 1_000_000
            try:
                coordinator = coordinator or self._coordinator(group)
                _commit(coordinator, group, offset)
            except OSError:
                self.refused += 1
                if coordinator is not None:
                    coordinator.close()
                coordinator = None
                self._ended.wait(0.05)
            else:
                self.acked.append(Acked(group, offset, begun_ms, time.time_ns() // 1_000_000))
            offset += 1
        if coordinator is not None:
            coordinator.close()

    def _coordinator(self, group: str) -> socket.socket:
        """A connection to the coordinator of the group. Raises OSError."""
        for address in self._bootstrap.split(","):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), REQUEST_S) as asked:
                answer = call(asked, (10, 0), string(group))
            error, _, size = struct.unpack_from(">hih", answer)
            if not error:
                name, (port_number,) = answer[8 : 8 + size].decode(), struct.unpack_from(">i", answer, 8 + size)
                return socket.create_connection((name, port_number), REQUEST_S)
        raise OSError("no coordinator")


def _commit(coordinator: socket.socket, group: str, offset: int) -> None:
    """OffsetCommit v2. Raises OSError: it was not acknowledged."""
    body = string(group) + struct.pack(">i", -1) + string("") + struct.pack(">qi", -1, 1) + string(TOPIC)
    answer = call(coordinator, (8, 2), body + struct.pack(">iiqh", 1, 0, offset, -1))
    (code,) = struct.unpack_from(">h", answer, len(answer) - 2)
    if code:
        raise OSError(f"refused with {code}")


def commits_in_logs(data: Path) -> Iterator[tuple[str, int, int]]:
    """(group, offset, time of the commit in ms) of each commit in the segments of all pods of a data directory."""
    for path in sorted(data.glob("pods/*/**/__consumer_offsets-*/*.log")):
        try:
            for batch in iter_batches(path.read_bytes()):
                for record in () if batch.is_control else batch.records():
                    change = decode_record(record.key, record.value)
                    if isinstance(change, OffsetCommitRecord) and change.value is not None:
                        yield change.group_id, change.value.offset, change.value.commit_timestamp_ms
        except CorruptBatchError:
            continue  # the end of a segment that is not full
