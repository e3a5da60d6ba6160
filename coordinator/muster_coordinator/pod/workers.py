"""The threads and the background tasks of a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 8
"""Blocking calls at a time: promises of many partitions are synced side by side."""


class PodWorkers:
    """Implements `replica.ports.Workers`."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="storage")
        self._tasks: set[asyncio.Task[None]] = set()

    async def blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def is_idle(self) -> bool:
        """True if no task of `spawn` runs."""
        return not self._tasks

    def cancel_tasks(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def close(self) -> None:
        """Is called when nothing runs any more."""
        self._threads.shutdown(wait=True)
