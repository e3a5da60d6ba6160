"""How background work rests."""

from __future__ import annotations

import pytest

from muster_coordinator.tuning.pacing import Rest, Urgency


@pytest.mark.parametrize(
    ("share", "worked_s", "rest_s"),
    [(1 / 3, 0.001, 0.002), (0.2, 0.001, 0.004), (1 / 3, 1.0, 0.01), (1.0, 0.001, 0.0), (0.5, -0.1, 0.0)],
)
def test_rest_leaves_the_rest_of_the_time_to_others_and_has_an_end(
    share: float, worked_s: float, rest_s: float
) -> None:
    assert Rest(share, longest_s=0.01).after(worked_s) == pytest.approx(rest_s)


def test_elections_go_before_commits_and_commits_before_the_background() -> None:
    assert Urgency.ELECTION < Urgency.COMMIT < Urgency.BACKGROUND
