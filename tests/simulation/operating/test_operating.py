"""Real operators over real pods: clean seeds, and equal runs whatever the hash seed is."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.simulation.injected import Injected
from tests.simulation.options import draw_options, for_operating
from tests.simulation.simulator import simulate

pytestmark = [  # a process that was killed is collected with coroutines that never end
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEEDS = 60
PART = 20
HASH = """
import os
from tests.simulation.options import draw_options, for_operating
from tests.simulation.simulator import simulate
print(*(simulate(for_operating(draw_options(seed))).trace_hash for seed in range(6)), flush=True)
os._exit(0)
"""
OF_OPERATORS = (
    Injected.CONFLICT,
    Injected.STALE_READ,
    Injected.WATCH_GONE,
    Injected.THROTTLED,
    Injected.WRITE_UNKNOWN,
    Injected.OUTAGE,
    Injected.OPERATOR_CRASH,
    Injected.OPERATOR_CRASH_IN_STEPS,
    Injected.STORE_RESTORED,
    Injected.STATUS_LOST,
    Injected.TWO_OPERATORS,
)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """The processes of a run go with its test, and their warnings with them; not while pytest explains a failure."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.interpreted
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_seeds_are_clean_and_each_kind_of_fault_of_operators_strikes(first: int) -> None:
    struck: Counter[Injected] = Counter()
    for seed in range(first, first + PART):
        outcome = simulate(for_operating(draw_options(seed)))
        assert outcome.answered > 0
        struck += outcome.injected
    assert [kind.value for kind in OF_OPERATORS if kind not in struck] == []


def test_equal_seeds_are_equal_runs_in_any_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", HASH], env={"PYTHONHASHSEED": number}, capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]  # before that, what killed processes log when they are collected
        for number in ("1", "2")
    }
    assert len(printed) == 1
