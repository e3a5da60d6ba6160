"""A process that ends at once: what it printed is there, and nothing else of it runs."""

from __future__ import annotations

import subprocess
import sys

ENDING = "from muster_coordinator.tuning.ending import exit_at_once\n"


def ended(program: str, **streams: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ENDING + program]
    return subprocess.run(command, text=True, timeout=60, **({"stdout": subprocess.PIPE} | streams))


def test_what_was_printed_is_written_and_the_status_is_that_given() -> None:
    found = ended("import sys; print('said'); print('told', file=sys.stderr); exit_at_once(3)", stderr=subprocess.PIPE)
    assert (found.returncode, found.stdout, found.stderr) == (3, "said\n", "told\n")


def test_the_interpreter_is_not_taken_apart() -> None:
    found = ended("import atexit; atexit.register(print, 'at exit'); print('said'); exit_at_once(0)")
    assert (found.returncode, found.stdout) == (0, "said\n")


def test_streams_that_nobody_reads_do_not_keep_it() -> None:
    assert ended("import sys; sys.stdout = open('/dev/full', 'w'); print('lost'); exit_at_once(0)").returncode == 0
    assert ended("import sys; sys.stdout.close(); exit_at_once(0)").returncode == 0
