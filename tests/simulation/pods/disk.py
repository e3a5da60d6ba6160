"""A process's way to its disk, and what fails there."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.injected import Injected
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.log.checkpoint import NAME as CHECKPOINT_NAME

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["DiskFaults", "ProcessDisk"]

APPENDS = ("pwritev", "pwritev_durably", "fill_with_zeros")
WRITES = (*APPENDS, "fdatasync", "rename", "unlink", "fsync_dir")


class ProcessDisk:
    """Implements `log.disk.Disk`. A process that ended reaches it no more."""

    def __init__(self, pod: HostedPod, fake: FakeDisk) -> None:
        self._pod = pod
        self._fake = fake
        self._run = pod.run

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._fake, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._pod.run != self._run or not self._pod.up or self._pod.is_dying:
                raise OSError(errno.EIO, "the process has ended")
            if name == "rename" and arguments[1].name == CHECKPOINT_NAME:
                self._pod.published.append(arguments[1].parent)
            return operation(*arguments, **options)

        return call


class DiskFaults:
    """Of one pod, as the options and the present faults of its disk say: a `fake_disk.Fault`."""

    def __init__(self, pod: HostedPod) -> None:
        self._pod = pod
        self._world = pod.world

    def __call__(self, operation: str, path: Path, size: int) -> None:
        """Raises OSError."""
        pod, world = self._pod, self._world
        if operation not in WRITES:
            return
        if world.faults and pod.random.random() < world.options.crash_in_effects:
            world.injected[Injected.CRASH_BETWEEN_EFFECTS] += 1
            pod.dies()
            raise OSError(errno.EIO, "the process ends here")
        if pod.full and operation in APPENDS:
            world.injected[Injected.DISK_FULL] += 1
            raise OSError(errno.ENOSPC, "disk full")
        if world.now_ms < pod.broken_until and operation in APPENDS:
            world.injected[Injected.IO_ERROR] += 1
            raise OSError(errno.EIO, f"{operation} {path}")

    def thread_delay_s(self) -> float:
        """How long a function in a thread takes; most of them use the disk."""
        pod, options = self._pod, self._world.options
        took = pod.random.randint(0, options.disk_ms_max)
        if self._world.now_ms < pod.slow_until:
            self._world.injected[Injected.SLOW_DISK] += 1
            took += pod.random.randint(0, options.slow_disk_ms)
        return took / 1000
