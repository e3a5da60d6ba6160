"""Large requests are decoded, and their answers made, a slice at a time: others have their turn between two slices
(ADR 51).

A codec is plain code that reads or writes one field after the other. `Slices` runs it in a greenlet of its own, and
each `pause` of the codec ends a slice. A codec that is called without one does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from greenlet import getcurrent, greenlet

from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import RequestHeader

_T = TypeVar("_T")


class _Worker(greenlet):
    """The greenlet of `Slices`: `pause` leaves those of others alone."""


class Slices:
    """Work that is done a slice at a time. Who forgets it before its end, ends it."""

    def __init__(self, work: Callable[[], object]) -> None:
        """`work` returns something, not None."""
        self._worker = _Worker(work)

    def step(self) -> object | None:
        """Do a slice. Returns what the work does after the last one, None before; raises what it raises."""
        done: object | None = self._worker.switch()
        return done


class Decoding(Slices):
    """A large request that is being decoded. `step` raises WireError."""

    def __init__(self, header: RequestHeader, frame: bytes, client_host: str) -> None:
        super().__init__(partial(header.api.decode_request, header, frame, client_host))
        self.header = header
        self.size = len(frame)


def pause() -> None:
    """Called by codecs after every SLICE_ENTRIES entries."""
    worker = getcurrent()
    parent = worker.parent if isinstance(worker, _Worker) else None
    del worker  # one that its own frame holds would never be forgotten
    if parent is not None:
        parent.switch(None)


def paced(entries: Iterable[_T]) -> Iterator[_T]:
    """Yields the entries of an array that is written, with the pauses."""
    for count, entry in enumerate(entries, 1):
        yield entry
        if count % SLICE_ENTRIES == 0:
            pause()
