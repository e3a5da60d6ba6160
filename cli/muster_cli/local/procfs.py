"""Processes by pid and start time: a pid alone may belong to another program by now."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

_PROC = Path("/proc")


class ProcessRef(msgspec.Struct, frozen=True, rename="camel"):
    """One process. `start_ticks`: its start in clock ticks since boot (field 22 of /proc/PID/stat)."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessRef | None:
        """The process that has this pid now; None if there is none, or only a zombie."""
        stat = _stat(pid)
        return None if stat is None or stat[0] == "Z" else cls(pid=pid, start_ticks=int(stat[19]))

    def alive(self) -> bool:
        return ProcessRef.of(self.pid) == self

    def command_line(self) -> tuple[str, ...]:
        """The arguments of the process; empty if it is gone."""
        try:
            raw = (_PROC / str(self.pid) / "cmdline").read_bytes()
        except OSError:
            return ()
        return tuple(os.fsdecode(part) for part in raw.rstrip(b"\0").split(b"\0"))


def own_process() -> ProcessRef:
    """The calling process."""
    me = ProcessRef.of(os.getpid())
    assert me is not None, "/proc does not show this process"
    return me


def stop_processes(processes: list[ProcessRef], *, deadline_s: float, poll_s: float = 0.02) -> list[ProcessRef]:
    """Send SIGTERM to each, and SIGKILL to those left after `deadline_s` seconds, which are returned. Blocks."""
    _signal_alive(processes, signal.SIGTERM)
    _wait_gone(processes, deadline_s, poll_s)
    killed = _signal_alive(processes, signal.SIGKILL)
    _wait_gone(killed, deadline_s, poll_s)
    return killed


def _signal_alive(processes: list[ProcessRef], number: signal.Signals) -> list[ProcessRef]:
    reached = []
    for process in processes:
        if process.alive():
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
            reached.append(process)
    return reached


def _wait_gone(processes: list[ProcessRef], deadline_s: float, poll_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while any(process.alive() for process in processes) and time.monotonic() < deadline:
        time.sleep(poll_s)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on. The second, the name, may hold blanks and brackets."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()
