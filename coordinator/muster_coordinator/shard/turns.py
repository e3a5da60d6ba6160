"""The turns of a pod: which shards have work, one durable write for all of them, and when their timers fire.

While a write is on its way nothing is drained: it would wait for that write anyway, and what comes meanwhile makes one
larger batch. So a turn is as long as a write takes, and no linger is involved.
"""

from __future__ import annotations

import asyncio

from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.shard import Shard
from muster_coordinator.shard.storage import Storage


class Turns:
    """``write_ended`` must follow every write that a turn submitted."""

    def __init__(self, storage: Storage, clock: Clock, metrics: ShardMetrics) -> None:
        self._storage = storage
        self._clock = clock
        self._metrics = metrics
        self._dirty: list[Shard] = []
        self._scheduled = False
        self._first_queued_s = 0.0  # when the first shard of the coming turn got work, on the monotonic clock
        self._submitted_s = 0.0  # when the last turn handed over its write
        self._timers: dict[Shard, tuple[int, asyncio.TimerHandle]] = {}

    def flush_soon(self, shard: Shard) -> None:
        """``shard`` has work: drain it in the coming turn."""
        if not self._dirty:
            self._first_queued_s = self._clock.monotonic_s()
        self._dirty.append(shard)
        if not self._storage.is_writing:
            self._run_soon()

    def _run_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.run)

    def run(self) -> None:
        """One turn, unless a write is on its way: every shard with work drains its queue, then one write follows."""
        self._scheduled = False
        if not self._dirty or self._storage.is_writing:
            return
        dirty, self._dirty = self._dirty, []
        started_s = self._clock.monotonic_s()
        now_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        for shard in dirty:
            shard.drain(now_ms, monotonic_ms)
        self._storage.submit()
        self._submitted_s = self._clock.monotonic_s()
        self._metrics.queue_time.observe((started_s - self._first_queued_s) * 1000)
        self._metrics.processing_time.observe((self._submitted_s - started_s) * 1000)

    def write_ended(self) -> None:
        """The last write is durable and its answers are released. The next turn comes when the sockets have been read
        once more: what waits there makes one larger batch.
        """
        self._metrics.flush_time.observe((self._clock.monotonic_s() - self._submitted_s) * 1000)
        self._run_soon()

    def arm_timer(self, shard: Shard, deadline_ms: int) -> None:
        """Call ``shard.fire_timers`` at ``deadline_ms``, unless that happens earlier anyway."""
        armed = self._timers.get(shard)
        if armed is not None:
            if armed[0] <= deadline_ms:
                return
            armed[1].cancel()
        delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        handle = asyncio.get_running_loop().call_later(delay_s, self._fire, shard)
        self._timers[shard] = (deadline_ms, handle)

    def disarm(self, shard: Shard) -> None:
        """``shard`` serves no more."""
        armed = self._timers.pop(shard, None)
        if armed is not None:
            armed[1].cancel()

    def _fire(self, shard: Shard) -> None:
        del self._timers[shard]
        shard.fire_timers()
