"""The archiving of segments: closed ones below the commit point, of every replica here, in order.

The cleaner goes no further than what is archived (`archived_to`), so an archive that is away stops compaction, never
the service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from muster_coordinator.log.cleaning.archive import Archive, archive_segment, archived_to
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.segments.segment import Segment
from muster_coordinator.pod.chores.chore import Background
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.stored import StoredReplica

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ArchiverSettings:
    """`bytes_per_second`: read and written at most."""

    archive: Archive
    bytes_per_second: int
    check_interval_ms: int = 5_000


@dataclass(frozen=True)
class _Archived:
    """`log` is in the archive up to `offset`, under `name`."""

    log: PartitionLog
    name: str
    offset: int


class Archiver(Background):
    """`hosts`: those of the pod's replicas, as they are at any time; `blocking` runs a function in a thread."""

    kind = "archive"

    def __init__(
        self,
        disk: Disk,
        settings: ArchiverSettings,
        hosts: dict[int, ReplicaHost],
        blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(settings.check_interval_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._hosts = hosts
        self._blocking = blocking
        self._archived: dict[int, _Archived] = {}  # by partition

    def archived_to(self, host: ReplicaHost) -> int:
        """Offset up to which the replica's log is in the archive, as far as this process knows."""
        found = self._archived_of(host)
        return found.offset if found is not None else 0

    def _archived_of(self, host: ReplicaHost) -> _Archived | None:
        """The archived part of the present log; None if it is that of another log, which this one has replaced."""
        found = self._archived.get(host.partition)
        return found if found is not None and found.log is host.replica.log_or_none else None

    async def work(self) -> None:
        self.counts.lag_bytes = self._waiting_bytes()  # an archive that does not answer holds up what follows
        for host in tuple(self._hosts.values()):
            if host.may_tend:
                async with host.log_lock:
                    if host.may_tend:
                        await self._archive_log(host)
        self.counts.lag_bytes = self._waiting_bytes()

    def _waiting_bytes(self) -> int:
        return sum(
            segment.size
            for host in self._hosts.values()
            if host.may_tend
            for segment, end_offset in host.replica.log.closed_segments(host.commit_point)
            if end_offset > self.archived_to(host)
        )

    async def _archive_log(self, host: ReplicaHost) -> None:
        log = host.replica.log
        try:
            done = self._archived_of(host)
            if done is None:
                name, offset = await self._blocking(self._look, host.replica)
                done = self._archived[host.partition] = _Archived(log, name, offset)
            for segment, end_offset in log.closed_segments(host.commit_point):
                if end_offset > done.offset:
                    if not await self._copy(host, done.name, segment, end_offset):
                        self.counts.given_up += 1
                        return
                    self.counts.done += 1
                    self.counts.byte_count += segment.size
                    self._archived[host.partition] = _Archived(log, done.name, end_offset)
                    logger.info("segment_archived", partition=host.partition, file=segment.path.name)
        except Exception as error:  # of the archive, most likely: the next round tries again
            self.counts.failed += 1
            logger.warning("segment_not_archived", partition=host.partition, error=f"{type(error).__name__}: {error}")

    def _look(self, replica: StoredReplica) -> tuple[str, int]:
        """The log's name, and up to where it is archived. Raises DamagedLogError, OSError."""
        return replica.log_name, archived_to(self._disk, replica.directory)

    async def _copy(self, host: ReplicaHost, name: str, segment: Segment, end_offset: int) -> bool:
        """Returns False if the copy was given up: a cut or a swap needs the log, or the pod stops."""
        steps = archive_segment(self._disk, self._settings.archive, host.replica.log, name, segment, end_offset)
        try:
            while True:
                size = await self._blocking(next, steps, None)
                if size is None:
                    return True
                stopping = await self.pause(size / self._settings.bytes_per_second)
                if stopping or host.log_wanted:
                    return False
        finally:
            await self._blocking(steps.close)
