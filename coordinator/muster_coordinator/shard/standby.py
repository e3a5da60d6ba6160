"""A follower's copy of the group state: committed records are replayed as they arrive, so that an election loads
nothing but the tail (a warm standby).

Nothing above the commit point is replayed before an election asks for it (``load``). Source: replication.md, "Append
and commit"; reference, section 3.5.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence

import structlog

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.records.batch import RecordBatch, read_batch
from muster_coordinator.replication.messages import Batch
from muster_coordinator.shard.loading import LoadTurns, load_log, replay_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replica import Replica

__all__ = ["NOTHING", "Standby"]

logger = structlog.get_logger(__name__)

NOTHING = -1
ARRIVED_BYTES = 256 << 10
"""Of batches that are not committed yet, or not replayed; beyond it they are read from the log."""
WARM_BYTES = 64 << 10
"""A tail up to this size is replayed at once, without a turn for others: some milliseconds."""
BEHIND_LOADS = 1 << 60
"""Added to the size of a log that no election waits for."""


class Standby:
    """``replayed``: the state is that of the log up to this offset, -1: nothing was loaded yet."""

    def __init__(
        self,
        replica: Replica,
        coordinator: GroupCoordinator,
        metrics: ShardMetrics,
        turns: LoadTurns,
        on_error: Callable[[DamagedLogError], None],
        replayed: int = NOTHING,
    ) -> None:
        self.coordinator = coordinator
        self.replayed = replayed
        self._replica = replica
        self._metrics = metrics
        self._turns = turns
        self._on_error = on_error
        self._target = replayed
        self._arrived: deque[Batch] = deque()  # not replayed; contiguous, from ``_arrived_from`` on
        self._arrived_from = 0
        self._arrived_bytes = 0
        self._waited_for = False  # by an election
        self.failed = False
        """A record could not be replayed: nothing more is, and the state is of no use."""
        self._task: asyncio.Task[None] | None = None

    def arrived(self, start: int, batches: Sequence[Batch]) -> None:
        """The log ended at ``start`` and got ``batches``: kept for a while, to save reading them again."""
        if self._arrived_bytes > ARRIVED_BYTES:
            self._arrived.clear()
            self._arrived_bytes = 0
        if not self._arrived:
            self._arrived_from = start
        self._arrived.extend(batches)
        self._arrived_bytes += sum(len(batch.data) for batch in batches)

    def follow(self, commit_point: int) -> None:
        """Replay up to there, in the background."""
        if self.failed:
            return
        self._target = max(self._target, commit_point)
        if self._task is None and self.replayed < self._target:
            self._task = asyncio.get_running_loop().create_task(self._pump())

    def load_at_once(self) -> bool:
        """Replay the rest of the log now, if that is little. Raises what ``load`` raises."""
        log = self._replica.log
        if self._task is not None or self.replayed == NOTHING or log.bytes_from(self.replayed) > WARM_BYTES:
            return False
        self._target = log.end_offset
        if self.replayed < self._target:
            for _ in self._steps(self._target):
                pass
        return True

    async def load(self) -> None:
        """Replay the rest of the log. Raises DamagedLogError, UnsupportedValueVersionError, and others for records that
        cannot be read.
        """
        self._waited_for = True
        if self._task is not None:
            await asyncio.wait((self._task,))
        self._target = self._replica.log.end_offset
        await self._run()

    def stop(self) -> None:
        """It is of no use any more."""
        if self._task is not None:
            self._task.cancel()

    async def _pump(self) -> None:
        try:
            await self._run()
        except DamagedLogError as error:
            self._on_error(error)
        except Exception:  # it may follow on and must not lead: an election will say why
            logger.exception("standby_failed", partition=self._replica.partition)
            self.failed = True
        finally:
            self._task = None

    async def _run(self) -> None:
        while self.replayed < self._target:
            target = self._target
            for _ in self._steps(target):
                size = self._replica.log.size
                await self._turns.next_slice(size if self._waited_for else size + BEHIND_LOADS)

    def _steps(self, target: int) -> Generator[None, None, None]:
        replica = self._replica
        if self.replayed == NOTHING:
            end = yield from load_log(replica, self.coordinator, self._metrics, target)
        else:
            batches = self._take(target) if self._arrived_from <= self.replayed and self._arrived else None
            end = yield from replay_log(
                replica.log, self.coordinator, self._metrics, self.replayed, target, batches=batches
            )
        self.replayed = max(end, target)

    def _take(self, target: int) -> Iterator[RecordBatch]:
        """What arrived between the end of the state and ``target``."""
        arrived = self._arrived
        while arrived and arrived[0].end_offset <= target:
            batch = arrived.popleft()
            self._arrived_from = batch.end_offset
            self._arrived_bytes -= len(batch.data)
            if batch.base_offset >= self.replayed:
                yield read_batch(batch.data)
