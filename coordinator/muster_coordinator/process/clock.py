"""The machine's clocks: implements `shard.ports.Clock`."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `shard.ports.Clock`."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def running_s(self) -> float:
        """Seconds since the machine has started, also those in which it slept, which `monotonic_s` leaves out."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    monotonic_s = staticmethod(time.monotonic)  # no frame of ours: every turn asks three times
