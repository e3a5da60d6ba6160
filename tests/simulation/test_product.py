"""The real pod in the simulation: clean seeds, equal runs, and faults planted in the pod's code."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.simulation.host_faults import HOST_FAULTS
from tests.simulation.profiles import draw
from tests.simulation.simulator import Failure, simulate

pytestmark = [  # a process that was killed is collected with coroutines that never end
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEEDS = 60
HASH = """
import os
from tests.simulation.profiles import draw
from tests.simulation.simulator import simulate
print(*(simulate(draw(seed)).trace_hash for seed in range(6)), flush=True)
os._exit(0)
"""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """The processes of a run go with its test, and their warnings with them."""
    yield
    gc.collect()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed_is_clean(seed: int) -> None:
    outcome = simulate(draw(seed))
    assert outcome.committed > 0
    assert outcome.answered > 0


def test_equal_seeds_are_equal_runs_in_any_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", HASH], env={"PYTHONHASHSEED": number}, capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]  # before that, what killed processes log when they are collected
        for number in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.interpreted
@pytest.mark.parametrize("name", HOST_FAULTS)
def test_planted_fault_is_caught(name: str) -> None:
    fault = HOST_FAULTS[name]
    with fault.plant():
        for seed in range(fault.seeds):
            try:
                simulate(draw(seed))
            except Failure:
                return
    pytest.fail(f"{name}: not caught within {fault.seeds} seeds")
