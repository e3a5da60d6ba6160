"""The cluster of the demo: `muster local up` as a child process, as a person would run it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from muster_cli.local.data_dir import DataDir
from muster_cli.local.report import StatusReport
from muster_cli.local.status import collect_report

STOP_DEADLINE_S = 20.0
_READY = "ready bootstrap="


class DemoCluster:
    """The constructor starts the cluster; `close` ends it and removes its data."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.data = DataDir(Path(tempfile.mkdtemp(prefix="muster-demo-")))
        self.bootstrap = ""
        """The addresses of the pods; empty until the cluster is ready."""
        self.lines: list[str] = []
        """The output of the cluster, including stderr."""
        command = [sys.executable, "-m", "muster_cli", "local", "up", "--base-port", "0", *arguments]
        # In a session of its own Ctrl-C does not reach it: the demo ends its clients before the cluster.
        self._child = subprocess.Popen(
            [*command, "--data-dir", str(self.data.root)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="cluster output", daemon=True)
        self._reader.start()

    def ended(self) -> bool:
        return self._child.poll() is not None

    def last_line(self) -> str:
        return self.lines[-1] if self.lines else "starting"

    def report(self) -> StatusReport:
        """The report of `muster local status`. Raises CliError if nothing runs."""
        return collect_report(self.data)[0]

    def pid_of(self, pod: str) -> int | None:
        return next((line.pid for line in self.report().pods if line.name == pod), None)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def close(self, *, keep_data: bool) -> None:
        """End the cluster. A supervisor that does not end in time is killed, and so are its pods."""
        if not self.ended():
            self._child.terminate()
            try:
                self._child.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._reader.join(timeout=5)
        for leftover in self.data.leftover_pods():
            if leftover.process is not None:
                os.kill(leftover.process.pid, signal.SIGKILL)
        if not keep_data:
            shutil.rmtree(self.data.root, ignore_errors=True)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(_READY):
                self.bootstrap = line.removeprefix(_READY).strip()
