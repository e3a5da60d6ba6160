"""Stolen processor time, from made-up /proc/stat files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.chaos.machine import LOOK_EVERY_S, LOOKS, UNDISTURBED, Machine, ProcessorTime, processor_time, worst


def write(stat: Path, *, idle: int, stolen: int) -> None:
    """Whole at once: it is being read."""
    new = stat.with_suffix(".new")
    new.write_text(f"cpu  100 20 30 {idle} 5 6 7 {stolen} 99 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    new.replace(stat)


def test_guests_are_users_and_count_once(tmp_path: Path) -> None:
    write(tmp_path / "stat", idle=1000, stolen=32)
    seen = processor_time(tmp_path / "stat")
    assert (seen.all, seen.stolen) == (1200, 32)


def test_worst_is_that_of_the_half_seconds_that_touch_the_window() -> None:
    stolen = [0] * 20 + [2, 4, 6, 8, 10] + [10] * 20
    looks = [ProcessorTime(number / 10, 20 * number, each) for number, each in enumerate(stolen)]
    assert worst(looks, 0.0, 4.4) == 10 / (20 * LOOKS)
    assert worst(looks, 0.0, 1.0) == 0.0
    assert worst(looks, 3.5, 4.4) == 0.0
    assert worst([], 0.0, 1.0) == 0.0


def test_waits_until_the_machine_has_its_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "stat", idle=1000, stolen=0)
    seen = [0.5, UNDISTURBED + 0.01, UNDISTURBED, 0.5]
    monkeypatch.setattr(Machine, "stolen", lambda *_: seen.pop(0))
    with Machine(tmp_path / "stat") as machine:
        machine.wait_undisturbed(0.01)
    assert seen == [0.5]


def test_goes_on_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "stat", idle=1000, stolen=0)
    monkeypatch.setattr(Machine, "stolen", lambda *_: 0.5)
    with Machine(tmp_path / "stat") as machine:
        machine.wait_undisturbed(0.01, limit_s=0.1)


def test_looks_on_until_it_ends(tmp_path: Path) -> None:
    write(tmp_path / "stat", idle=1000, stolen=0)
    with Machine(tmp_path / "stat") as machine:
        start, deadline = time.monotonic(), time.monotonic() + 30
        write(tmp_path / "stat", idle=1000, stolen=1000)
        while not machine.stolen(start, time.monotonic()):
            assert time.monotonic() < deadline
            time.sleep(LOOK_EVERY_S)


def test_work_takes_processor_time() -> None:
    with Machine() as machine:
        before = time.thread_time()
        assert 0 < machine.work_ms() <= (time.thread_time() - before) * 1000
