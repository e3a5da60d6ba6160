"""A deterministic asyncio event loop for one simulated process: its callbacks are entries of the world's queue.

Time is the process's own monotonic clock, so it drifts as that does. A process that is killed never runs another
callback: no `finally`, no cancellation, as after SIGKILL. A frozen process runs them when it thaws. Functions given to
an executor run on the world's queue too, one event for the call and one for its result, which comes as much later as
the call waited for the disk. So a crash can come before, between and after.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

__all__ = ["SimulatedLoop"]

T = TypeVar("T")

At = Callable[[float, Callable[[], None]], None]
"""(delay in seconds of the process's clock, callback): the process's place in the world's queue."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """What the coordinator uses of an event loop; anything else raises NotImplementedError.

    `at` puts a callback into the world's queue and runs it only while the process lives. `failed` hears of exceptions
    that no task or future took: in the simulation they are defects.
    """

    def __init__(
        self,
        at: At,
        time_s: Callable[[], float],
        thread_delay_s: Callable[[], float],
        failed: Callable[[dict[str, Any]], None],
    ) -> None:
        self._at = at
        self._time_s = time_s
        self._thread_delay_s = thread_delay_s
        self._failed = failed
        self._kept: dict[asyncio.Task[Any], None] = {}
        """Tasks that run. Those of a dead process stay here: collecting them would run their `finally` blocks."""

    # -- time and callbacks -------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._time_s()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._at(0.0, partial(self._run, handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._at(max(when - self.time(), 0.0), partial(self._run, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by `TimerHandle.cancel`; a cancelled handle does nothing when its time comes."""

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self.enter(handle._run)

    def enter(self, run: Callable[[], T]) -> T:
        """Run a function as this loop runs its callbacks: `asyncio.get_running_loop()` is this loop."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return run()
        finally:
            events._set_running_loop(before)

    # -- tasks, futures, threads --------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, **options)
        self._kept[task] = None
        task.add_done_callback(self._kept.pop)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()

        def call() -> None:
            result, error = None, None
            try:
                result = func(*args)
            except Exception as raised:
                error = raised
            self._at(self._thread_delay_s(), lambda: self.enter(lambda: _settle(future, result, error)))

        self._at(0.0, call)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._failed(context)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
