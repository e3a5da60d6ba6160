"""The upkeep of a pod's storage while it runs: flush segments, bring the storage back after a failed write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.opening import Opening
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.pod.turns import Turns
from muster_coordinator.replica.host import ReplicaHost

logger = structlog.get_logger(__name__)

RETRY_S = 1.0
"""Seconds between two attempts to write again: a full disk does not empty within milliseconds."""


class SegmentFlush:
    """Gives the segments what was appended since the last flush. It is durable by the journal already."""

    def __init__(
        self, hosts: Mapping[int, ReplicaHost], interval_ms: int, storage_failed: Callable[[OSError], None]
    ) -> None:
        self._hosts = hosts
        self._interval_s = interval_ms / 1000
        self._storage_failed = storage_failed
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._flush)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        try:
            for host in self._hosts.values():
                log = host.open_log
                if log is not None and log.has_pending:
                    log.relieve()
        except OSError as error:
            self._storage_failed(error)
        self.start()


class StorageRecovery:
    """Makes a pod whose storage failed write again when there is room, and opens logs that could not be opened.
    `must_restart` is called if a log's sync failed: only a new process may go on then.
    """

    def __init__(
        self,
        health: StorageHealth,
        hosts: Mapping[int, ReplicaHost],
        writer: JournalWriter,
        turns: Turns,
        opening: Opening,
        events: PodEvents,
        must_restart: Callable[[], None],
    ) -> None:
        self._health = health
        self._hosts = hosts
        self._writer = writer
        self._turns = turns
        self._opening = opening
        self._events = events
        self._must_restart = must_restart
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._health.failed.wait()
            if self._health.must_restart:
                logger.error("storage_needs_a_new_process", reason=self._health.must_restart)
                self._must_restart()
                return
            await asyncio.sleep(RETRY_S)
            if not self._health.cannot_write:
                await self._opening.open_all()
                continue
            try:
                await self._recover()
            except OSError as error:
                logger.warning("storage_still_failing", error=str(error))

    async def _recover(self) -> None:
        """Raises OSError: the storage still fails."""
        logs = [log for host in self._hosts.values() if (log := host.open_log) is not None]
        await self._writer.recover(logs)
        self._health.recovered()
        self._turns.storage_recovered()
        await self._opening.open_all()
        self._events.pod_changed()
