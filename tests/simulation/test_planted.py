"""Faults that are planted in real pods are caught by default seeds, within the number of seeds that the tables state.

Those that need many seeds are left to `make simulate FAULT=... SEEDS=...`.
"""

from __future__ import annotations

import pytest
from tests.simulation.host_faults import HOST_FAULTS
from tests.simulation.profiles import draw
from tests.simulation.rule_faults import RULE_FAULTS
from tests.simulation.simulator import Failure, simulate

FAULTS = RULE_FAULTS | HOST_FAULTS
QUICK_SEEDS = 20


@pytest.mark.interpreted
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.seeds <= QUICK_SEEDS])
def test_planted_fault_is_caught(name: str) -> None:
    fault = FAULTS[name]
    with fault.plant():
        for seed in range(fault.seeds):
            try:
                simulate(draw(seed))
            except Failure:
                return
    pytest.fail(f"{name}: not caught within {fault.seeds} seeds")


def test_no_fault_needs_more_than_two_thousand_seeds() -> None:
    assert max(fault.seeds for fault in FAULTS.values()) <= 2_000
