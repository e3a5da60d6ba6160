"""When a checkpoint of a partition is taken, and how: as a load of its own, in the background.

The state that serves changes all the time; so a second one is made from the checkpoint before and the committed
records behind it, and written in parts. That takes a fifth of a processor at most, and the memory of one partition at
a time. A checkpoint whose shard does not lead any more at the end is dropped.
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
from muster_coordinator.shard.shard import Shard
from muster_coordinator.shard.states import ShardState

__all__ = ["Checkpointer", "CheckpointerSettings"]

logger = structlog.get_logger(__name__)

PART_ENTRIES = 200
"""Groups or offsets in one part: well below a millisecond of work."""
REST = 4
"""Pauses last so many times as long as the work between them."""


@dataclass(frozen=True)
class CheckpointerSettings:
    """``interval_bytes``: so much of a log, and at least as much as its last checkpoint is large, must lie behind that
    before another one is taken.
    """

    interval_bytes: int
    check_interval_ms: int = 5_000


class Checkpointer(Background):
    """``shards``: those of the pod, as they are at any time; ``blocking`` runs a function in a thread."""

    def __init__(
        self,
        disk: Disk,
        settings: CheckpointerSettings,
        clock: Clock,
        shards: dict[int, Shard],
        new_coordinator: Callable[[], GroupCoordinator],
        blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(settings.check_interval_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._shards = shards
        self._new_coordinator = new_coordinator
        self._blocking = blocking
        self._last: dict[str, tuple[int, int]] = {}  # log id -> offset and bytes of its newest checkpoint

    async def work(self) -> None:
        for shard in tuple(self._shards.values()):
            if shard.state is ShardState.ACTIVE and self._is_due(shard):
                await self.take(shard)

    def _is_due(self, shard: Shard) -> bool:
        replica = shard.replica
        last = self._last.get(replica.log_id)
        if last is None:
            file = replica.open_checkpoint()
            last = (file.head.offset, file.size) if file is not None else (replica.log.start_offset, 0)
            if file is not None:
                file.close()
            self._last[replica.log_id] = last
        offset, size = last
        return replica.log.bytes_from(offset) >= max(self._settings.interval_bytes, size)

    async def take(self, shard: Shard) -> bool:
        """False if none was taken. Says why in the log."""
        started_ms = self._clock.monotonic_ms()
        try:
            head = await self._take(shard)
        except Exception as error:
            logger.warning("checkpoint_not_taken", partition=shard.partition, error=f"{type(error).__name__}: {error}")
            return False
        if head is None:
            return False
        duration_ms = self._clock.monotonic_ms() - started_ms
        logger.info("checkpoint_taken", partition=shard.partition, offset=head.offset, duration_ms=duration_ms)
        return True

    async def _take(self, shard: Shard) -> CheckpointHead | None:
        replica = shard.replica
        coordinator = self._new_coordinator()
        load = load_log(replica, coordinator, ShardMetrics(), to_offset=shard.high_watermark)
        offset = await self._load(load, shard)
        if offset is None or offset <= replica.log.start_offset:
            return None
        head = CheckpointHead(SNAPSHOT_VERSION, replica.log_id, offset, replica.log.epochs.epoch_at(offset - 1))
        writer = await self._blocking(CheckpointWriter, self._disk, replica.directory, head)
        try:
            if not await self._write(coordinator, writer, shard):
                return None
            self._last[replica.log_id] = (offset, writer.size)
        finally:
            await self._blocking(writer.discard)
        return head

    async def _load(self, load: Generator[None, None, int], shard: Shard) -> int | None:
        """Up to which offset; None if it was given up."""
        while True:
            started_s = self._clock.monotonic_s()
            try:
                next(load)
            except StopIteration as end:
                offset: int = end.value
                return offset
            if await self._rest(started_s, shard):
                return None

    async def _write(self, coordinator: GroupCoordinator, writer: CheckpointWriter, shard: Shard) -> bool:
        encode = msgspec.msgpack.Encoder().encode
        started_s = self._clock.monotonic_s()
        for part in coordinator.snapshot(PART_ENTRIES):
            await self._blocking(writer.add, encode(part))
            if await self._rest(started_s, shard):
                return False
            started_s = self._clock.monotonic_s()
        await self._blocking(writer.publish)
        return True

    async def _rest(self, started_s: float, shard: Shard) -> bool:
        """True if there is no use in going on."""
        worked_s = self._clock.monotonic_s() - started_s
        return await self.pause(worked_s * REST) or shard.state is not ShardState.ACTIVE
