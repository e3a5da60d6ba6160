"""Room for descriptors: the kernel's own figure says how large the table is."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from muster_coordinator.tuning import descriptors
from muster_coordinator.tuning.descriptors import DESCRIPTORS, make_room_for_descriptors

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells it")

PROGRAM = """
import resource
from muster_coordinator.tuning.descriptors import make_room_for_descriptors

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
room = make_room_for_descriptors()
table = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("FDSize"))
print(room, table, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def in_a_process(soft: str, hard: str) -> list[int]:
    """Of one that began with these limits: the room, the size of its table, its limits afterwards."""
    program = PROGRAM.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return [int(word) for word in done.stdout.split()]


def test_table_is_large_at_once_and_the_soft_limit_is_raised_for_it() -> None:
    room, table, soft, _ = in_a_process("1024", "hard")
    assert room == min(DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert table >= room
    assert soft >= room


def test_hard_limit_bounds_it() -> None:
    room, table, soft, hard = in_a_process("512", "2048")
    assert (room, soft, hard) == (2048, 2048, 2048)
    assert 2048 <= table < DESCRIPTORS


def test_where_the_system_refuses_the_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(descriptors.fcntl, "fcntl", refuse)
    assert make_room_for_descriptors(64) == 0
