"""A pod whose wall clock steps: SIGUSR1 an hour forward, SIGUSR2 an hour back. The options are those of a pod.

The pod's one look at the wall clock is `time.time_ns`; what the kernel's clock says to its files stays.
"""

from __future__ import annotations

import signal
import sys
import time

HOUR_NS = 3600 * 10**9


def step_by_signals() -> None:
    true_time_ns, ahead = time.time_ns, 0

    def stepped() -> int:
        return true_time_ns() + ahead

    def step(number: int, _: object) -> None:
        nonlocal ahead
        ahead += HOUR_NS if number == signal.SIGUSR1 else -HOUR_NS

    time.time_ns = stepped
    time.time = lambda: stepped() / 1e9
    signal.signal(signal.SIGUSR1, step)
    signal.signal(signal.SIGUSR2, step)


if __name__ == "__main__":
    step_by_signals()
    from muster_coordinator.process.main import main

    sys.exit(main(sys.argv[1:]))
