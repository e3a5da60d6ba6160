"""A warm standby: a follower replays committed records as they arrive, so that an election only loads the tail.

No record above the commit point is replayed before an election asks for it (`load`). Source: replication.md, "Append
and commit".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.records.batch import RecordBatch, read_batch
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.replica.loading import replay_log, restore_checkpoint
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication.messages import Batch
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.tuning.pacing import Urgency

logger = structlog.get_logger(__name__)

NOTHING = -1
ARRIVED_BYTES = 256 << 10
"""At most this much of what arrived is kept in memory until it is replayed. More is read from the log."""
WARM_BYTES = 64 << 10
"""A tail up to this size is replayed at once, in a few milliseconds, without giving other work a turn."""
GATHER_BYTES = 16 << 10
GATHER_TICKS = 4
"""Arriving batches are replayed once they have this size (bytes), or after this many calls of `follow`. An election
replays less than this in a fraction of a millisecond, and starting a replay for each commit costs more than the replay
itself."""
_UNKNOWN = -1


class LogCleanedError(Exception):
    """Tombstones were removed from the log before they were replayed: the state would keep what they deleted."""


class Standby:
    """`replayed`: the state is that of the log up to this offset; -1: nothing was loaded yet.

    In a replica that led, it may be above the commit point. The state is right as long as the log has the same records
    (`fits`).
    """

    def __init__(
        self,
        replica: StoredReplica,
        state: ReplayedState,
        metrics: ShardMetrics,
        turns: LoadTurns,
        on_error: Callable[[DamagedLogError], None],
        replayed: int = NOTHING,
    ) -> None:
        self.state = state
        self.replayed = replayed
        self._replica = replica
        self._metrics = metrics
        self._turns = turns
        self._on_error = on_error
        self._target = replayed
        self._arrived: deque[Batch] = deque()  # not replayed; contiguous, from `_arrived_from` on
        self._arrived_from = 0
        self._arrived_bytes = 0
        self._urgency = Urgency.BACKGROUND
        self.failed = False
        """A record could not be replayed: no more are, and the state cannot be used."""
        self._task: asyncio.Task[None] | None = None
        self._steps: Generator[None, None, None] | None = None
        """The replay that is under way. It continues where it stopped."""
        self._reached = replayed  # by that replay
        self._epoch = self._epoch_of_state()
        self._cleanings = replica.log.cleanings  # when the replay that is under way began, or the last one
        self._outdated = False
        self._ticks = replica.partition % GATHER_TICKS  # so that not all partitions replay at once

    @property
    def fits(self) -> bool:
        """The log has the records that the state was made of: equal epochs at equal offsets mean equal logs up to
        there. And no tombstone went from it that the state has not seen."""
        if self._outdated or self._lacks_tombstones(self.replayed if self._steps is None else self._reached):
            return False
        if self.replayed <= 0:
            return True
        return self.replayed <= self._replica.end_offset and self._epoch_of_state() == self._epoch

    def _lacks_tombstones(self, offset: int) -> bool:
        """True if the log was cleaned since, and the state has seen it up to `offset` only: the rule of
        checkpoints."""
        log = self._replica.log
        return log.cleanings != self._cleanings and 0 < offset < log.cleaned_to.tombstone_horizon

    def _epoch_of_state(self) -> int:
        return self._replica.log.epochs.epoch_at(self.replayed - 1) if self.replayed > 0 else _UNKNOWN

    @property
    def is_at_rest(self) -> bool:
        """The state is exactly that of the log up to `replayed`: no replay is under way."""
        return self.replayed != NOTHING and self._steps is None and not self.failed and self.fits

    def arrived(self, start: int, batches: Sequence[Batch]) -> None:
        """The log ended at `start` and got `batches`. They are kept for a while, to save reading them again."""
        if self._arrived_bytes > ARRIVED_BYTES:
            self._arrived.clear()
            self._arrived_bytes = 0
        if not self._arrived:
            self._arrived_from = start
        self._arrived.extend(batches)
        self._arrived_bytes += sum(len(batch.data) for batch in batches)

    def follow(self, commit_point: int) -> None:
        """Replay up to `commit_point`: what is in memory soon, what must be read, or is more, in the background."""
        if self.failed:
            return
        self._urgency = Urgency.BACKGROUND
        self._target = max(self._target, commit_point)
        if self._task is not None or (self._steps is None and self.replayed >= self._target):
            return
        if self._steps is not None or not self._is_at_hand:
            self._task = asyncio.get_running_loop().create_task(self._pump())
            return
        self._ticks += 1
        if self._ticks >= GATHER_TICKS or self._arrived_bytes >= GATHER_BYTES:
            self._ticks = 0
            self._replay_at_once()

    @property
    def _is_at_hand(self) -> bool:
        return bool(self._arrived) and 0 <= self._arrived_from <= self.replayed and self._arrived_bytes <= WARM_BYTES

    def load_at_once(self) -> bool:
        """Replay the rest of the log now, if it is small. Returns whether it was. Raises what `load` raises."""
        self.stop()
        if self._rest_bytes > WARM_BYTES:
            return False
        self._target = self._replica.log.end_offset
        self._replay_all()
        return True

    async def load(self) -> None:
        """Replay the rest of the log. Raises DamagedLogError, UnsupportedValueVersionError, and others for records that
        cannot be read.
        """
        self.stop()
        self._urgency = Urgency.ELECTION
        self._target = self._replica.log.end_offset
        await self._run()

    def stop(self) -> None:
        """Stop the replay in the background, until `follow`."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _replay_at_once(self) -> None:
        with self._errors_noted():
            self._replay_all()

    def _replay_all(self) -> None:
        while (steps := self._next_steps()) is not None:
            for _ in steps:
                pass

    async def _pump(self) -> None:
        try:
            with self._errors_noted():
                await self._run()
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    @contextmanager
    def _errors_noted(self) -> Iterator[None]:
        try:
            yield
        except DamagedLogError as error:
            self._on_error(error)
        except LogCleanedError as error:
            logger.info("standby_dropped", partition=self._replica.partition, reason=str(error))
        except Exception:  # it may go on to follow, but must not lead: an election will fail with the reason
            logger.exception("standby_failed", partition=self._replica.partition)
            self.failed = True

    async def _run(self) -> None:
        while (steps := self._next_steps()) is not None:
            for _ in steps:
                await self._turns.next_slice(self._urgency, self._rest_bytes)

    @property
    def _rest_bytes(self) -> int:
        """Bytes of the log that are not replayed yet; at first all, although a checkpoint may save some."""
        log = self._replica.log
        return log.size if self._reached == NOTHING else log.bytes_from(max(self._reached, log.start_offset))

    def _next_steps(self) -> Generator[None, None, None] | None:
        if self._steps is None and self.replayed < self._target:
            self._steps = self._replay_to(self._target)
        return self._steps

    def _replay_to(self, target: int) -> Generator[None, None, None]:
        replica = self._replica
        try:
            start = self.replayed
            self._check_cleaned(start)
            if start == NOTHING:
                start = self._reached = yield from restore_checkpoint(replica, self.state)
            batches = self._noted(start, self._batches(start, target))
            end = yield from replay_log(replica.log, self.state, self._metrics, start, target, batches=batches)
            self.replayed = self._reached = max(end, target)
            self._epoch = self._epoch_of_state()
        finally:
            self._steps = None

    def _noted(self, start: int, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        end = start
        for batch in batches:
            self._check_cleaned(end)
            self._reached = batch.base_offset
            yield batch
            end = batch.end_offset
        self._check_cleaned(end)

    def _check_cleaned(self, replayed: int) -> None:
        """The log was read up to `replayed`. Raises LogCleanedError."""
        log = self._replica.log
        if self._lacks_tombstones(replayed):
            self._outdated = True
            raise LogCleanedError(f"the log was cleaned when it was replayed to {replayed} only")
        self._cleanings = log.cleanings

    def _batches(self, start: int, target: int) -> Iterator[RecordBatch]:
        """Returns the batches of the log between `start` and `target`, and perhaps more: first those that arrived
        lately and are still in memory.
        """
        arrived, end = self._arrived, start
        while arrived and self._arrived_from <= end:
            if arrived[0].end_offset > target:
                return
            batch = arrived.popleft()
            self._arrived_from = batch.end_offset
            self._arrived_bytes -= len(batch.data)
            if batch.base_offset >= end:
                end = batch.end_offset
                yield read_batch(batch.data)
        if end < target:
            yield from self._replica.log.read_batches(end)
