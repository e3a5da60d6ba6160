"""Who stands back for others: SCHED_IDLE for a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from muster_coordinator.tuning import scheduling
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


OPERATOR = """
import os, sys, types
import muster_coordinator.tuning.scheduling as scheduling
import muster_operator.__main__ as start
fake = sys.modules["muster_operator.process"] = types.ModuleType("muster_operator.process")
fake.main = lambda: print(os.sched_getscheduler(0))
scheduling.import_module = lambda name: print(os.sched_getscheduler(0))
start.main()
"""


def test_the_operator_stands_back_while_it_is_imported_and_not_when_it_runs() -> None:
    ended = subprocess.run([sys.executable, "-c", OPERATOR], capture_output=True, text=True, timeout=60)
    *imports, run = ended.stdout.split()
    assert set(imports) == {str(os.SCHED_IDLE)}, ended.stderr
    assert run == str(os.SCHED_OTHER)


@pytest.mark.parametrize(("ready", "naps"), [(10_000, True), (1, False), (None, False)])
def test_an_import_naps_while_others_wait_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ready: int | None, naps: bool
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(scheduling, "NAP_AFTER_S", 0.0)
    monkeypatch.setattr(scheduling.time, "sleep", slept.append)
    monkeypatch.setattr(scheduling, "LOAD", str(tmp_path / "loadavg"))
    if ready is not None:
        (tmp_path / "loadavg").write_text(f"0.50 0.40 0.30 {ready}/321 4711\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("first", "second"):
        (tmp_path / f"muster_napping_{name}.py").write_text("")
    finders = list(sys.meta_path)
    scheduling.import_standing_back("muster_napping_first", "muster_napping_second")
    assert {"muster_napping_first", "muster_napping_second"} <= sys.modules.keys()
    assert bool(slept) is naps
    assert all(0 <= nap <= scheduling.LONGEST_NAP_S for nap in slept)
    assert sys.meta_path == finders


IMPORTED_EARLY = """
import sys
import muster_coordinator.process.main, muster_operator.__main__
print(*sorted(name for name in sys.modules if name.startswith("muster_") or name in ("asyncio", "aiohttp", "uvloop")))
"""


def test_nothing_large_is_imported_before() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTED_EARLY], capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == [
        *("muster_coordinator", "muster_coordinator.process", "muster_coordinator.process.main"),
        *("muster_coordinator.tuning", "muster_coordinator.tuning.descriptors"),
        *("muster_coordinator.tuning.ending", "muster_coordinator.tuning.scheduling"),
        *("muster_operator", "muster_operator.__main__"),
    ], ended.stderr
