"""Every fault of replication.md's list, planted in the protocol, is caught within the stated number of seeds."""

from __future__ import annotations

import pytest
from tests.simulation.faults import FAULTS
from tests.simulation.simulator import Failure, simulate


@pytest.mark.interpreted
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_caught(name: str) -> None:
    fault = FAULTS[name]
    for seed in range(fault.seeds):
        try:
            fault.run(fault.draw(seed))
        except Failure:
            return
    pytest.fail(f"{name}: not caught within {fault.seeds} seeds")


@pytest.mark.parametrize("name", FAULTS)
def test_options_of_a_fault_are_clean_without_it(name: str) -> None:
    """So it is the fault that is caught."""
    for seed in range(3):
        simulate(FAULTS[name].draw(seed))
