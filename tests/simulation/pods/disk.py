"""A process's way to its disk, and what fails there."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.injected import Injected
from tests.simulation.world import World
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.log.checkpoint import NAME as CHECKPOINT_NAME
from muster_coordinator.log.segments.cleaned import COMPACTED, COMPACTING, STATE_NAME
from muster_coordinator.log.segments.copy import COPYING, COUNT_NAME
from muster_coordinator.records.batch import LENGTH_OVERHEAD
from muster_coordinator.replica.promise_file import PROMISE_NAME

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["DiskFaults", "ProcessDisk", "covered", "draw_broken"]

APPENDS = ("pwritev", "pwritev_durably", "fill_with_zeros")
SYNCS = ("pwritev_durably", "fdatasync", "fsync_dir")
WRITES = (*APPENDS, "fdatasync", "rename", "unlink", "fsync_dir")
EVERY_CALL = (*WRITES, "open", "pread")

FILES: dict[str, Callable[[Path], bool]] = {
    "any": lambda path: True,
    "promise": lambda path: path.name.startswith(PROMISE_NAME),
    "journal": lambda path: path.parent.name == "journal",
    "segment": lambda path: path.suffix == ".log",
    "checkpoint": lambda path: path.name.startswith(CHECKPOINT_NAME),
    "copy": lambda path: path.name.endswith(COPYING) or path.name.startswith(COUNT_NAME),
    "cleaner": lambda path: path.name.endswith((COMPACTING, COMPACTED)) or path.name.startswith(STATE_NAME),
}


@dataclass(frozen=True)
class Broken:
    """Calls of these kinds to these files fail, or are short, each with `share`, until `until_ms`."""

    until_ms: int
    operations: tuple[str, ...]
    files: str
    how: Injected
    share: float


def draw_broken(random: Random, now_ms: int) -> Broken:
    how = random.choice((Injected.IO_ERROR, Injected.IO_ERROR, Injected.DISK_FULL, Injected.SHORT_WRITE))
    operations = random.choice((APPENDS, SYNCS, EVERY_CALL, *((one,) for one in EVERY_CALL)))
    if how is Injected.SHORT_WRITE:
        operations = ("pwritev", "pwritev_durably")
    share = random.choice((0.1, 0.5, 1.0))
    return Broken(now_ms + random.randint(1, 600), operations, random.choice(list(FILES)), how, share)


class ProcessDisk:
    """Implements `log.disk.Disk`. A process that ended reaches it no more. Each sync takes its time."""

    def __init__(self, pod: HostedPod, fake: FakeDisk) -> None:
        self._pod = pod
        self._fake = fake
        self._run = pod.run

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._fake, name)
        pod, fake, run, syncs = self._pod, self._fake, self._run, name in SYNCS

        def call(*arguments: Any, **options: Any) -> Any:
            if pod.run != run or not pod.is_running:
                raise OSError(errno.EIO, "the process has ended")
            if syncs:
                pod.waits_for_disk(fake.path_of(arguments[0]))
            result = operation(*arguments, **options)
            if name == "rename":
                pod.renamed(arguments[1])
            return result

        self.__dict__[name] = call
        return call


class DiskFaults:
    """Of one pod, as the options and the present faults of its disk say: a `fake_disk.Fault`. `full`: no room;
    `broken`: what fails now.
    """

    def __init__(self, world: World, random: Random, dies: Callable[[], None]) -> None:
        self.full = False
        self.slow_until = -1
        self.broken: Broken | None = None
        self._world = world
        self._random = random
        self._dies = dies

    def heal(self) -> None:
        self.full, self.slow_until, self.broken = False, -1, None

    def __call__(self, operation: str, path: Path, size: int) -> int | None:
        """Raises OSError."""
        world, random = self._world, self._random
        broken = self.broken
        if broken is not None and self._strikes(broken, operation, path):
            world.injected[Injected.READ_ERROR if operation == "pread" else broken.how] += 1
            if broken.how is Injected.SHORT_WRITE:
                return random.randint(min(size, 1), size)
            number = errno.ENOSPC if broken.how is Injected.DISK_FULL else errno.EIO
            raise OSError(number, f"{operation} {path}")
        if operation not in WRITES:
            return None
        if world.faults and random.random() < world.options.crash_in_effects:
            world.injected[Injected.CRASH_BETWEEN_EFFECTS] += 1
            self._dies()
            raise OSError(errno.EIO, "the process ends here")
        if self.full and operation in APPENDS:
            world.injected[Injected.DISK_FULL] += 1
            raise OSError(errno.ENOSPC, "disk full")
        return None

    def _strikes(self, broken: Broken, operation: str, path: Path) -> bool:
        if self._world.now_ms >= broken.until_ms or operation not in broken.operations:
            return False
        return FILES[broken.files](path) and self._random.random() < broken.share

    def latency_ms(self, path: Path) -> int:
        """Of one sync."""
        options, random = self._world.options, self._random
        took = random.randint(0, options.disk_ms_max) if options.disk_ms_max else 0
        if self._world.now_ms < self.slow_until and FILES[options.slow_files](path):
            self._world.injected[Injected.SLOW_DISK] += 1
            took += random.randint(0, options.slow_disk_ms)
        return took


def covered(content: bytes) -> list[int]:
    """Positions in a segment whose bytes a checksum covers, or which decide where the next batch begins."""
    found: list[int] = []
    start = 0
    while start < len(content):
        end = min(start + LENGTH_OVERHEAD + int.from_bytes(content[start + 8 : start + 12], "big"), len(content))
        found += [*range(start + 8, min(start + 12, end)), *range(start + 16, end)]
        start = end
    return found
