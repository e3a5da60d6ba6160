"""Clocks as a constructor argument, so that tests bring their own. Timers are those of the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic`: seconds, for durations. `wall`: seconds since 1970, only for texts that people read."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM_CLOCK = Clock()
"""The clock of the machine."""
