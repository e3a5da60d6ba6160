"""Work that others should not wait for, in Linux's class for it (SCHED_IDLE): see docs/adr/0016.

The class orders the threads of one container; what the container as a whole gets of the machine stays the same. But a
processor that runs nothing else counts as idle when another container's thread wakes up and is given one. Without it
a process that computes for long keeps a processor for itself, and all others share what is left: busy processors are
evened out every 30 ms or more only.

In Kubernetes only: elsewhere a process may share its cgroup with whatever else the machine runs, and would come behind
all of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import ParamSpec, TypeVar

__all__ = ["call_standing_back", "import_standing_back", "stand_back", "stand_back_altogether"]

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


def import_standing_back(*modules: str) -> None:
    """Who imports them afterwards has them at once."""
    for module in modules:
        call_standing_back(import_module, module)
