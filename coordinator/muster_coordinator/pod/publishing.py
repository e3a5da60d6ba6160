"""Sends the status of replicas to the watch streams: a change of state at once, positions at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.models import ReplicaStatus

POSITIONS_S = 0.5
"""Seconds between two publications of positions. An operator asks for newer ones before it chooses a leader."""


class PartitionPublisher:
    """`status` returns the status of a partition's replica, None if there is none. `moving` returns the partitions
    whose positions operators follow.
    """

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
        """The replica of `partition` has changed: publish it, unless only positions changed."""
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
