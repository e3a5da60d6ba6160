"""The load as a process of its own, so that what the harness does delays no commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.chaos.errors import HarnessError
from tests.chaos.history import History

STOP_TIMEOUT_S = 90.0


class LoadProcess:
    """Started on construction; `stop` gives what it saw. As a context manager it never outlives the block."""

    def __init__(self, bootstrap: str, directory: Path, *, groups: int, interval_ms: float) -> None:
        self._history = directory / "history.json"
        self._output = directory / "load.log"
        command = [sys.executable, "-m", "tests.chaos.load", "--bootstrap", bootstrap, "--groups", str(groups)]
        command += ["--interval-ms", str(interval_ms), "--history", str(self._history)]
        with self._output.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_ready(self) -> None:
        """Until every group has an acknowledged commit. Raises HarnessError."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != b"ready":
            self._process.wait()
            raise HarnessError(f"the load did not get going: {self._output.read_text().strip()}")

    def stop(self) -> History:
        """End the load; it reads everything back first. Raises HarnessError."""
        try:
            self._process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"the load did not end in {STOP_TIMEOUT_S:g} s") from None
        if self._process.returncode not in (0, 1):
            raise HarnessError(f"the load failed: {self._output.read_text().strip()}")
        return History.read(self._history)
