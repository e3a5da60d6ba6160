"""The clocks of a machine and of the process on it."""

from __future__ import annotations

from random import Random

from tests.simulation.injected import Injected
from tests.simulation.world import World

__all__ = ["MachineClock", "ProcessClock"]

WALL_START_MS = 1_700_000_000_000


class MachineClock:
    """Of one pod, over all its processes. `wall_offset_ms`: jumps of the wall clock. The monotonic one drifts."""

    def __init__(self, world: World, random: Random) -> None:
        self.wall_offset_ms = 0
        self.rate = 1 + random.uniform(-1, 1) * world.options.drift
        self._start_ms = random.randint(0, 10_000)
        self._world = world
        if self.rate != 1:
            world.injected[Injected.CLOCK_DRIFT] += 1

    def monotonic_ms(self) -> int:
        return self._start_ms + int(self._world.now_ms * self.rate)

    def wall_ms(self) -> int:
        return WALL_START_MS + self._world.now_ms + self.wall_offset_ms


class ProcessClock:
    """Implements `shard.ports.Clock`. `spent_ms`: what the callback that runs has waited for the disk so far."""

    def __init__(self, machine: MachineClock) -> None:
        self.spent_ms = 0
        self._machine = machine

    def wall_ms(self) -> int:
        return self._machine.wall_ms() + self.spent_ms

    def monotonic_ms(self) -> int:
        return self._machine.monotonic_ms() + self.spent_ms

    def monotonic_s(self) -> float:
        return self.monotonic_ms() / 1000
