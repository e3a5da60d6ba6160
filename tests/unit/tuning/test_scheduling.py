"""Who stands back for others: SCHED_IDLE for a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from muster_coordinator.tuning.scheduling import call_standing_back, stand_back

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux has the class")


@pytest.fixture(autouse=True)
def in_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")


def policy() -> int:
    """Of the thread that calls."""
    return os.sched_getscheduler(0)


def test_the_call_stands_back_and_who_waits_for_it_does_not() -> None:
    before = policy()
    assert call_standing_back(policy) == os.SCHED_IDLE
    assert policy() == before


def test_arguments_go_in_and_what_it_raises_comes_out() -> None:
    assert call_standing_back(divmod, 7, 2) == (3, 1)
    assert call_standing_back(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        call_standing_back(divmod, 7, 0)
    with pytest.raises(SystemExit):
        call_standing_back(sys.exit, 2)


@pytest.mark.parametrize("error", [PermissionError(), OSError()])
def test_where_the_system_does_not_allow_it_the_work_is_done_all_the_same(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert call_standing_back(divmod, 7, 2) == (3, 1)


def test_outside_of_kubernetes_nothing_stands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert call_standing_back(policy) == policy() == os.SCHED_OTHER


def test_where_the_system_has_no_such_class_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "SCHED_IDLE")
    assert call_standing_back(divmod, 7, 2) == (3, 1)


def test_threads_that_are_started_by_one_that_stands_back_do_so_too() -> None:
    found: list[int] = []

    def parent() -> None:
        stand_back()
        child = threading.Thread(target=lambda: found.append(policy()))
        child.start()
        child.join()

    one = threading.Thread(target=parent)
    one.start()
    one.join()
    assert found == [os.SCHED_IDLE]


ENDING = """
import os, threading
from muster_coordinator.tuning.scheduling import stand_back_altogether
before = threading.Event()
others = [threading.Thread(target=before.wait, daemon=True) for _ in range(3)]
for thread in others:
    thread.start()
stand_back_altogether()
print(*(os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")))
"""


def test_a_process_that_ends_stands_back_with_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def policies() -> list[str]:
        ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60)
        return ended.stdout.split()

    assert policies() == [str(os.SCHED_IDLE)] * 4
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert policies() == [str(os.SCHED_OTHER)] * 4
