"""Gaps, interruptions and bounds, from made-up histories."""

from __future__ import annotations

import pytest
from tests.chaos.faults import Bounds, Fault, exceeded, measure
from tests.chaos.figures import back_at, longest_gap, percentile
from tests.chaos.history import GroupHistory, History


def group(name: str, moments: list[float], pod: int = 0) -> GroupHistory:
    """Acknowledged at these moments, 1 ms after each was sent, all by one pod."""
    count = len(moments)
    return GroupHistory(
        name=name,
        first_offset=0,
        last_sent=count - 1,
        offsets=list(range(count)),
        sent=[moment - 0.001 for moment in moments],
        acked=moments,
        pods=[pod] * count,
        coordinators=[(0.0, pod)],
    )


def test_percentile_is_by_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([], 0.5) == 0.0


def test_longest_gap_reaches_over_both_ends_of_the_window() -> None:
    moments = [1.0, 2.0, 5.0, 5.5]
    assert longest_gap(group("g", moments), 3.0, 4.0) == 3.0
    assert longest_gap(group("g", moments), 5.1, 5.2) == 0.5


def test_group_that_never_came_back_is_interrupted_to_the_end_of_the_window() -> None:
    assert longest_gap(group("g", [1.0, 2.0]), 2.5, 10.0) == 7.5


def test_back_is_the_first_commit_that_was_sent_after_the_moment() -> None:
    seen = group("g", [1.0, 2.0, 3.0])
    assert back_at(seen, 1.9995) == 3.0
    assert back_at(seen, 4.0) is None


def test_only_groups_of_the_victim_count_as_interrupted() -> None:
    hit = group("hit", [0.5, 1.0, 3.0, 3.5], pod=0)
    spared = group("spared", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], pod=1)
    seen = History(["a:1", "b:2"], [hit, spared], 0.01, lags=[(2.0, 0.2)])
    figures = measure(seen, [Fault("kill", ("a:1",), 1.1, 3.2)]).as_dict()
    assert (figures["interrupted"], figures["interrupted_max"]) == (1, 2000.0)
    assert (figures["elsewhere"], figures["elsewhere_max"]) == (1, 500.0)
    assert figures["own_lag_max"] == 200.0


@pytest.mark.parametrize("victims", [(), ("a:1",), ("b:2",)])
def test_of_planned_moves_each_one_counts_and_all_other_time_of_every_group_is_elsewhere(
    victims: tuple[str, ...],
) -> None:
    moved = group("moved", [0.5, 1.0, 3.0, 3.5, 4.5, 4.75, 7.0])
    moved.pods = [0, 0, 1, 1, 0, 0, 1]  # over 2 s and 1 s; the last one begins behind the window
    stayed = group("stayed", [0.5, 1.0, 2.5, 5.0])
    seen = History(["a:1", "b:2"], [moved, stayed], 0.01)
    figures = measure(seen, [Fault("rolling", victims, 1.1, 4.6, planned=True)])
    assert figures.interrupted == [2.0, 1.0]
    assert figures.elsewhere == [0.5, 2.5]


def test_group_that_never_came_back_is_no_move() -> None:
    seen = History(["a:1"], [group("g", [1.0, 2.0])], 0.01)
    figures = measure(seen, [Fault("rolling", (), 2.5, 10.0, planned=True)])
    assert (figures.interrupted, figures.elsewhere) == ([], [7.5])


@pytest.mark.parametrize(("bounds", "lines"), [(Bounds(interrupted_max=2000), 0), (Bounds(interrupted_max=1999), 1)])
def test_bound_is_exceeded_only_above_it(bounds: Bounds, lines: int) -> None:
    figures = {"interrupted_p50": None, "interrupted_max": 2000.0}
    assert len(exceeded(figures, bounds)) == lines


def test_bound_of_which_nothing_was_measured_does_not_hold() -> None:
    [line] = exceeded({"interrupted_p50": None, "interrupted_max": 2.0}, Bounds(interrupted_p50=5, interrupted_max=5))
    assert line.startswith("interrupted_p50 was not measured")
