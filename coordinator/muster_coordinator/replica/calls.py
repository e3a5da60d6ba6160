"""Calls that a replica's core was given and has not ended yet."""

from __future__ import annotations

import asyncio

from muster_coordinator.calls import CallResult
from muster_coordinator.replication.effects import CallEnded


class PendingCalls:
    """The calls that wait for their result, by number. `begin`, `end` and `end_all` run on the event loop."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[CallResult]] = {}
        self._last = 0

    def begin(self) -> tuple[int, asyncio.Future[CallResult]]:
        """(number of the call, its result)."""
        self._last += 1
        result: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = result
        return self._last, result

    def end(self, ended: CallEnded) -> None:
        waiting = self._waiting.pop(ended.call, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(ended.result)

    def end_all(self, result: CallResult) -> None:
        """The core was given up: all calls that wait get the same result."""
        for call in tuple(self._waiting):
            self.end(CallEnded(call, result))
