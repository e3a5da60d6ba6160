"""Time, as it is passed to whatever needs it. Timers are the event loop's, so a simulated loop brings its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Clock"]


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic`: seconds, for durations. `wall`: seconds since 1970, for what people read, never for decisions."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
