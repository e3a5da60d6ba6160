"""The queue of keys to reconcile: one at a time per key, each at most once in it, a rest after each, and a rate."""

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
REST_S = 0.01
"""After a reconcile, at least: what it brought about comes in one event after the other, and is looked at together.
What comes after a longer silence is looked at at once, and what is urgent always.
"""
RESTS = 2
"""A rest lasts so many times as long as the reconcile before it. Where that takes long the processors are short, mostly
because a pod has died, and pods need them more than the third plan of what the first one brought about."""
LONGEST_REST_S = 0.1
"""A reconcile that waited for the API server is no reason to rest for longer."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class KeyQueue:
    """Keys that are added while they wait are one; while they are worked on, they come once more afterwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[ClusterKey] = deque()
        self._waiting: set[ClusterKey] = set()  # ready, or held back
        self._held: dict[ClusterKey, asyncio.TimerHandle] = {}  # those of them that are held back
        self._working: set[ClusterKey] = set()
        self._again: dict[ClusterKey, bool] = {}  # if one of the events was urgent
        self._began: dict[ClusterKey, float] = {}
        self._rests_until: dict[ClusterKey, float] = {}
        self._buckets: dict[ClusterKey, _Bucket] = {}
        self._timers: dict[ClusterKey, asyncio.TimerHandle] = {}
        self._wakeup = asyncio.Event()

    def __repr__(self) -> str:
        return f"KeyQueue(waiting={len(self._waiting)}, working={len(self._working)})"

    def add(self, key: ClusterKey, *, urgent: bool = False) -> None:
        """Now, as soon as its turn comes; if it is `urgent`, without a rest."""
        if key in self._working:
            self._again[key] = urgent or self._again.get(key, False)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._take_token(key)
            self._hold(key, urgent=urgent)
        elif urgent and key in self._held:
            self._held.pop(key).cancel()
            self._hold(key, urgent=True)

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
        self._began[key] = self._clock.monotonic()
        return key

    def done(self, key: ClusterKey) -> None:
        self._working.discard(key)
        now = self._clock.monotonic()
        took_s = now - self._began.pop(key)
        self._rests_until[key] = now + min(max(took_s * RESTS, REST_S), LONGEST_REST_S)
        if key in self._again:
            self.add(key, urgent=self._again.pop(key))

    def close(self) -> None:
        for timer in (*self._timers.values(), *self._held.values()):
            timer.cancel()

    def _due(self, key: ClusterKey) -> None:
        del self._timers[key]
        self.add(key)

    def _hold(self, key: ClusterKey, *, urgent: bool) -> None:
        """Until its rest is over and its rate allows it."""
        now = self._clock.monotonic()
        bucket = self._buckets[key]
        rest_s = 0.0 if urgent else self._rests_until.get(key, now) - now
        wait_s = max(rest_s, -bucket.tokens / RATE_PER_S - (now - bucket.at))
        if wait_s > 0:
            self._held[key] = asyncio.get_running_loop().call_later(wait_s, self._make_ready, key)
        else:
            self._make_ready(key)

    def _make_ready(self, key: ClusterKey) -> None:
        self._held.pop(key, None)
        self._ready.append(key)
        self._wakeup.set()

    def _take_token(self, key: ClusterKey) -> None:
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(BURST, now))
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) * RATE_PER_S) - 1
        bucket.at = now
