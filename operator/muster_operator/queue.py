"""The queue of keys to reconcile: one at a time per key, each at most once in it, and not faster than its rate."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from muster_operator.clock import Clock
from muster_operator.store.port import ClusterKey

__all__ = ["KeyQueue"]

BURST = 100
RATE_PER_S = 50.0
"""A failover of many partitions is a dozen reconciles in a row; a loop that feeds itself is slowed to this rate."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class KeyQueue:
    """Keys that are added while they wait are one; while they are worked on, they come once more afterwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[ClusterKey] = deque()
        self._waiting: set[ClusterKey] = set()  # ready, or held back by the rate
        self._working: set[ClusterKey] = set()
        self._again: set[ClusterKey] = set()
        self._buckets: dict[ClusterKey, _Bucket] = {}
        self._timers: dict[ClusterKey, asyncio.TimerHandle] = {}
        self._wakeup = asyncio.Event()

    def __repr__(self) -> str:
        return f"KeyQueue(waiting={len(self._waiting)}, working={len(self._working)})"

    def add(self, key: ClusterKey) -> None:
        """Now, as soon as its turn comes."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            wait_s = self._take_token(key)
            if wait_s > 0:
                asyncio.get_running_loop().call_later(wait_s, self._make_ready, key)
            else:
                self._make_ready(key)

    def add_later(self, key: ClusterKey, delay_s: float) -> None:
        """After a time, unless an earlier one is set for it already."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay_s:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay_s, self._due, key)

    async def get(self) -> ClusterKey:
        """The next key; it is worked on until `done`."""
        while not self._ready:
            self._wakeup.clear()
            await self._wakeup.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: ClusterKey) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _due(self, key: ClusterKey) -> None:
        del self._timers[key]
        self.add(key)

    def _make_ready(self, key: ClusterKey) -> None:
        self._ready.append(key)
        self._wakeup.set()

    def _take_token(self, key: ClusterKey) -> float:
        """Seconds until this key may run."""
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(BURST, now))
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) * RATE_PER_S) - 1
        bucket.at = now
        return max(0.0, -bucket.tokens / RATE_PER_S)
