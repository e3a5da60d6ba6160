"""A group of consumers is after a move what it was before, and a fault in what it takes along is found."""

from __future__ import annotations

import pytest
from tests.simulation.moves.consumer_faults import FAULTS
from tests.simulation.moves.consumers import run
from tests.simulation.moves.world import is_caught

SEEDS = 25


@pytest.mark.parametrize("seed", range(SEEDS))
def test_consumers_go_on_through_moves_with_what_they_have(seed: int) -> None:
    assert run(seed).to_muster


def test_seeds_have_moves_after_which_nothing_may_change() -> None:
    runs = [run(seed) for seed in range(10)]
    assert sum(each.quiet for each in runs) > 5
    assert sum(each.back for each in runs) > 20


@pytest.mark.interpreted
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, seeds = FAULTS[name]
    plant(monkeypatch)
    assert is_caught(run, seeds), f"not caught within {seeds} seeds"
