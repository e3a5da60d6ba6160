"""Times small durable writes on the same disk meanwhile: no server that syncs can be faster."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType

WRITE_BYTES = 4096
EVERY_S = 0.01


class DiskProbe:
    """Writes in place and durably, one write after the other, in a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "probe"
        self._taken: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk-probe")

    def __enter__(self) -> DiskProbe:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> list[float]:
        """The times of the writes since the last call, in ms, ascending."""
        taken, self._taken = self._taken, []
        return sorted(taken)

    def _run(self) -> None:
        data = [bytes(WRITE_BYTES)]
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR)
        try:
            while not self._stop.wait(EVERY_S):
                started = time.perf_counter()
                os.pwritev(descriptor, data, 0, os.RWF_DSYNC)
                self._taken.append((time.perf_counter() - started) * 1000)
        finally:
            os.close(descriptor)
