"""Tells the replicas of a pod that time passes."""

from __future__ import annotations

import asyncio

from muster_coordinator.pod.partitions import Partitions

TICK_S = 0.05
"""Seconds between two ticks of a protocol core: the finest step of its time-outs, which are 100 ms and more."""
SLOW_TICKS = 20
"""A leader that is alone in its set hears no other replica, and the commit time-out of a shard is seconds: they are
looked at each second."""


class Ticks:
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._count += 1
        slow = self._count % SLOW_TICKS == 0
        for host in self._partitions.hosts.values():
            if slow or not host.alone:
                host.tick()
        if slow:
            for shard in self._partitions.shards.values():
                shard.refuse_overdue()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
