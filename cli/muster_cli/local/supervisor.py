"""Keeps one pod of embedded mode running as a process, as a kubelet does with a container.

A pod that ends is started again, and later each time if it keeps ending soon after its start. Pods run in sessions of
their own, so that Ctrl-C in the terminal reaches only the supervisor, which then stops things in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_cli.local.data_dir import RunningPod
from muster_cli.local.procfs import ProcessRef

MAX_LOG_BYTES = 16 << 20


class RestartBackoff:
    """Decides how long to wait before the next start, from how long each run lasted. Pure. `least_s`: the shortest
    wait."""

    STEADY_AFTER_S = 2.0
    """After a run of this many seconds or more the pod starts again without a growing delay."""
    FREE_RESTARTS = 2
    """Shorter runs in a row that have no growing delay either."""
    FIRST_DELAY_S = 0.1
    MAX_DELAY_S = 5.0

    def __init__(self, least_s: float = 0.0) -> None:
        self._least_s = least_s
        self._young_deaths = 0

    def delay_s(self, lived_s: float) -> float:
        """Seconds to wait after a run of `lived_s` seconds."""
        return max(self._least_s, self._growing_s(lived_s))

    def _growing_s(self, lived_s: float) -> float:
        if lived_s >= self.STEADY_AFTER_S:
            self._young_deaths = 0
            return 0.0
        self._young_deaths += 1
        doublings = self._young_deaths - self.FREE_RESTARTS - 1
        if doublings < 0:
            return 0.0
        return min(self.FIRST_DELAY_S * 2.0 ** min(doublings, 16), self.MAX_DELAY_S)


class PodSupervisor:
    """Runs a pod again and again until `stop`.

    `command` takes the uid of one run and returns its command line: each run counts as another pod on the same
    directory. `restart_after_s`: seconds to wait at least before the pod starts again. `on_change` is called after each
    start and each end; `report` takes lines for the person at the terminal.
    """

    def __init__(
        self,
        pod: RunningPod,
        command: Callable[[str], Sequence[str]],
        log_file: Path,
        *,
        on_change: Callable[[], None],
        report: Callable[[str], None],
        restart_after_s: float = 0.0,
    ) -> None:
        self.pod = pod
        self.uid = ""
        self.deaths = 0
        self._command = command
        self._log_file = log_file
        self._on_change = on_change
        self._report = report
        self._backoff = RestartBackoff(restart_after_s)
        self._stopping = asyncio.Event()
        self._child: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        """Ends when the process is gone after `stop` or `kill`; None before `start`."""

    def start(self) -> None:
        assert self.task is None
        self.task = asyncio.create_task(self._run(), name=f"supervise {self.pod.name}")

    async def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                child = await self._spawn()
            except OSError as error:  # a full disk, too many processes: may pass
                await self._pause(f"could not be started: {error}", 0.0)
                continue
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            status = await child.wait()
            self._child = None
            self._set_process(None)
            if self._stopping.is_set():
                return
            self.deaths += 1
            lived_s = time.monotonic() - started
            await self._pause(f"{describe_exit(status)} after {lived_s:.1f} s", lived_s)

    def restart(self) -> None:
        """Ask the pod to end (SIGTERM); it then starts again."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask the pod to end (SIGTERM), and do not start it again."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the pod now (SIGKILL), and do not start it again."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    async def _spawn(self) -> asyncio.subprocess.Process:
        rotate(self._log_file)
        self.uid = uuid.uuid4().hex
        with self._log_file.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *self._command(self.uid),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )
        self._set_process(ProcessRef.of(self._child.pid))
        return self._child

    async def _pause(self, what: str, lived_s: float) -> None:
        delay_s = self._backoff.delay_s(lived_s)
        when = "restarting" if delay_s == 0 else f"restarting in {delay_s:.1f} s (log: {self._log_file})"
        self._report(f"{self.pod.name} {what}; {when}")
        if delay_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _set_process(self, process: ProcessRef | None) -> None:
        self.pod = msgspec.structs.replace(self.pod, process=process)
        self._on_change()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)


async def stop_all(supervisors: Sequence[PodSupervisor], *, deadline_s: float) -> list[str]:
    """Send SIGTERM to all pods, and SIGKILL to those left after `deadline_s` seconds, whose names are returned.

    All processes are gone when it returns.
    """
    for supervisor in supervisors:
        supervisor.stop()
    tasks = {supervisor.task: supervisor for supervisor in supervisors if supervisor.task is not None}
    if not tasks:
        return []
    _, late = await asyncio.wait(tasks, timeout=deadline_s)
    for task in late:
        tasks[task].kill()
    await asyncio.gather(*tasks)
    return [tasks[task].pod.name for task in late]


def describe_exit(status: int) -> str:
    """The exit status of an asyncio subprocess in words."""
    if status >= 0:
        return f"exited with {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _environment() -> dict[str, str]:
    """The environment without MUSTER_... variables: a pod takes these as options, and the command line has them all."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}


def rotate(log_file: Path) -> None:
    """Rename a long log file, and keep one old file, so that the logs of a crash loop do not fill the disk."""
    with suppress(FileNotFoundError):
        if log_file.stat().st_size > MAX_LOG_BYTES:
            log_file.replace(log_file.with_name(log_file.name + ".1"))
