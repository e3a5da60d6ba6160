"""Reads of a log for other replicas. What elections wait for is read at once; replicas that are behind get their chunks
one after the other, with rests, however many partitions there are.

When a pod thaws, or a cut heals, its leaders owe it what came meanwhile, in every partition at the same moment. Read
side by side in threads, and sent as fast as that goes, it would keep the interpreter and the processors from the
present commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.reading import RangeReader, RawBatch
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.effects import ReadLog
from muster_coordinator.replication.messages import Batch

__all__ = ["LITTLE_BYTES", "LogReads"]

ReadDone = Callable[[int, list[Batch], Exception | None], None]
"""(end of the range, its batches, why it could not be read)."""

LITTLE_BYTES = 32 << 10
"""A replica that lacks no more than this gets it at once: the next commit may need its ack."""
RESTS = 2
"""A rest lasts so many times as long as a read and what came of it, on the clock: a busy machine makes both long."""
LONGEST_REST_S = 0.010


class LogReads:
    """``blocking``: runs a function in a thread; ``spawn``: a task that ends with the pod."""

    def __init__(self, blocking: Callable[..., Any], spawn: Callable[..., Any]) -> None:
        self._blocking = blocking
        self._spawn = spawn
        self._waiting: deque[tuple[StoredReplica, ReadLog, ReadDone]] = deque()
        self._running = False

    def read(self, replica: StoredReplica, effect: ReadLog, done: ReadDone) -> None:
        """``done`` is called with what was read, or not at all if the log is closed before its turn comes."""
        if effect.waited_for or replica.log.bytes_from(effect.start) <= LITTLE_BYTES:
            reader = replica.log.read_range(effect.start, effect.bytes_max)
            if reader.in_memory:
                _report(reader.run(), done)
            else:
                self._spawn(self._read_files(reader, done))
            return
        self._waiting.append((replica, effect, done))
        if not self._running:
            self._running = True
            self._spawn(self._take_turns())

    async def _take_turns(self) -> None:
        """A chunk for each in turn: none waits for another that lacks much, or that always lacks something."""
        try:
            while self._waiting:
                began_s = monotonic()
                replica, effect, done = self._waiting.popleft()
                if not replica.is_open:
                    continue
                await self._read_files(replica.log.read_range(effect.start, effect.bytes_max), done)
                await asyncio.sleep(min((monotonic() - began_s) * RESTS, LONGEST_REST_S))
        finally:
            self._running = False

    async def _read_files(self, reader: RangeReader, done: ReadDone) -> None:
        try:
            found = await self._blocking(reader.run)
        except (DamagedLogError, OSError) as error:
            done(-1, [], error)
        else:
            _report(found, done)


def _report(found: tuple[int, list[RawBatch]], done: ReadDone) -> None:
    end, batches = found
    done(end, [Batch(*raw) for raw in batches], None)
