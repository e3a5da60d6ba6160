"""Every planted fault is caught by default seeds, within the number of seeds that its table states.

Those that need many seeds are left to `make simulate-faults`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.simulation.faults import CONSUMER_FAULTS, FAULTS, MIXED_FAULTS, OPERATOR_FAULTS, table
from tests.simulation.faults.__main__ import first_seed
from tests.simulation.profiles import CONSUMING, OPERATED

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "hack"))

from render_faults import render  # noqa: E402

QUICK_SEEDS = 20
MOST_SEEDS = 2_000


def _is_quick(name: str) -> bool:
    is_of_consumers = name in CONSUMER_FAULTS or name in MIXED_FAULTS
    kind = OPERATED if name in OPERATOR_FAULTS else CONSUMING if is_of_consumers else 1
    return FAULTS[name].seeds <= QUICK_SEEDS * kind


@pytest.mark.interpreted
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in FAULTS if _is_quick(name)])
def test_planted_fault_is_caught(name: str) -> None:
    seed, reason = first_seed(name)
    assert seed >= 0, f"not caught within {FAULTS[name].seeds} seeds"
    assert reason


def test_page_shows_every_planted_fault_and_within_how_many_seeds_it_is_caught() -> None:
    page = (ROOT / "docs" / "planted-faults.md").read_text(encoding="utf-8")
    assert page == render(table()), "run: python hack/render_faults.py --write"


def test_no_fault_needs_more_seeds_than_it_may() -> None:
    assert max(fault.seeds for fault in FAULTS.values()) <= MOST_SEEDS
