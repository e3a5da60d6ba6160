"""Garbage collection in a pod: no pause grows with what the pod holds."""

from __future__ import annotations

import gc
import subprocess
import sys

from muster_coordinator.process.main import keep_collections_short

OBJECTS = 300_000
LOOKED_AT_LIMIT = 40_000


def most_looked_at() -> tuple[int, int]:
    """Objects that the largest collection looks at while a great many come to stay, and how many of these no later one
    will look at."""
    keep_collections_short()
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
    script = "from tests.unit.process.test_collections import most_looked_at as m; print(*m())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    looked_at, set_aside = map(int, done.stdout.split())
    assert 0 < looked_at < LOOKED_AT_LIMIT
    assert set_aside > OBJECTS - LOOKED_AT_LIMIT
