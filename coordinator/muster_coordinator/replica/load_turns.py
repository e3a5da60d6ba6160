"""Chooses the load of a pod that goes on next. One slice of one load runs at a time, so that a load never delays
active shards for long.

Loads that an election waits for go first, then the one with the least left to do: it is ACTIVE soonest, and no other
load waits longer for it than for a slice. Every slice is followed by a turn of the event loop for all other work, and
by a rest unless an election waits for little. Kafka loads one partition after the other, in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from muster_coordinator.tuning.pacing import Rest, Urgency

REST = Rest(1 / 2, longest_s=0.010)
"""Commits of active shards get the other half of the time: a pod that has restarted loads its logs for seconds."""
SHORT_BYTES = 1 << 20
"""An election does not rest while it loads this much of a log or less: it takes tens of milliseconds."""


class LoadTurns:
    """The loads of one pod, each of which is a task. `now_s`: a monotonic clock in seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._waiting: list[tuple[Urgency, int, int, asyncio.Future[None]]] = []
        self._serials = count()
        self._running = False  # a slice is under way, or the next one is scheduled
        self._resting: asyncio.TimerHandle | None = None
        self._began_s = 0.0  # the last slice

    async def next_slice(self, urgency: Urgency, rest_bytes: int) -> None:
        """Returns when the load that calls may run one slice. `rest_bytes`: the bytes of the log that it has yet to
        load."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (urgency, rest_bytes, next(self._serials), turn))
        if not self._running:
            self._running = True
            loop.call_soon(self._give)
        elif self._resting is not None and self._is_urgent:
            self._resting.cancel()
            self._resting = None
            loop.call_soon(self._give)
        await turn

    @property
    def _is_urgent(self) -> bool:
        urgency, rest_bytes, *_ = self._waiting[0]
        return urgency is Urgency.ELECTION and rest_bytes <= SHORT_BYTES

    def _give(self) -> None:
        self._resting = None
        self._began_s = self._now_s()
        while self._waiting:
            *_, turn = heappop(self._waiting)
            if not turn.done():  # else the load was given up meanwhile
                turn.set_result(None)
                break
        asyncio.get_running_loop().call_soon(self._slice_ended)  # the task of the load runs before that

    def _slice_ended(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._running = False
        elif self._is_urgent:
            loop.call_soon(self._give)
        else:
            self._resting = loop.call_later(REST.after(self._now_s() - self._began_s), self._give)
