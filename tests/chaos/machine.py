"""Whether this machine has its processors to itself: how much of their time its hypervisor gave to others (steal), and
how fast they are: guests on the other thread of a core make them slower, and nothing is stolen."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
LOOK_EVERY_S = 0.1
LOOKS = 5
"""How many looks apart the times are that are compared: half a second, so that 20 ms of a processor are 2 %."""
UNDISTURBED = 0.03
"""Of the processors' time. A machine that lacks more is not the one that the bounds are for (ADR 18)."""
WAIT_S = 60.0
WORK_STEPS = 300_000
WORK_TIMES = 3


@dataclass(frozen=True)
class ProcessorTime:
    """In ticks, of all processors since the machine started; ``at``: seconds of the monotonic clock."""

    at: float
    all: int
    stolen: int

    def stolen_since(self, before: ProcessorTime) -> float:
        """Share of the time since then, 0 to 1."""
        return (self.stolen - before.stolen) / max(self.all - before.all, 1)


def processor_time(stat: Path = STAT) -> ProcessorTime:
    """From proc(5), /proc/stat; guests' time stands there within user time."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.read_text().split(maxsplit=9)[1:9])
    return ProcessorTime(time.monotonic(), user + nice + system + idle + iowait + irq + softirq + steal, steal)


def worst(looks: list[ProcessorTime], start: float, end: float) -> float:
    """The largest share that was stolen in any half second that overlaps [start, end]."""
    first = max(bisect_left(looks, start, key=lambda look: look.at) - LOOKS, 0)
    last = bisect_right(looks, end, key=lambda look: look.at) + LOOKS
    seen = looks[first:last]
    return max((late.stolen_since(early) for early, late in zip(seen, seen[LOOKS:], strict=False)), default=0.0)


class Machine:
    """Looks from construction to the end of the block that it is the context manager of."""

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._looks = [processor_time(stat)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="machine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def stolen(self, start: float, end: float) -> float:
        """The largest share of the processors' time that was stolen in any half second about [start, end]."""
        return worst(list(self._looks), start, end)

    def work_ms(self) -> float:
        """Processor time that a fixed piece of work takes now, the least of a few."""
        took = []
        for _ in range(WORK_TIMES):
            began = time.thread_time()
            sum(step * step % 7 for step in range(WORK_STEPS))
            took.append(time.thread_time() - began)
        return min(took) * 1000

    def wait_undisturbed(self, for_s: float, limit_s: float = WAIT_S) -> None:
        """At least ``for_s``, until almost nothing was stolen for so long. At the limit it goes on all the same:
        what is stolen from a fault is told with it."""
        deadline = time.monotonic() + limit_s
        while True:
            time.sleep(for_s)
            now = time.monotonic()
            if self.stolen(now - for_s, now) <= UNDISTURBED or now > deadline:
                return

    def _look(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._looks.append(processor_time(self._stat))
