"""The limit of open files: a pod serves as many connections as the machine allows, and keeps descriptors back for its
own files and for other pods (ADR 20).

A system gives each file and each connection the lowest number that is free. So a connection with number n says that at
least n descriptors are in use, whatever by: nothing has to be counted.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass

NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))
"""errno: the process, or the machine, has no descriptor left."""

SPARES = 16
"""Files that a pod can still open when nothing is left. Threads write eight promises at a time."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit (often 1024) to the hard one, as Go's runtime does: `max.connections` is 20,000. Where the
    system refuses, the limit stays as it is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True)
class DescriptorShares:
    """`limit`: of the process. A connection whose number is not below that of its share is closed at once."""

    limit: int
    clients: int
    """The share of Kafka's clients: a quarter is kept back from them."""
    inner: int
    """The share of the pod API, probes and metrics. The last eighth is for files and the connections to other pods."""
    relayed: int
    """The share of the gateway's clients: each needs at least one more, for a connection to a broker or pod."""


def descriptor_shares() -> DescriptorShares:
    """The shares of the limit as it is now."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorShares(limit, limit - limit // 4, limit - limit // 8, limit // 2)


def lowest_free_descriptor(limit: int) -> int:
    """At least so many descriptors are in use; `limit`: all."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return limit
    os.close(descriptor)
    return descriptor


class SpareDescriptors:
    """Descriptors that are open for nothing until one is needed for a file of the log. Any thread may use it."""

    def __init__(self, number: int = SPARES) -> None:
        """Raises OSError."""
        self._number = number
        self._lock = threading.Lock()
        self._spares = [_spare() for _ in range(number)]

    @property
    def are_full(self) -> bool:
        return len(self._spares) >= self._number

    def give(self) -> bool:
        """Close one of them, so that a file can take its place; False: there is none."""
        with self._lock:
            if not self._spares:
                return False
            os.close(self._spares.pop())
            return True

    def fill(self) -> None:
        """Take back what was given, as far as there is room."""
        with self._lock, suppress(OSError):
            while len(self._spares) < self._number:
                self._spares.append(_spare())


def _spare() -> int:
    """A file of its own, not a copy of a descriptor: a machine also has a limit of open files."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
