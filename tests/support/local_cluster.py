"""`muster local up` as a child process of a test."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

READY_TIMEOUT_S = 60.0
WAIT_TIMEOUT_S = 60.0


def muster(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "muster_cli", *arguments], capture_output=True, text=True, timeout=READY_TIMEOUT_S
    )


class LocalCluster:
    """Starts on construction; as a context manager it ends with everything it started. `command`: the module that is
    run, and what comes before its command `local up`."""

    def __init__(self, data: Path, *arguments: str, command: Sequence[str] = ("muster_cli",)) -> None:
        self.data = data
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                *command,
                "local",
                "up",
                "--data-dir",
                str(data),
                "--base-port",
                "0",
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        record = self.run_record()
        pids = [each["pid"] for each in (*record.get("pods", []), record.get("gateway")) if each]
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_line(self, start: str) -> str:
        """The next line that begins so. Fails with all output when the command ends or takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {start!r} in time: {self.lines}") from None
            assert line is not None, f"ended with {self.child.wait()}: {self.lines}"
            if line.startswith(start):
                return line

    def wait_ready(self) -> str:
        """The bootstrap address."""
        return self.wait_line("ready bootstrap=").removeprefix("ready bootstrap=")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        return self.child.wait(timeout=30)

    def status(self) -> dict[str, Any]:
        done = muster("local", "status", "--json", "--data-dir", str(self.data))
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def run_record(self) -> dict[str, Any]:
        """run.json, with only the process of each pod and of the gateway."""
        try:
            record = json.loads((self.data / "run.json").read_text())
        except FileNotFoundError:
            return {}
        return {
            "pods": [pod["process"] for pod in record["pods"]],
            "gateway": (record.get("gateway") or {}).get("process"),
            "supervisor": record["supervisor"]["pid"],
        }

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.append(line.rstrip())
            self._queue.put(line.rstrip())
        self._queue.put(None)


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
