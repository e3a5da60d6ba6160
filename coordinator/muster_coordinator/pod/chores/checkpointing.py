"""Takes checkpoints of partitions: of the state in memory if it is small, otherwise by a load of its own.

A small state is encoded before the event loop goes on, and written once all of it is committed. A large one would
change meanwhile. So a second one is loaded in the background, from the last checkpoint and the committed records after
it. That takes at most a fifth of a processor, or half of one where more is written than a fifth can keep up with, and
the memory of one partition at a time. A checkpoint is dropped if the log is cut or a leadership ends before it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import structlog

from muster_coordinator.log.checkpoint import CheckpointHead, CheckpointWriter
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.pod.chores.chore import Background
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.loading import load_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.tuning.pacing import POLL_S, Rest

logger = structlog.get_logger(__name__)

PART_ENTRIES = 200
"""Entries of a state in one part: well below a millisecond of work."""
PARTS_AT_ONCE = 4
"""A state of up to this many parts is encoded without a pause, in less than two milliseconds."""
COMMITTED_WITHIN_S = 1.0
"""A checkpoint whose records are not committed within this time is given up; the next look tries again."""
REST = Rest(1 / 5, longest_s=1.0)
"""The rest between the parts of a checkpoint."""
OVERDUE = 2
REST_OVERDUE = Rest(1 / 2, longest_s=1.0)
"""The rest for a log of which OVERDUE times as much as makes a checkpoint due follows the last one. Replay is not much
faster than large commits, and a start after a crash has to load all that follows the last checkpoint."""


@dataclass(frozen=True)
class CheckpointerSettings:
    """`interval_bytes`: a checkpoint is due when this much of the log follows the last one, and at least as much as the
    last one is large. So no more is ever written into checkpoints than into the log.
    """

    interval_bytes: int
    check_interval_ms: int = 5_000

    def due_bytes(self, checkpoint_bytes: int) -> int:
        """Returns how many bytes of the log after a checkpoint of that size make the next one due."""
        return max(self.interval_bytes, checkpoint_bytes)


@dataclass(frozen=True)
class _Newest:
    """The newest checkpoint of `log`, as it was found or made while the host was in `generation`. `size` in bytes."""

    log: PartitionLog
    generation: int
    offset: int
    size: int

    def holds(self, host: ReplicaHost) -> bool:
        """False if the checkpoint may have been discarded since, or the log cut or replaced."""
        log = host.replica.log
        return self.log is log and self.generation == host.generation and self.offset <= log.end_offset


class Checkpointer(Background):
    """`hosts`: the replicas of the pod, by partition, which change over time. `blocking` runs a function in a
    thread."""

    kind = "checkpoint"

    def __init__(
        self,
        disk: Disk,
        settings: CheckpointerSettings,
        clock: Clock,
        hosts: dict[int, ReplicaHost],
        new_machine: Callable[[int], StateMachine],
        blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(settings.check_interval_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._hosts = hosts
        self._new_machine = new_machine
        self._blocking = blocking
        self._last: dict[int, _Newest] = {}  # by partition
        self._rest = REST

    def _version(self, host: ReplicaHost) -> int:
        """The format of the checkpoints of this partition."""
        return self._new_machine(host.partition).snapshot_version

    async def work(self) -> None:
        for host in tuple(self._hosts.values()):
            due = self._due(host) if host.may_tend else 0
            if due >= 1:
                self._rest = REST if due < OVERDUE else REST_OVERDUE
                await self.take(host)
        self.counts.lag_bytes = sum(
            host.replica.log.bytes_from(self._newest(host)[0]) for host in self._hosts.values() if host.may_tend
        )

    def _due(self, host: ReplicaHost) -> float:
        """Returns how much of the log follows the last checkpoint, in multiples of what makes the next one due."""
        offset, size = self._newest(host)
        return host.replica.log.bytes_from(offset) / self._settings.due_bytes(size)

    def _newest(self, host: ReplicaHost) -> tuple[int, int]:
        """Returns offset and bytes of the newest checkpoint; the start of the log and 0 if there is none."""
        replica = host.replica
        last = self._last.get(host.partition)
        if last is None or not last.holds(host):
            file = replica.open_checkpoint(self._version(host))
            offset, size = (file.head.offset, file.size) if file is not None else (replica.log.start_offset, 0)
            if file is not None:
                file.close()
            last = self._last[host.partition] = _Newest(replica.log, host.generation, offset, size)
        return last.offset, last.size

    async def take(self, host: ReplicaHost) -> bool:
        """Returns whether a checkpoint was taken. If not, the pod's log says why."""
        started_ms = self._clock.monotonic_ms()
        try:
            async with host.log_lock:
                head = await self._take(host)
        except Exception as error:
            self.counts.failed += 1
            logger.warning("checkpoint_not_taken", partition=host.partition, error=f"{type(error).__name__}: {error}")
            return False
        if head is None:
            self.counts.given_up += 1
            return False
        self.counts.done += 1
        self.counts.byte_count += self._last[host.partition].size
        duration_ms = self._clock.monotonic_ms() - started_ms
        logger.info("checkpoint_taken", partition=host.partition, offset=head.offset, duration_ms=duration_ms)
        return True

    async def _take(self, host: ReplicaHost) -> CheckpointHead | None:
        replica = host.replica
        generation = host.generation
        made = await self._at_hand(host, generation) or await self._built(host, generation)
        if made is None:
            return None
        offset, parts = made
        head = CheckpointHead(self._version(host), replica.log_id, offset, replica.log.epochs.epoch_at(offset - 1))
        writer = await self._blocking(CheckpointWriter, self._disk, replica.directory, head)
        try:
            if not await self._write(parts, writer, host, generation):
                return None
            self._last[host.partition] = _Newest(replica.log, generation, offset, writer.size)
        finally:
            await self._blocking(writer.discard)
        return head

    async def _at_hand(self, host: ReplicaHost, generation: int) -> tuple[int, Iterable[bytes]] | None:
        """Returns offset and parts of the replica's state; None if it is not small, or not committed in time."""
        at_rest = host.role.state_at_rest
        if at_rest is None or at_rest[1] <= self._newest(host)[0]:
            return None
        state, offset = at_rest
        parts = list(islice(state.snapshot(PART_ENTRIES), PARTS_AT_ONCE + 1))
        if len(parts) > PARTS_AT_ONCE:
            return None
        until_s = self._clock.monotonic_s() + COMMITTED_WITHIN_S
        while host.commit_point < offset:
            if await self._paused_in_vain(POLL_S, host, generation) or self._clock.monotonic_s() >= until_s:
                return None
        return offset, parts

    async def _built(self, host: ReplicaHost, generation: int) -> tuple[int, Iterable[bytes]] | None:
        """Returns offset and parts of a state that is loaded for this; None if that was given up, or the log is
        empty."""
        state = ReplayedState(self._new_machine(host.partition))
        load = load_log(host.replica, state, ShardMetrics(), to_offset=host.commit_point)
        offset = await self._load(load, host, generation)
        if offset is None or offset <= host.replica.log.start_offset:
            return None
        return offset, state.snapshot(PART_ENTRIES)

    async def _load(self, load: Generator[None, None, int], host: ReplicaHost, generation: int) -> int | None:
        """Returns the offset up to which was loaded; None if the load was given up."""
        while True:
            started_s = self._clock.monotonic_s()
            try:
                next(load)
            except StopIteration as end:
                offset: int = end.value
                return offset
            if await self._rested_in_vain(started_s, host, generation):
                return None

    async def _write(
        self, parts: Iterable[bytes], writer: CheckpointWriter, host: ReplicaHost, generation: int
    ) -> bool:
        started_s = self._clock.monotonic_s()
        for part in parts:
            await self._blocking(writer.add, part)
            if await self._rested_in_vain(started_s, host, generation):
                return False
            started_s = self._clock.monotonic_s()
        await self._blocking(writer.publish)
        return True

    async def _rested_in_vain(self, started_s: float, host: ReplicaHost, generation: int) -> bool:
        """Rest after the work since `started_s`. Returns what `_paused_in_vain` does."""
        worked_s = self._clock.monotonic_s() - started_s
        return await self._paused_in_vain(self._rest.after(worked_s), host, generation)

    async def _paused_in_vain(self, seconds: float, host: ReplicaHost, generation: int) -> bool:
        """Pause. Returns True if the checkpoint must be given up: the pod stops, something else needs the log, or a
        leadership ended."""
        return await self.pause(seconds) or host.log_wanted or host.generation != generation
