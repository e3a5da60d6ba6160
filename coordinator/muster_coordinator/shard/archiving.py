"""When segments are archived: closed ones below the commit point, of the partitions that this pod leads, in order.

The cleaner goes no further than what is archived (``archived_to``), so an archive that is away stops compaction, never
the service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from muster_coordinator.log.archive import Archive, archive_segment, archived_to
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.segment import Segment
from muster_coordinator.shard.background import Background
from muster_coordinator.shard.shard import Shard
from muster_coordinator.shard.states import ShardState

__all__ = ["Archiver", "ArchiverSettings"]

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ArchiverSettings:
    """``bytes_per_second``: read and written at most."""

    archive: Archive
    bytes_per_second: int
    check_interval_ms: int = 5_000


class Archiver(Background):
    """``shards``: those of the pod, as they are at any time; ``blocking`` runs a function in a thread."""

    def __init__(
        self,
        disk: Disk,
        settings: ArchiverSettings,
        shards: dict[int, Shard],
        blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(settings.check_interval_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._shards = shards
        self._blocking = blocking
        self._archived: dict[str, int] = {}  # log id -> offset

    def archived_to(self, shard: Shard) -> int:
        """Offset up to which the shard's log is in the archive, as far as this process knows."""
        return self._archived.get(shard.replica.log_id, 0)

    async def work(self) -> None:
        for shard in tuple(self._shards.values()):
            if shard.state is ShardState.ACTIVE:
                await self._archive_shard(shard)

    async def _archive_shard(self, shard: Shard) -> None:
        replica = shard.replica
        try:
            done = self._archived.get(replica.log_id)
            if done is None:
                done = self._archived[replica.log_id] = await self._blocking(archived_to, self._disk, replica.directory)
            for segment, end_offset in replica.log.closed_segments(shard.high_watermark):
                if end_offset > done:
                    if not await self._copy(shard, segment, end_offset):
                        return
                    self._archived[replica.log_id] = end_offset
                    logger.info("segment_archived", partition=shard.partition, file=segment.path.name)
        except Exception as error:  # of the archive, most likely: the next round tries again
            logger.warning("segment_not_archived", partition=shard.partition, error=f"{type(error).__name__}: {error}")

    async def _copy(self, shard: Shard, segment: Segment, end_offset: int) -> bool:
        """False if it was given up because the shard does not lead any more, or the pod stops."""
        steps = archive_segment(
            self._disk, self._settings.archive, shard.replica.log, shard.replica.log_id, segment, end_offset
        )
        try:
            while True:
                size = await self._blocking(next, steps, None)
                if size is None:
                    return True
                stopping = await self.pause(size / self._settings.bytes_per_second)
                if stopping or shard.state is not ShardState.ACTIVE:
                    return False
        finally:
            await self._blocking(steps.close)
