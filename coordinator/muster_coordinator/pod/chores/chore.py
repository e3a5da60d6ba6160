"""Work that a pod does by itself, again and again, and that must be over before its files are closed."""

from __future__ import annotations

import asyncio

from muster_coordinator.shard.metrics import RunCounts


class Background:
    """Calls `work` on the event loop with pauses of `interval_s` until `stop`. `kind` names it in metrics."""

    kind: str

    def __init__(self, interval_s: float) -> None:
        self.counts = RunCounts()
        self._interval_s = interval_s
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins on the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Returns when nothing runs any more."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def work(self) -> object:
        raise NotImplementedError

    async def pause(self, seconds: float) -> bool:
        """True if the pod stops."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        while not await self.pause(self._interval_s):
            await self.work()
