"""Faults planted in the operator are caught by default seeds, within the number that their table states."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from tests.simulation.operating.faults import OPERATOR_FAULTS
from tests.simulation.options import draw_options, for_operating
from tests.simulation.simulator import Failure, simulate

pytestmark = [  # a process that was killed is collected with coroutines that never end
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.interpreted
@pytest.mark.parametrize("name", OPERATOR_FAULTS)
def test_planted_fault_is_caught(name: str) -> None:
    """The last of the seeds first: the numbers are those of the first seed that catches it, rounded up."""
    fault = OPERATOR_FAULTS[name]
    with fault.plant():
        for seed in reversed(range(fault.seeds)):
            try:
                simulate(for_operating(draw_options(seed)))
            except Failure:
                return
    pytest.fail(f"{name}: not caught within {fault.seeds} seeds")
