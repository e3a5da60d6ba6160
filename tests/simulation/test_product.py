"""Some seeds of `make simulate`, and equal runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.simulation.injected import Injected
from tests.simulation.kept import KEPT
from tests.simulation.profiles import PROFILES, draw
from tests.simulation.simulator import simulate

SEEDS = 300
PART = 10
STRUCK_SEEDS = 120
NOT_OF_PODS = {Injected.WRITE_LOST}
"""Of the model."""
PLAIN = "MUSTER_TEST_COMPILED" not in os.environ
"""Real operators run in plain Python only: they come with doubles of parts of compiled modules."""
REPLAYED = 10 if PLAIN else 9
"""The tenth one has real operators."""
QUIET_WITH_REMOVALS = {"flip_every_ms", "full_every_ms", "broken_every_ms", "errors_every_ms", "crash_in_effects"}
HASHES = f"""
import os
from tests.simulation.profiles import draw
from tests.simulation.simulator import simulate
print(*(simulate(draw(seed)).trace_hash for seed in range({REPLAYED})), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_seeds_are_clean(first: int) -> None:
    for options in map(draw, range(first, first + PART)):
        if options.operating and not PLAIN:
            continue
        outcome = simulate(options)
        assert outcome.committed > 0
        assert outcome.answered > 0


@pytest.mark.parametrize("found", KEPT)
def test_run_that_found_a_defect_is_clean(found: str) -> None:
    simulate(KEPT[found])


def test_equal_seeds_are_equal_runs_in_any_process() -> None:
    """The whole trace is the same: the hash is of all that was logged and of every random choice."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env=os.environ | {"PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]  # before that, what killed processes log when they are collected
        for number in ("1", "2")
    }
    assert len(runs) == 1
    assert len(set(runs.pop().split())) == REPLAYED


def test_drawn_options_are_of_every_profile() -> None:
    drawn = [vars(draw(seed)) for seed in range(120)]
    for name, profile in PROFILES.items():
        often = {key: value for key, value in profile.items() if key not in QUIET_WITH_REMOVALS}
        assert any(often.items() <= options.items() for options in drawn), name


@pytest.mark.interpreted
@pytest.mark.timeout(600)
def test_each_kind_of_fault_strikes_within_a_few_seeds() -> None:
    struck: Counter[Injected] = Counter()
    for seed in range(STRUCK_SEEDS):
        struck += simulate(draw(seed)).injected
        missing = set(Injected) - set(struck) - NOT_OF_PODS
        if not missing:
            return
    assert [kind.value for kind in missing] == []
