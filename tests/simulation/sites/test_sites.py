"""No two sites answer clients, and no more is lost than was announced, in any history; each planted fault is found.

`SITE_SEEDS=20000` runs more of them.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.sites.faults import FAULTS
from tests.simulation.sites.run import History
from tests.simulation.sites.world import Violation

SEEDS = int(os.environ.get("SITE_SEEDS", "60"))
SEEDS_OF_A_FAULT = 1_000


def test_never_two_sites_answer_clients_and_what_is_lost_was_announced() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(SEEDS):
        history = History(seed)
        try:
            history.run()
        except Violation as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation
        kinds.update(history.kinds)
    print(dict(kinds))
    wanted = {"alive", "dead", "cut off", "stands", "stands briefly", "interrupted", "given back", "rival"}
    assert wanted <= kinds.keys(), kinds


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    for seed in range(SEEDS_OF_A_FAULT):
        try:
            History(seed).run()
        except Violation as violation:
            print(f"seed {seed}: {violation}")
            return
    pytest.fail(f"not found in {SEEDS_OF_A_FAULT} seeds")
