"""The protocol by which a group moves keeps its promise, and a fault in it is found."""

from __future__ import annotations

import pytest
from tests.simulation.moves.faults import FAULTS
from tests.simulation.moves.run import run
from tests.simulation.moves.world import is_caught

SEEDS = 25


@pytest.mark.parametrize("seed", range(SEEDS))
def test_group_moves_and_nothing_acknowledged_is_lost(seed: int) -> None:
    run(seed)


def test_run_is_a_function_of_its_seed() -> None:
    assert run(3).log == run(3).log


@pytest.mark.interpreted
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, seeds = FAULTS[name]
    plant(monkeypatch)
    assert is_caught(run, seeds), f"not caught within {seeds} seeds"
