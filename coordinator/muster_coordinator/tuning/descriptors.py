"""Room for descriptors, made when the process starts (ADR 20).

Linux doubles a process's table of descriptors when it is full, and with more than one thread whoever opened the one too
many waits until every processor has passed a quiescent state (``expand_files`` in fs/file.c, ``synchronize_rcu``):
measured, 10 to 15 ms in which an event loop that accepts a connection stands still. The table never shrinks.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys

__all__ = ["DESCRIPTORS", "make_room_for_descriptors"]

DESCRIPTORS = 1 << 15
"""``max.connections`` and the files of some thousand partitions; the table takes 0.25 MB of the kernel's memory."""


def make_room_for_descriptors(count: int = DESCRIPTORS) -> int:
    """For so many at once, or for as many as the hard limit allows, to which the soft one is raised. Call it while the
    process has one thread. Returns the room; 0 where the system refuses, and then the table grows when it is needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = min(count, _or_more(hard))
    try:
        if _or_more(soft) < room:
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, room - 1))
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return 0
    return room


def _or_more(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
