"""Where a promise is written: by the event loop while the disk is fast, else by a thread. What a cut waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from muster_coordinator.replica.storage_work import StorageWork
from muster_coordinator.replication.effects import Promise, StorageEffect, StorePromise, SwapCopy, Truncate
from muster_coordinator.tuning.pacing import Urgency

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


class WritingPod:
    """A StorageWork over a log that ends at 8 and is durable up to 5. `steps`: what was done, in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.log = SimpleNamespace(journaled_end=5, end_offset=8, begin_truncate=lambda end: lambda: self._step("cut"))
        self._write: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        replica: Any = SimpleNamespace(
            log=self.log,
            stage_truncation=lambda end: self._step("staged"),
            name_in_journal=lambda: self._step("named"),
        )
        storage: Any = SimpleNamespace(
            begin_copy=lambda replica: SimpleNamespace(), swap=lambda *arguments: self._step("swapped")
        )
        workers: Any = SimpleNamespace(spawn=asyncio.create_task, blocking=self._blocking)
        self.work = StorageWork(replica, storage, self, workers, self.ended.set_result, asyncio.Lock(), monotonic)

    def _step(self, what: str) -> None:
        self.steps.append(what)

    async def _blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def write(self, urgency: Urgency) -> None:
        pass

    def next_write(self) -> asyncio.Future[bool]:
        return self._write

    def end_turn_of(self, replica: object) -> None:
        raise AssertionError("these tests end no turn")

    async def journaled(self, end_offset: int) -> None:
        """A journal write has ended."""
        self.steps.append(f"durable to {end_offset}")
        self.log.journaled_end = end_offset
        write, self._write = self._write, asyncio.get_running_loop().create_future()
        write.set_result(True)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (Truncate(6), ["durable to 7", "durable to 8", "staged", "durable to 6", "cut"]),
        (SwapCopy(), ["durable to 7", "durable to 8", "swapped", "named", "durable to 6"]),
    ],
)
async def test_cut_and_swap_wait_until_all_that_was_appended_is_durable(
    effect: StorageEffect, expected: list[str]
) -> None:
    """Otherwise the report of an earlier write would come after them, and name records that are gone."""
    pod = WritingPod()
    if isinstance(effect, SwapCopy):
        pod.work._copy = SimpleNamespace()  # type: ignore[assignment]
    pod.work.begin(effect)
    await asyncio.sleep(0)
    assert pod.work.changes_log
    for end_offset in (7, 8, 6):
        await pod.journaled(end_offset)
    assert pod.steps == expected
    assert await pod.ended is None
    assert not pod.work.changes_log
