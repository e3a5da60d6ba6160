"""Garbage collection in a pod: no pause grows with what the pod holds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

from muster_coordinator.tuning.interpreter import tune_interpreter

OBJECTS = 300_000
LOOKED_AT_LIMIT = 40_000


def most_looked_at() -> tuple[int, int]:
    """Objects that the largest collection looks at while a great many come to stay, and how many of these no later one
    will look at."""
    tune_interpreter()
    largest = 0

    def measure(phase: str, info: dict[str, int]) -> None:
        nonlocal largest
        if phase == "start":
            seen = sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))
            largest = max(largest, seen)

    gc.callbacks.append(measure)
    kept = [[number] for number in range(OBJECTS)]
    assert len(kept) == OBJECTS
    return largest, gc.get_freeze_count()


def test_no_collection_looks_at_all_that_a_pod_holds() -> None:
    """In a process of its own: the collector is the process's."""
    script = "from tests.unit.tuning.test_interpreter import most_looked_at as m; print(*m())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    looked_at, set_aside = map(int, done.stdout.split())
    assert 0 < looked_at < LOOKED_AT_LIMIT
    assert set_aside > OBJECTS - LOOKED_AT_LIMIT


def test_a_tuning_that_is_turned_off_is_not_set() -> None:
    """In a process of its own: interval and thresholds are the process's."""
    script = """
import gc, sys
from muster_coordinator.tuning.interpreter import tune_interpreter
before = sys.getswitchinterval(), gc.get_threshold(), len(gc.callbacks)
tune_interpreter()
print(before == (sys.getswitchinterval(), gc.get_threshold(), len(gc.callbacks)))
"""
    for off, unchanged in (("collector,switch_interval", "True"), ("write_back", "False")):
        environment = {**os.environ, "MUSTER_TUNING_OFF": off}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.strip() == unchanged, done.stderr
