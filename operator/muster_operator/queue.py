"""The queue of clusters to reconcile: one reconcile at a time per cluster, with a short rest after each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster_operator.store.port import ClusterKey

REST_S = 0.02
"""Seconds from the end of a reconcile to the next one of the same cluster. The events that a reconcile causes arrive
one after the other, and one plan answers them together. A loop that feeds itself runs at most 50 times per second."""


class KeyQueue:
    """Holds each key once. A key that is added while it is worked on, or rests, comes once more afterwards."""

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        """`waited` is told how long each key was in the queue, in seconds."""
        self._ready: asyncio.Queue[ClusterKey] = asyncio.Queue()
        self._waiting: dict[ClusterKey, float] = {}  # the keys in `_ready`, and since when (seconds of the loop)
        self._waited = waited
        self._working: dict[ClusterKey, asyncio.TimerHandle | None] = {}  # with the end of its rest once it is done
        self._again: set[ClusterKey] = set()
        self._later: dict[ClusterKey, asyncio.TimerHandle] = {}

    def __repr__(self) -> str:
        return f"KeyQueue(waiting={len(self._waiting)}, working={len(self._working)})"

    def add(self, key: ClusterKey) -> None:
        """Have `get` return the key as soon as it is its turn."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().time()
            self._ready.put_nowait(key)

    def add_later(self, key: ClusterKey, delay_s: float) -> None:
        """Add the key after `delay_s` seconds, unless an earlier time is set already."""
        loop = asyncio.get_running_loop()
        timer = self._later.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay_s:
                return
            timer.cancel()
        self._later[key] = loop.call_later(delay_s, self._due, key)

    async def get(self) -> ClusterKey:
        """Wait for the next key. It counts as worked on until `done`."""
        key = await self._ready.get()
        self._waited(asyncio.get_running_loop().time() - self._waiting.pop(key))
        self._working[key] = None
        return key

    def done(self, key: ClusterKey) -> None:
        """The key rests for `REST_S`, and may then come again."""
        self._working[key] = asyncio.get_running_loop().call_later(REST_S, self._rested, key)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in (*self._later.values(), *self._working.values()):
            if timer is not None:
                timer.cancel()

    def _due(self, key: ClusterKey) -> None:
        del self._later[key]
        self.add(key)

    def _rested(self, key: ClusterKey) -> None:
        del self._working[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)
