"""When a run makes another fault, what is judged, and when a scenario is repeated. Time passes as the test says."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from tests.chaos.faults import Bounds
from tests.chaos.history import Fetch, GroupHistory, History
from tests.chaos.run import REPETITIONS, Run, Verdict, judge, tried

POD = "a:1"
SECONDS = 11.5
ROUND_S = 4.0


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.advance)
        monkeypatch.setattr(os, "sync", lambda: None)

    def advance(self, seconds: float) -> None:
        self.now += seconds


class StubCluster:
    def wait_before_fault(self) -> None: ...

    def wait_settled(self) -> None: ...

    def leaders(self) -> dict[str, int]:
        return {"muster-0": 1}

    def kafka_address(self, pod: str) -> str:
        return POD


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def made(clock: Clock) -> Run:
    """Make a run whose rounds, of ROUND_S each, are over."""
    run = Run(random.Random(0), SECONDS)
    cluster: Any = StubCluster()
    run.begin()
    for victim in run.rounds(cluster):
        with run.fault(cluster, "fault", victim):
            clock.advance(ROUND_S)
    return run


def seen(run: Run, *gaps: float) -> History:
    """One group, which commits each 10 ms but for such a gap in the middle of each fault."""
    moments = [run.faults[0].at - 1]
    for fault, gap in zip(run.faults, gaps, strict=True):
        while moments[-1] < fault.at + 1:
            moments.append(moments[-1] + 0.01)
        moments.append(moments[-1] + gap)
    while moments[-1] < run.faults[-1].until + 1:
        moments.append(moments[-1] + 0.01)
    count = len(moments)
    group = GroupHistory("g", 0, count - 1, list(range(count)), moments, moments, [0] * count)
    group.coordinators = [(0.0, 0)]
    group.fetches = [Fetch(moments[-1], moments[-1], count - 1, 0, count - 1, True)]
    return History([POD], [group], 0.01)


def test_faults_are_made_until_the_time_is_up(clock: Clock) -> None:
    assert len(made(clock).faults) == 3  # 5.5 s each: half a second of hush, one of calm


def test_interruption_of_the_hit_groups_over_its_bound_is_slow_and_not_unsafe(clock: Clock) -> None:
    run = made(clock)
    verdict = judge("kill", seen(run, 0.1, 0.2, 0.1), run, Bounds(interrupted_max=150))
    assert verdict.slow == ["interrupted_max is 200 ms, the bound is 150 ms"]
    assert verdict.unsafe == []
    assert [each["interrupted_max"] for each in verdict.each] == pytest.approx([100, 200, 100], abs=0.2)


def test_other_groups_are_reported_beside_the_quiet_part_and_not_judged(clock: Clock) -> None:
    run = made(clock)
    for fault in run.faults:
        fault.victims = ()
    verdict = judge("follower", seen(run, 2.0, 0.1, 3.0), run, Bounds())
    assert verdict.figures["elsewhere_max"] == pytest.approx(3000, abs=0.2)
    assert verdict.figures["quiet_max"] is not None
    assert verdict.reasons == []


def test_lost_commit_is_unsafe_whatever_the_bounds_say(clock: Clock) -> None:
    run = made(clock)
    history = seen(run, 0.1, 0.1, 0.1)
    history.groups[0].fetches[0].offset = 5
    verdict = judge("kill", history, run, Bounds())
    assert verdict.figures["lost"] > 0
    assert verdict.unsafe == ["1 findings of the checker"]


SLOW, UNSAFE, WELL = {"slow": ["late"]}, {"unsafe": ["1 findings of the checker"]}, {}


@pytest.mark.parametrize(
    ("tries", "used", "holds"),
    [
        ([WELL], 1, True),
        ([UNSAFE], 1, False),
        ([SLOW | UNSAFE], 1, False),
        ([SLOW, WELL, WELL], 1 + REPETITIONS, True),
        ([SLOW, WELL, SLOW], 3, False),
        ([SLOW, SLOW], 2, False),
        ([SLOW, UNSAFE], 2, False),
    ],
)
def test_only_a_missed_bound_of_time_is_tried_again(tries: list[dict[str, Any]], used: int, holds: bool) -> None:
    given = iter([Verdict("kill", {"try": number}, **kind) for number, kind in enumerate(tries, 1)])
    verdict = tried(lambda: next(given))
    assert verdict.figures["try"] == used
    assert (not verdict.reasons) == holds
    assert [figures["try"] for figures in verdict.missed] == ([1] if used > 1 else [])
