"""One process per data directory: a pod that was force-deleted may still run when its successor gets the volume.

As Kafka's `.lock` in a log directory. The lock is the kernel's: it goes with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCK_NAME = ".lock"


class DataDirInUseError(Exception):
    """Another process works in this directory; the message names it."""


class DataDirLock:
    """Held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._descriptor = -1

    def acquire(self) -> None:
        """Raises DataDirInUseError, OSError."""
        self._data_dir.mkdir(0o700, parents=True, exist_ok=True)
        path = self._data_dir / LOCK_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirInUseError(
                f"{self._data_dir} is in use by another coordinator (pid {holder} where it runs): wait for its end"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
