"""What people and their tools do at any moment, beside faults of pods and operators: see `storm`.

`python -m tests.unit.operator.storm` runs 2,000 seeds.
"""

from __future__ import annotations

import pytest
from tests.unit.operator.storm import storm
from tests.unit.operator.storm_faults import STORM_FAULTS

SEEDS = 200
PART = 10


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_nothing_that_people_do_loses_a_commit_or_ends_without_progress_or_a_next_step(first: int) -> None:
    for seed in range(first, first + PART):
        storm(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [349, 734, 1260, 1712])
def test_seed_that_once_ended_without_progress_or_too_early_is_clean(seed: int) -> None:
    """349: an operator that starts anew has to look once more at an object in its way. 1260: it asks for positions as
    long as that object is there. 1712: a learner was on a pod that was to go. 734: a pod that was to go waited for its
    volume, and a pod above it held a replica that could not move without it.
    """
    storm(seed)


@pytest.mark.long
@pytest.mark.parametrize("name", STORM_FAULTS)
def test_planted_fault_of_the_operator_is_caught(name: str) -> None:
    """The last of the seeds first: the numbers are those of the first seed that catches it, and one more."""
    fault = STORM_FAULTS[name]
    with fault.plant():
        for seed in reversed(range(fault.seeds)):
            try:
                storm(seed)
            except Exception:
                return
    pytest.fail(f"{name}: not caught within {fault.seeds} seeds")


def test_there_are_ten_faults_and_each_is_caught_by_a_seed_of_make_test() -> None:
    assert len(STORM_FAULTS) >= 10
    assert max(fault.seeds for fault in STORM_FAULTS.values()) <= SEEDS


def test_equal_seeds_are_equal_runs() -> None:
    assert storm(1).trace == storm(1).trace
