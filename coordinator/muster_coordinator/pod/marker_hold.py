"""Holds markers of transactions back for a moment, so that a backup can cut all logs at one (ADR 45)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LONGEST_HOLD_S = 2.0
"""A hold ends by itself after this time in seconds, whatever became of the one that asked for it."""
RESTS = 9
"""After a hold, none may begin for this many times its length: markers wait a tenth of the time at most."""


class MarkerHold:
    """Keeps the markers of one pod. Decisions are made and answered as ever; only what follows waits.

    Its methods are to be called on the event loop.
    """

    def __init__(self) -> None:
        self._name = ""  # "": nothing is held
        self._kept: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._began = self._free_at = 0.0

    @property
    def is_on(self) -> bool:
        return bool(self._name)

    def run(self, write: Callable[[], None]) -> None:
        """Call `write` now, or when the hold ends."""
        if self.is_on:
            self._kept.append(write)
        else:
            write()

    def begin(self, name: str, for_s: float) -> bool:
        """Keeps markers back until `end`, or for `for_s` seconds. Returns False: another hold is in force, or was just
        now."""
        loop = asyncio.get_running_loop()
        if self.is_on or loop.time() < self._free_at:
            return False
        self._name, self._began = name, loop.time()
        self._timer = loop.call_later(min(for_s, LONGEST_HOLD_S), self._release)
        return True

    def end(self, name: str) -> bool:
        """Let the markers go. Returns whether none has left since this hold began."""
        held = self._name == name
        if held:
            self._release()
        return held

    def _release(self) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = now + RESTS * (now - self._began)
        if self._timer is not None:
            self._timer.cancel()
        self._name, self._timer = "", None
        kept, self._kept = self._kept, []
        for write in kept:
            write()
