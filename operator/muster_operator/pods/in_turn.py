"""One behind the other, but nobody waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["InTurn"]


class InTurn:
    """Turns in the order in which they were asked for: each begins when the one before is over, or has lasted for
    `at_most_s` seconds."""

    def __init__(self, at_most_s: float) -> None:
        self._at_most_s = at_most_s
        self._last: asyncio.Event | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        before, over = self._last, asyncio.Event()
        self._last = over
        timer: asyncio.TimerHandle | None = None
        try:
            if before is not None:
                await before.wait()
            timer = asyncio.get_running_loop().call_later(self._at_most_s, over.set)
            yield
        finally:
            if timer is not None:
                timer.cancel()
            over.set()
