"""A simulated pod: one process with a disk and clocks of its own, that hosts replicas of several partitions.

Everything in it fails together: a crash, between any two effects, a freeze, a full or slow disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.injected import Injected
from tests.simulation.storage import Disk
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.replica import Replica

__all__ = ["Crash", "Pod"]

TICK_MS = 50
WALL_START_MS = 1_700_000_000_000


class Crash(Exception):
    """The process dies here."""


class Pod:
    """``up``: the process runs; ``run`` counts its starts. ``wall_offset_ms``: jumps of its wall clock."""

    def __init__(self, name: str, world: World, new_disk: type[Disk]) -> None:
        self.name = name
        self.world = world
        self.random = Random(f"pod {name} {world.options.seed}")
        self.replicas: list[Replica] = []
        self.peers: list[Pod] = []
        self.image = (-1, -1)  # number of the metadata image that it got last
        self.disk = new_disk(self.random, world.injected)
        self.up = False
        self.run = 0
        self.frozen_until = -1
        self.full = False  # disk full
        self.broken_until = -1  # writes end in an I/O error
        self.slow_until = -1
        self.wall_offset_ms = 0
        self.clock_rate = 1 + self.random.uniform(-1, 1) * world.options.drift
        self.clock_start = self.random.randint(0, 10_000)
        self._is_writing = False
        self._waiting: list[Callable[[], None]] = []  # told when the next write ends
        if self.clock_rate != 1:
            world.injected[Injected.CLOCK_DRIFT] += 1

    # -- clocks -------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Monotonic: it drifts, and it never jumps."""
        return self.clock_start + int(self.world.now_ms * self.clock_rate)

    def wall_ms(self) -> int:
        return WALL_START_MS + self.world.now_ms + self.wall_offset_ms

    def after(self, delay_ms: int, run: Callable[[], None]) -> None:
        """On its own monotonic clock, unless the process ends first."""
        number = self.run
        self.world.at(math.ceil(delay_ms / self.clock_rate) + 1, lambda: self.when_thawed(number, run))

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open what is on the disk."""
        if self.up:
            return
        self.up = True
        self.run += 1
        if self.run > 1:
            self.world.injected[Injected.RESTART] += 1
        self._is_writing = False
        self._waiting = []
        self.image = (-1, -1)
        self.disk.open()
        run = self.run
        for replica in self.replicas:
            self.guard(replica.start)
        self.world.at(self.random.randint(0, TICK_MS), lambda: self._tick(run))

    def crash(self, *, power: bool = False, failed: bool = False) -> None:
        """``power``: the machine loses its page cache too. ``failed``: a write ended in an I/O error."""
        if not self.up:
            return
        self.world.log(f"{self.name} crashes{' with power loss' if power else ''}")
        self.world.injected[Injected.CRASH] += 1
        self.up = False
        self.disk.crash(power=power, failed=failed)
        for replica in self.replicas:
            replica.crash()
            if self.world.options.flush_os and power:
                self.world.injected[Injected.CACHE_LOST] += replica.storage.lose_power()

    def heal(self) -> None:
        self.frozen_until = self.slow_until = self.broken_until = -1
        self.full = False
        self.start()

    def lose_volume(self) -> None:
        """What comes back are other replicas."""
        self.disk.wipe()
        for replica in self.replicas:
            replica.storage = replica.new_storage()

    def start_later(self) -> None:
        self.world.at(self.random.randint(1, self.world.options.restart_ms_max), self.start)

    def _tick(self, run: int) -> None:
        if not self.up or run != self.run:
            return
        if self.world.now_ms < self.frozen_until:
            self.world.at(self.frozen_until - self.world.now_ms, lambda: self._tick(run))
            return
        for replica in self.replicas:
            self.guard(replica.tick)
        self.world.at(TICK_MS, lambda: self._tick(run))

    def when_thawed(self, run: int, do: Callable[[], None]) -> None:
        """Now, or when the process is no longer frozen; never if it ends first."""
        if self.run != run or not self.up:
            return
        if self.world.now_ms < self.frozen_until:
            self.world.injected[Injected.FREEZE] += 1
            self.world.at(self.frozen_until - self.world.now_ms, lambda: self.when_thawed(run, do))
        else:
            self.guard(do)

    def guard(self, do: Callable[[], None]) -> None:
        """Unless the process died just before; it may die in there."""
        if not self.up:
            return
        try:
            do()
        except Crash:
            self.crash()
            self.start_later()

    def may_crash(self) -> None:
        """Between two effects. Raises Crash."""
        if self.world.faults and self.random.random() < self.world.options.crash_in_effects:
            self.world.injected[Injected.CRASH_BETWEEN_EFFECTS] += 1
            raise Crash

    # -- disk ---------------------------------------------------------------------------------------------------------

    @property
    def cannot_write(self) -> str:
        if self.full:
            return "disk full"
        return "I/O error" if self._is_broken else ""

    @property
    def _is_broken(self) -> bool:
        return self.world.now_ms < self.broken_until

    def check_room(self) -> None:
        """Something is to be appended. Raises Crash."""
        if self.cannot_write:
            self.world.injected[Injected.DISK_FULL if self.full else Injected.IO_ERROR] += 1
            raise Crash

    def write(self, write: Callable[[], None], done: Callable[[], None]) -> None:
        """``done`` when it is durable, unless the process dies first. What comes while a write is under way waits and
        is one write behind it, as in the journal: a slow disk makes writes larger, not a queue without end.
        """
        self.disk.begin(write)
        self._waiting.append(done)
        if not self._is_writing:
            self._write_waiting()

    def _write_waiting(self) -> None:
        """It dies of an I/O error: whether the write was done nobody knows."""
        options = self.world.options
        run = self.run
        written, self._waiting = self._waiting, []
        self._is_writing = bool(written)
        if not written:
            return
        took = self.random.randint(0, options.disk_ms_max)
        if self.world.now_ms < self.slow_until:
            self.world.injected[Injected.SLOW_DISK] += 1
            took += self.random.randint(0, options.slow_disk_ms)

        def finished() -> None:
            if self.run != run or not self.up:
                return
            if self._is_broken:
                self.world.injected[Injected.IO_ERROR] += 1
                self.crash(failed=True)
                self.start_later()
                return
            self.disk.finish(len(written))
            for done in written:
                self.when_thawed(run, done)
            if self.run == run and self.up:
                self._write_waiting()

        self.world.at(took, finished)
