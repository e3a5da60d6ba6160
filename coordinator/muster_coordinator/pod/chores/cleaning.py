"""The pod's cleaner, which decides when which log is cleaned (Kafka: LogCleaner, LogCleanerManager), one log at a time.

A pass runs in slices of a millisecond or so in a thread, with pauses that keep its reading and writing below
`io_max_bytes_per_second`, so that the event loop hardly notices it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from muster_coordinator.log.cleaning.cleaner import Cleaning
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.pod.chores.chore import Background
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.shard.ports import Clock

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CleanerSettings:
    """The settings of the cleaner, with Kafka's meaning; `segment_bytes`: closed segments are merged up to that."""

    segment_bytes: int
    min_cleanable_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    io_max_bytes_per_second: int = 4 << 20
    backoff_ms: int = 15_000


def dirty_bytes(log: PartitionLog, limit: int) -> int:
    """Bytes of closed segments below `limit` that were not cleaned yet."""
    return sum(segment.size for segment, end in log.closed_segments(limit) if end > log.cleaned_to.end_offset)


def dirty_ratio(log: PartitionLog, limit: int) -> float:
    """The same as a part of all closed ones; 0 for none."""
    return dirty_bytes(log, limit) / (sum(segment.size for segment, _ in log.closed_segments(limit)) or 1)


class LogCleaner(Background):
    """`hosts`: those of the pod's replicas, as they are at any time; `blocking` runs a function in a thread;
    `sync_failed` hears of a log that must not be written any more; `archived_to`: if there is an archive, nothing
    is cleaned that is not in it.
    """

    kind = "cleaner"

    def __init__(
        self,
        disk: Disk,
        settings: CleanerSettings,
        clock: Clock,
        hosts: dict[int, ReplicaHost],
        blocking: Callable[..., Awaitable[Any]],
        sync_failed: Callable[[OSError], None],
        archived_to: Callable[[ReplicaHost], int] | None = None,
    ) -> None:
        super().__init__(settings.backoff_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._hosts = hosts
        self._blocking = blocking
        self._sync_failed = sync_failed
        self._archived_to = archived_to

    async def work(self) -> None:
        await self.clean_dirtiest()
        self.counts.lag_bytes = sum(
            dirty_bytes(host.replica.log, self._limit(host)) for host in self._hosts.values() if host.may_tend
        )

    async def clean_dirtiest(self) -> bool:
        """One pass over the log that has most to clean; False if none has enough."""
        ratios = {
            partition: dirty_ratio(host.replica.log, self._limit(host))
            for partition, host in self._hosts.items()
            if host.may_tend and not host.replica.log.cannot_clean
        }
        partition = max(ratios, key=lambda p: ratios[p], default=-1)
        if partition < 0 or ratios[partition] <= 0 or ratios[partition] < self._settings.min_cleanable_ratio:
            return False
        host = self._hosts[partition]
        async with host.log_lock:
            if host.may_tend:
                await self._clean(host)
        return True

    def _limit(self, host: ReplicaHost) -> int:
        limit = host.commit_point
        return limit if self._archived_to is None else min(limit, self._archived_to(host))

    async def _clean(self, host: ReplicaHost) -> None:
        log = host.replica.log
        started_ms = self._clock.monotonic_ms()
        try:
            cleaning = Cleaning(
                self._disk,
                log,
                self._limit(host),
                now_ms=self._clock.wall_ms(),
                delete_retention_ms=self._settings.delete_retention_ms,
                segment_bytes=self._settings.segment_bytes,
            )
            whole = await self._slices(cleaning, host)
        except OSError as error:  # no room, most likely: the next pass tries again
            self.counts.failed += 1
            logger.warning("log_not_cleaned", partition=host.partition, error=str(error))
            if log.failed is not None:
                self._sync_failed(error)
        except Exception as error:  # the log cannot be read: nothing of it is thrown away
            self.counts.failed += 1
            log.cannot_clean = f"{type(error).__name__}: {error}"
            logger.error("log_not_cleaned", partition=host.partition, error=log.cannot_clean)
        else:
            self.counts.done += whole
            self.counts.given_up += not whole
            logger.info(
                "log_cleaned" if whole else "log_cleaning_given_up",
                partition=host.partition,
                bytes_before=cleaning.bytes_before,
                bytes_after=cleaning.bytes_after,
                duration_ms=self._clock.monotonic_ms() - started_ms,
            )

    async def _slices(self, cleaning: Cleaning, host: ReplicaHost) -> bool:
        """Returns False if the pass was given up: a cut or a swap needs the log, or the pod stops."""
        steps = cleaning.steps()
        try:
            while True:
                size = await self._blocking(next, steps, None)
                if size is None:
                    return True
                self.counts.byte_count += size
                self._hand_over(cleaning, host)
                if await self.pause(size / self._settings.io_max_bytes_per_second):
                    return False
                if host.log_wanted:
                    return False
        finally:
            await self._blocking(steps.close)
            self._hand_over(cleaning, host)

    @staticmethod
    def _hand_over(cleaning: Cleaning, host: ReplicaHost) -> None:
        if cleaning.hand_over():
            host.cleaned()
