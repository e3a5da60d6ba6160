"""When a partition's status goes onto the watch streams: a change of state at once, positions now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.models import ReplicaStatus

__all__ = ["POSITIONS_S", "PartitionPublisher"]

POSITIONS_S = 0.5
"""Positions of a partition are published at most so often: operators choose leaders by them, and ask before they do."""


class PartitionPublisher:
    """``status``: of one partition, None if it is not here; ``moving``: partitions whose positions others follow."""

    def __init__(
        self,
        hub: EventHub,
        status: Callable[[int], ReplicaStatus | None],
        moving: Callable[[], Iterable[int]],
    ) -> None:
        self._hub = hub
        self._status = status
        self._moving = moving
        self._published: dict[int, ReplicaStatus] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(POSITIONS_S, self._positions)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def changed(self, partition: int) -> None:
        """Something of ``partition`` changed: publish it, unless it is only positions."""
        now = self._status(partition)
        if now is None:
            return
        before = self._published.get(partition)
        if before is None or before.without_positions() != now.without_positions():
            self._publish(now)

    def _positions(self) -> None:
        self.start()
        if not self._hub.has_streams:
            return
        for partition in self._moving():
            now = self._status(partition)
            if now is not None and now != self._published.get(partition):
                self._publish(now)

    def _publish(self, status: ReplicaStatus) -> None:
        self._published[status.partition] = status
        self._hub.publish(status)
