"""When threads get a processor: soon, where somebody waits for an answer; behind all others, where nobody does.

Soon (docs/adr/0017): with short slices. A thread that asks for less at a time than the one that runs gets the processor
as soon as it wakes up, if it has not had more than its share. It gets no more of it for that.

Behind all others (docs/adr/0016): in Linux's class for it (SCHED_IDLE). The class orders the threads of one container;
what the container as a whole gets of the machine stays the same. But a processor that runs nothing else counts as idle
when another container's thread wakes up and is given one. Without it a process that computes for long keeps a
processor for itself, and all others share what is left: busy processors are evened out every 30 ms or more only.

The class in Kubernetes only: elsewhere a process may share its cgroup with whatever else the machine runs, and would
come behind all of it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import ParamSpec, TypeVar

__all__ = ["call_standing_back", "import_standing_back", "run_in_short_slices", "stand_back", "stand_back_altogether"]

IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""The kubelet gives it to every container."""
THREADS = "/proc/self/task"
LOAD = "/proc/loadavg"
NAP_AFTER_S = 0.002
NAPS = 2
"""A nap lasts so many times as long as the work before it."""
LONGEST_NAP_S = 0.05

SLICE_NS = 100_000
"""The shortest that Linux gives; by default it is 1.4 ms with two processors, 2.8 with eight and more."""
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""sched_setattr(2), which neither libc nor Python has, by machine."""
SCHED_ATTR = struct.Struct("=IIQiIQQQ")
"""size | policy | flags | nice | priority | runtime ns | deadline | period."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def run_in_short_slices() -> None:
    """The thread that calls, and those that it starts. Without effect before Linux 6.12, and where the system does not
    allow it.
    """
    _set_slice(0, SLICE_NS)


def _set_slice(thread: int, slice_ns: int) -> None:
    """Of a thread of the usual class; ``slice_ns`` 0: the system's."""
    number = SCHED_SETATTR.get(os.uname().machine)
    if number is not None and hasattr(os, "SCHED_OTHER"):
        with suppress(OSError):  # it has ended
            nice = os.getpriority(os.PRIO_PROCESS, thread)
            attributes = SCHED_ATTR.pack(SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
            ctypes.CDLL(None).syscall(number, thread, attributes, 0)


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
        _set_slice(thread, 0)  # the class alone would keep short ones
        with suppress(OSError):  # it has ended, or may not
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def call_standing_back(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **keywords: Arguments.kwargs
) -> Result:
    """What ``function`` returns or raises; it runs in a thread of its own, and the one that calls waits."""
    with ThreadPoolExecutor(1, thread_name_prefix="standing-back", initializer=stand_back) as thread:
        return thread.submit(function, *arguments, **keywords).result()


def import_standing_back(*modules: str) -> None:
    """Who imports them afterwards has them at once. In Kubernetes with naps, while others want the processors."""
    call_standing_back(_import_with_naps, modules)


def _import_with_naps(modules: Sequence[str]) -> None:
    naps = [_Naps()] if IN_KUBERNETES in os.environ else []
    sys.meta_path[:0] = naps
    try:
        for module in modules:
            import_module(module)
    finally:
        for nap in naps:
            sys.meta_path.remove(nap)


class _Naps:
    """Finds no module. An import asks it for each one, and it sleeps, if some thread of this machine waits for a
    processor, for as long as the modules since its last nap took of one: a container that starts would have its share
    all the time, which the others' groups miss.
    """

    def __init__(self) -> None:
        self._worked_s = time.thread_time()  # of the thread that imports, at the end of the last nap

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        since_s = time.thread_time() - self._worked_s
        if since_s >= NAP_AFTER_S:
            if _somebody_waits():
                time.sleep(min(since_s * NAPS, LONGEST_NAP_S))
            self._worked_s = time.thread_time()


def _somebody_waits() -> bool:
    """More threads of this machine, not of this container alone, are ready to run than it has processors."""
    try:
        descriptor = os.open(LOAD, os.O_RDONLY)  # a file object may import what decodes it
        try:
            ready = int(os.read(descriptor, 100).split()[3].partition(b"/")[0])
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return False
    return ready > (os.cpu_count() or 1)
