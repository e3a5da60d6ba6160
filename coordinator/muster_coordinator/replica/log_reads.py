"""Reads of this pod's logs for replicas in other pods.

What an election waits for, and the little that a follower lacks, is read at once. Replicas that lack more get it one
chunk after the other, with rests, for all partitions together: when a pod thaws or a cut heals, every leader owes it
what came meanwhile at the same moment. Reads of all of them side by side would take the interpreter and the disk from
present commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.segments.reading import RangeReader, RawBatch
from muster_coordinator.replica.ports import Workers
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.effects import ReadLog
from muster_coordinator.replication.messages import Batch
from muster_coordinator.tuning.pacing import Rest, Urgency

ReadDone = Callable[[int, list[Batch], Exception | None], None]
"""Takes the end of the range, its batches, and the error if it could not be read."""

LITTLE_BYTES = 32 << 10
"""A replica that lacks no more than this gets it at once: the next commit may need its ack."""
CATCH_UP = Rest(1 / 3, longest_s=0.010)
"""The rest of reads for replicas that lack more. Commits get the other two thirds of the time."""


class LogReads:
    """The reads of one pod. All methods run on the event loop. `now_s`: a monotonic clock in seconds."""

    def __init__(self, workers: Workers, now_s: Callable[[], float]) -> None:
        self._workers = workers
        self._now_s = now_s
        self._waiting: deque[tuple[StoredReplica, ReadLog, ReadDone]] = deque()
        self._running = False

    def read(self, replica: StoredReplica, effect: ReadLog, done: ReadDone) -> None:
        """Calls `done` with what was read; never, if the log is closed before its turn comes."""
        if effect.urgency is Urgency.ELECTION or replica.log.bytes_from(effect.start) <= LITTLE_BYTES:
            reader = replica.log.read_range(effect.start, effect.bytes_max)
            if reader.in_memory:
                _report(reader.run(), done)
            else:
                self._workers.spawn(self._read_files(reader, done))
            return
        self._waiting.append((replica, effect, done))
        if not self._running:
            self._running = True
            self._workers.spawn(self._take_turns())

    async def _take_turns(self) -> None:
        """Read a chunk for each replica in turn: none waits for another that lacks much, or that always lacks some."""
        try:
            while self._waiting:
                began_s = self._now_s()
                replica, effect, done = self._waiting.popleft()
                if not replica.is_open:
                    continue
                await self._read_files(replica.log.read_range(effect.start, effect.bytes_max), done)
                await asyncio.sleep(CATCH_UP.after(self._now_s() - began_s))
        finally:
            self._running = False

    async def _read_files(self, reader: RangeReader, done: ReadDone) -> None:
        try:
            found = await self._workers.blocking(reader.run)
        except (DamagedLogError, OSError) as error:
            done(-1, [], error)
        else:
            _report(found, done)


def _report(found: tuple[int, list[RawBatch]], done: ReadDone) -> None:
    end, batches = found
    done(end, [Batch(*raw) for raw in batches], None)
