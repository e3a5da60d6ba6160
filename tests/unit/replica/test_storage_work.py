"""Where a promise is written: by the event loop while the disk is fast, else by a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from muster_coordinator.replica.storage_work import StorageWork
from muster_coordinator.replication.effects import Promise, StorePromise

PROMISE = Promise(7, "a" * 32, 1, False)


class Bench:
    """A StorageWork over a disk that is fast or not, and what came of it."""

    def __init__(self, *, fast: bool, error: OSError | None = None) -> None:
        self.stored: list[tuple[Promise, threading.Thread]] = []
        self.wrote: list[float] = []
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._error = error
        pace = SimpleNamespace(is_fast=fast, note=self.wrote.append)
        storage: Any = SimpleNamespace(pace=pace)
        workers: Any = SimpleNamespace(spawn=self._spawn, blocking=self._blocking)
        replica: Any = SimpleNamespace(store_promise=self._store)
        turns: Any = None
        self.work = StorageWork(replica, storage, turns, workers, self.ended.set_result, asyncio.Lock(), monotonic)

    def _store(self, promise: Promise) -> None:
        self.stored.append((promise, threading.current_thread()))
        if self._error is not None:
            raise self._error

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(coroutine)

    async def _blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(function, *arguments)


async def test_while_the_disk_is_fast_the_event_loop_stores_it_and_says_how_long_that_took() -> None:
    bench = Bench(fast=True)
    assert bench.work.begin(StorePromise(PROMISE))
    assert not bench.ended.done(), "it says so by what it returns"
    assert bench.stored == [(PROMISE, threading.current_thread())]
    assert len(bench.wrote) == 1


async def test_on_another_disk_a_thread_does() -> None:
    bench = Bench(fast=False)
    assert not bench.work.begin(StorePromise(PROMISE))
    assert await bench.ended is None
    [(promise, thread)] = bench.stored
    assert (promise, thread == threading.current_thread(), bench.wrote) == (PROMISE, False, [])


@pytest.mark.parametrize("fast", [True, False])
async def test_a_failed_write_is_told(fast: bool) -> None:
    error = OSError(5, "I/O error")
    bench = Bench(fast=fast, error=error)
    if fast:
        with pytest.raises(OSError, match="I/O error"):
            bench.work.begin(StorePromise(PROMISE))
    else:
        bench.work.begin(StorePromise(PROMISE))
        assert await bench.ended is error
    assert bench.wrote == []
