"""Threads that stand back, in Linux's class SCHED_IDLE, in Kubernetes only (docs/adr/0016)."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ["call_standing_back", "stand_back", "stand_back_altogether"]

IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""The kubelet gives it to every container."""
THREADS = "/proc/self/task"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def stand_back() -> None:
    """The thread that calls, and those that it starts, for good: the way back is a privilege. Without effect outside of
    Kubernetes, and where the system knows no such class or does not allow it.
    """
    _stand_back(0)


def stand_back_altogether() -> None:
    """Every thread of this process, for good, as ``stand_back``: for the end of one."""
    if os.path.isdir(THREADS):
        for thread in map(int, os.listdir(THREADS)):
            _stand_back(thread)


def _stand_back(thread: int) -> None:
    """0: the one that calls."""
    if IN_KUBERNETES in os.environ and hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # it has ended, or may not
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def call_standing_back(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **keywords: Arguments.kwargs
) -> Result:
    """What ``function`` returns or raises; it runs in a thread of its own, and the one that calls waits."""
    with ThreadPoolExecutor(1, thread_name_prefix="standing-back", initializer=stand_back) as thread:
        return thread.submit(function, *arguments, **keywords).result()
