"""The interpreter of a pod: when it collects garbage, and how long a thread may wait for the interpreter lock."""

from __future__ import annotations

import gc
import sys

from muster_coordinator.tuning.switch import is_on

SWITCH_INTERVAL_S = 0.0005
"""Longest wait of a thread for the interpreter lock. A disk that is too slow for the event loop is written by a thread
(ADR 12), which needs the lock after every write: Python's default of 5 ms would double the latency of a commit. The
interval does not matter while the event loop writes the journal itself."""

GC_THRESHOLDS = (5_000, 4, 50)
"""Python's default, a collection every 700 allocations, took 3 % of the CPU and found nothing: messages are not
tracked by the collector, and the state of groups lives long."""


def tune_interpreter() -> None:
    """Set both. Call it when everything is imported. Switches: `switch_interval`, `collector`."""
    if is_on("switch_interval"):
        sys.setswitchinterval(SWITCH_INTERVAL_S)
    if is_on("collector"):
        gc.set_threshold(*GC_THRESHOLDS)
        gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    """Freeze what survived two collections: it is long-lived group state, and the collector never scans it again.

    A collection of all objects takes 0.3 s with 100,000 groups, and every request waits for it. With this no collection
    scans more than some 10,000 objects. The price: a reference cycle that is older than two collections is never freed.
    State has no cycles and is freed by reference counting, and so is a connection when it is closed.
    """
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()
