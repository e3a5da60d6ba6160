"""The archive of all pods: a directory on a disk of its own, which is away now and then."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.injected import Injected
from tests.simulation.pods.disk import ProcessDisk
from tests.simulation.world import World
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.log.cleaning.archive import DirectoryArchive
from muster_coordinator.log.segments.segment import SUFFIX
from muster_coordinator.records.batch import RecordBatch, iter_batches

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["ROOT", "SharedArchive"]

ROOT = Path("/archive")


class SharedArchive:
    def __init__(self, world: World) -> None:
        self._world = world
        self._disk = FakeDisk()
        self._disk.fault = self._fault

    def _fault(self, operation: str, path: Path, size: int) -> int | None:
        world = self._world
        if world.faults and world.random.random() < world.options.archive_errors:
            world.injected[Injected.ARCHIVE_ERROR] += 1
            raise OSError(errno.EIO, f"the archive is away: {operation} {path}")
        return None

    def of(self, pod: HostedPod) -> DirectoryArchive:
        """For the present process of `pod`."""
        return DirectoryArchive(ProcessDisk(pod, self._disk), ROOT)  # type: ignore[arg-type]

    def batches(self, path: Path) -> list[RecordBatch]:
        """Of one file."""
        return list(iter_batches(bytes(self._disk.content(path))))

    def batches_in(self, directory: Path) -> dict[int, RecordBatch]:
        """Of all files there, by base offset."""
        files = [path for path in self._disk.names if path.parent == directory and path.suffix == SUFFIX]
        return {batch.base_offset: batch for path in files for batch in self.batches(path)}
