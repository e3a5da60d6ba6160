"""Processes of a killed run are ended by the next one; those of a run that goes on are not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.leftovers import end_leftovers
from tests.support.local_cluster import wait_until

from muster_cli.local.data_dir import DataDir, RunningPod, RunRecord
from muster_cli.local.procfs import ProcessRef


@pytest.fixture
def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def run_of(pid: int, scenarios: Path) -> Path:
    """The directory of a scenario of the run with that process."""
    root = scenarios / f"kill-{pid}-1"
    DataDir(root / "data").create()
    return root


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()


def record(root: Path, processes: list[subprocess.Popen[bytes]], argument: str) -> list[subprocess.Popen[bytes]]:
    """A supervisor and a pod that sleep, recorded as those of that directory."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", argument]
    pair = [subprocess.Popen(command) for _ in range(2)]
    processes += pair
    for child in pair:  # the kernel shows the arguments a moment after the program was begun
        shown = Path(f"/proc/{child.pid}/cmdline")
        wait_until(lambda shown=shown: argument.encode() in shown.read_bytes(), "its arguments are shown")
    supervisor, pod = (ProcessRef.of(child.pid) for child in pair)
    assert supervisor is not None
    running = RunningPod("muster-0", 0, "127.0.0.1:1", "127.0.0.1:2", pod)
    DataDir(root / "data").write_run(RunRecord(supervisor=supervisor, pods=(running,)))
    return pair


def test_supervisor_and_pods_of_a_killed_run_are_ended(
    tmp_path: Path, dead_pid: int, processes: list[subprocess.Popen[bytes]]
) -> None:
    root = run_of(dead_pid, tmp_path)
    pair = record(root, processes, str(root / "data"))
    end_leftovers(tmp_path)
    assert [child.wait(timeout=30) != 0 for child in pair] == [True, True]


def test_processes_of_a_run_that_goes_on_are_left_alone(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    root = run_of(os.getpid(), tmp_path)
    pair = record(root, processes, str(root / "data"))
    end_leftovers(tmp_path)
    assert [child.poll() for child in pair] == [None, None]


def test_process_whose_command_line_does_not_name_the_directory_is_left_alone(
    tmp_path: Path, dead_pid: int, processes: list[subprocess.Popen[bytes]]
) -> None:
    root = run_of(dead_pid, tmp_path)
    pair = record(root, processes, "another program that was given the pid")
    end_leftovers(tmp_path)
    assert [child.poll() for child in pair] == [None, None]
