"""Holds markers of transactions back for a moment, so that a backup can cut all logs at one (ADR 45)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LONGEST_HOLD_S = 2.0
"""A hold ends by itself after this time in seconds, whatever became of the one that asked for it."""


class MarkerHold:
    """Keeps the markers of one pod. Decisions are made and answered as ever; only what follows waits.

    Its methods are to be called on the event loop.
    """

    def __init__(self) -> None:
        self._name = ""  # "": nothing is held
        self._kept: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        return bool(self._name)

    def keep(self, write: Callable[[], None]) -> None:
        """Have `write` called when the hold ends."""
        self._kept.append(write)

    def begin(self, name: str, for_s: float) -> None:
        """From now on no marker leaves, until `end`, or for `for_s` seconds. A hold of another name has lost its word
        with that."""
        if self._timer is not None:
            self._timer.cancel()
        self._name = name
        self._timer = asyncio.get_running_loop().call_later(min(for_s, LONGEST_HOLD_S), self._release)

    def end(self, name: str) -> bool:
        """Let the markers go. Returns whether none has left since this hold began."""
        held = self._name == name
        if held:
            self._release()
        return held

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._name, self._timer = "", None
        kept, self._kept = self._kept, []
        for write in kept:
            write()
