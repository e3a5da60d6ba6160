"""When a checkpoint of a partition is taken, and how: as a load of its own, in the background.

The state that serves changes all the time; so a second one is made from the checkpoint before and the committed
records behind it, and written in parts. That takes a fifth of a processor at most, half of one where more is written
than that can keep up with, and the memory of one partition at a time. A checkpoint whose shard does not lead any more
at the end is dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.checkpoint import CheckpointHead, CheckpointWriter
from muster_coordinator.log.disk import Disk
from muster_coordinator.shard.background import Background
from muster_coordinator.shard.loading import load_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.replication_host import ReplicaHost

__all__ = ["Checkpointer", "CheckpointerSettings"]

logger = structlog.get_logger(__name__)

PART_ENTRIES = 200
"""Groups or offsets in one part: well below a millisecond of work."""
REST = 4
"""Pauses last so many times as long as the work between them."""
BEHIND = 2
REST_BEHIND = 1
"""The same where so many times more than is due lies behind the last checkpoint: replay is not faster than commits of
ten offsets each, and a tail that grows for as long as the load lasts makes the start after a crash as long."""


@dataclass(frozen=True)
class CheckpointerSettings:
    """``interval_bytes``: so much of a log, and at least as much as its last checkpoint is large, must lie behind that
    before another one is taken: no more is ever written into checkpoints than into the log.
    """

    interval_bytes: int
    check_interval_ms: int = 5_000

    def due_bytes(self, checkpoint_bytes: int) -> int:
        """Of the log behind a checkpoint of that size: from there on the next one is due."""
        return max(self.interval_bytes, checkpoint_bytes)


class Checkpointer(Background):
    """``hosts``: those of the pod's replicas, as they are at any time; ``blocking`` runs a function in a thread."""

    kind = "checkpoint"

    def __init__(
        self,
        disk: Disk,
        settings: CheckpointerSettings,
        clock: Clock,
        hosts: dict[int, ReplicaHost],
        new_coordinator: Callable[[], GroupCoordinator],
        blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(settings.check_interval_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._hosts = hosts
        self._new_coordinator = new_coordinator
        self._blocking = blocking
        self._last: dict[str, tuple[int, int]] = {}  # log id -> offset and bytes of its newest checkpoint
        self._rest_factor = REST

    async def work(self) -> None:
        for host in tuple(self._hosts.values()):
            due = self._due(host) if host.may_tend else 0
            if due >= 1:
                self._rest_factor = REST if due < BEHIND else REST_BEHIND
                await self.take(host)
        self.counts.lag_bytes = sum(
            host.replica.log.bytes_from(self._newest(host)[0]) for host in self._hosts.values() if host.may_tend
        )

    def _due(self, host: ReplicaHost) -> float:
        """How many times what makes a checkpoint due lies behind the last one."""
        offset, size = self._newest(host)
        return host.replica.log.bytes_from(offset) / self._settings.due_bytes(size)

    def _newest(self, host: ReplicaHost) -> tuple[int, int]:
        """Offset and bytes of the newest checkpoint; the start of the log if there is none."""
        replica = host.replica
        last = self._last.get(replica.log_id)
        if last is None:
            file = replica.open_checkpoint()
            last = (file.head.offset, file.size) if file is not None else (replica.log.start_offset, 0)
            if file is not None:
                file.close()
            self._last[replica.log_id] = last
        return last

    async def take(self, host: ReplicaHost) -> bool:
        """False if none was taken. Says why in the log."""
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
        self.counts.byte_count += self._last[host.replica.log_id][1]
        duration_ms = self._clock.monotonic_ms() - started_ms
        logger.info("checkpoint_taken", partition=host.partition, offset=head.offset, duration_ms=duration_ms)
        return True

    async def _take(self, host: ReplicaHost) -> CheckpointHead | None:
        replica = host.replica
        coordinator = self._new_coordinator()
        generation = host.generation
        load = load_log(replica, coordinator, ShardMetrics(), to_offset=host.commit_point)
        offset = await self._load(load, host, generation)
        if offset is None or offset <= replica.log.start_offset:
            return None
        head = CheckpointHead(SNAPSHOT_VERSION, replica.log_id, offset, replica.log.epochs.epoch_at(offset - 1))
        writer = await self._blocking(CheckpointWriter, self._disk, replica.directory, head)
        try:
            if not await self._write(coordinator, writer, host, generation):
                return None
            self._last[replica.log_id] = (offset, writer.size)
        finally:
            await self._blocking(writer.discard)
        return head

    async def _load(self, load: Generator[None, None, int], host: ReplicaHost, generation: int) -> int | None:
        """Up to which offset; None if it was given up."""
        while True:
            started_s = self._clock.monotonic_s()
            try:
                next(load)
            except StopIteration as end:
                offset: int = end.value
                return offset
            if await self._rest(started_s, host, generation):
                return None

    async def _write(
        self, coordinator: GroupCoordinator, writer: CheckpointWriter, host: ReplicaHost, generation: int
    ) -> bool:
        encode = msgspec.msgpack.Encoder().encode
        started_s = self._clock.monotonic_s()
        for part in coordinator.snapshot(PART_ENTRIES):
            await self._blocking(writer.add, encode(part))
            if await self._rest(started_s, host, generation):
                return False
            started_s = self._clock.monotonic_s()
        await self._blocking(writer.publish)
        return True

    async def _rest(self, started_s: float, host: ReplicaHost, generation: int) -> bool:
        """True if there is no use in going on: the pod stops, somebody else needs the log, a leadership ended."""
        worked_s = self._clock.monotonic_s() - started_s
        return await self.pause(worked_s * self._rest_factor) or host.log_wanted or host.generation != generation
