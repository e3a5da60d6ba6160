"""Who gets a processor soon: short slices for a thread (sched_setattr)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from muster_coordinator.tuning import scheduling
from muster_coordinator.tuning.scheduling import SCHED_ATTR, SLICE_NS, run_in_short_slices, stand_back

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def attributes() -> tuple[int, int, int]:
    """(policy, nice, slice in ns) of the thread that calls."""
    told = ctypes.create_string_buffer(SCHED_ATTR.size)
    assert ctypes.CDLL(None).syscall(SCHED_GETATTR[platform.machine()], 0, told, SCHED_ATTR.size, 0) == 0
    _, policy, _, nice, _, slice_ns, _, _ = SCHED_ATTR.unpack(told.raw)
    return policy, nice, slice_ns


def linux_knows_slices() -> bool:
    """Since 6.12."""
    if platform.system() != "Linux" or platform.machine() not in SCHED_GETATTR:
        return False
    major, minor = platform.release().split(".")[:2]
    return (int(major), int("".join(each for each in minor if each.isdigit()))) >= (6, 12)


needs_slices = pytest.mark.skipif(not linux_knows_slices(), reason="needs Linux 6.12 on x86_64 or aarch64")


def in_a_thread(*calls: object) -> list[object]:
    """What they return; this thread stays as it is."""
    returned: list[object] = []
    thread = threading.Thread(target=lambda: returned.extend(call() for call in calls))  # type: ignore[operator]
    thread.start()
    thread.join()
    return returned


@needs_slices
def test_the_thread_that_asks_has_short_slices_and_is_as_nice_as_before() -> None:
    policy, nice, slice_ns = attributes()
    assert slice_ns > SLICE_NS
    assert in_a_thread(run_in_short_slices, attributes)[1] == (policy, nice, SLICE_NS)
    assert attributes() == (policy, nice, slice_ns)


@needs_slices
def test_threads_that_it_starts_have_them_too() -> None:
    def starts_another() -> object:
        return in_a_thread(attributes)[0]

    assert in_a_thread(run_in_short_slices, starts_another)[1] == (os.SCHED_OTHER, attributes()[1], SLICE_NS)


@needs_slices
def test_who_stands_back_has_them_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    [_, _, (policy, _, slice_ns)] = in_a_thread(run_in_short_slices, stand_back, attributes)  # type: ignore[misc]
    assert (policy, slice_ns > SLICE_NS) == (os.SCHED_IDLE, True)


NICE = """
import os
from tests.unit.tuning.test_short_slices import attributes, run_in_short_slices
os.nice(3)
run_in_short_slices()
print(*attributes())
"""


@needs_slices
def test_one_that_was_made_nice_stays_so() -> None:
    ended = subprocess.run([sys.executable, "-c", NICE], capture_output=True, text=True, timeout=60)
    _, nice, slice_ns = map(int, ended.stdout.split())
    assert (nice, slice_ns) == (min(attributes()[1] + 3, 19), SLICE_NS), ended.stderr


def test_on_another_machine_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: pytest.fail("a system call of another machine"))
    run_in_short_slices()


def test_the_structure_is_that_of_the_kernel() -> None:
    assert struct.calcsize(SCHED_ATTR.format) == 48 == scheduling.SCHED_ATTR.size
