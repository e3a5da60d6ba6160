"""Measures how long commits are interrupted, with a minimal client.

Kafka's client libraries wait before they look for a coordinator again, librdkafka up to a second, and a gap measured
with them would mostly be that wait. This client asks again after 2 ms: FindCoordinator at any pod, then OffsetCommit,
one request at a time.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from itertools import cycle, pairwise

from muster_cli.demo.bare_client import call, string

RETRY_S = 0.002
PAUSE_S = 0.001
SOCKET_TIMEOUT_S = 1.0
_FIND_COORDINATOR, _OFFSET_COMMIT = (10, 0), (8, 2)  # API key and version; these versions have no tagged fields


class Meter(threading.Thread):
    """Commits rising offsets of partition 0 of the topic, without membership, as consumers that use `assign` do."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(name="meter", daemon=True)
        self.error: Exception | None = None
        self._pods = cycle(_address(each) for each in bootstrap.split(","))
        self.group = group
        self._topic = topic
        self._acknowledged: list[float] = []
        self._stopping = threading.Event()

    @property
    def count(self) -> int:
        """Commits acknowledged so far."""
        return len(self._acknowledged)

    def count_after(self, moment: float) -> int:
        """Commits acknowledged after a moment of the monotonic clock."""
        return sum(each > moment for each in self._acknowledged)

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two acknowledged commits, the second one after `since`; 0 without such a pair."""
        times = list(self._acknowledged)
        return max((late - early for early, late in pairwise(times) if late > since), default=0.0)

    def stop(self) -> None:
        self._stopping.set()
        self.join(timeout=5)

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._commit_until_it_fails()
                except OSError:  # refused, reset, timed out: the pod is gone, look for the next one
                    pass
                self._stopping.wait(RETRY_S)
        except Exception as error:
            self.error = error

    def _commit_until_it_fails(self) -> None:
        """Raises OSError when the connection fails. Returns when the pod is not, or not yet, the coordinator."""
        with _connect(next(self._pods)) as any_pod:
            coordinator = _coordinator(call(any_pod, _FIND_COORDINATOR, string(self.group)))
        if coordinator is None:
            return
        with _connect(coordinator) as pod:
            while not self._stopping.wait(PAUSE_S):
                # The answer's last two bytes are the error code of its only partition.
                answer = call(pod, _OFFSET_COMMIT, self._commit_of(self.count + 1))
                if answer[-2:] != b"\0\0":
                    return
                self._acknowledged.append(time.monotonic())

    def _commit_of(self, offset: int) -> bytes:
        """OffsetCommit: group, generation -1, member "", retention -1, [topic, [partition, offset, metadata ""]]."""
        head = string(self.group) + struct.pack(">i", -1) + string("") + struct.pack(">qi", -1, 1)
        return head + string(self._topic) + struct.pack(">iiq", 1, 0, offset) + string("")


def _coordinator(answer: bytes) -> tuple[str, int] | None:
    """FindCoordinator's answer: error code, node id, host, port."""
    error, _, length = struct.unpack_from(">hih", answer)
    if error:
        return None
    host = answer[8 : 8 + length].decode()
    (port,) = struct.unpack_from(">i", answer, 8 + length)
    return host, port


def _connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=SOCKET_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
