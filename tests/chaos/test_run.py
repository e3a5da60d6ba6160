"""Which faults of a run are judged, and when it makes another one. The cluster answers at once; time passes as told."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from tests.chaos.faults import Bounds
from tests.chaos.history import Fetch, GroupHistory, History
from tests.chaos.machine import UNDISTURBED
from tests.chaos.run import AGAIN_S, Run, judge

POD = "a:1"
SECONDS = 10.0
ROUND_S = 4.0


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.advance)
        monkeypatch.setattr(os, "sync", lambda: None)

    def advance(self, seconds: float) -> None:
        self.now += seconds


class StubMachine:
    """Whose faults are disturbed as told, in their order; the last one for ever."""

    def __init__(self, *stolen: float) -> None:
        self._stolen = list(stolen)

    def wait_undisturbed(self, for_s: float) -> None: ...

    def work_ms(self) -> float:
        return 7.0

    def stolen(self, start: float, end: float) -> float:
        return self._stolen.pop(0) if len(self._stolen) > 1 else self._stolen[0]


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


def made(clock: Clock, *stolen: float) -> Run:
    """A run whose rounds, of ROUND_S each, are over."""
    run = Run(random.Random(0), SECONDS, StubMachine(*stolen))  # type: ignore[arg-type]
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
    assert len(made(clock, 0.0).faults) == 3  # with a second of calm behind each


def test_as_long_as_each_fault_is_disturbed_there_is_another_one(clock: Clock) -> None:
    run = made(clock, 0.5, 0.5, 0.5, 0.5, 0.5, UNDISTURBED, 0.5)
    assert len(run.faults) == 6
    assert run.undisturbed == run.faults[5:]


def test_on_a_machine_that_is_always_disturbed_it_ends_all_the_same(clock: Clock) -> None:
    run = made(clock, 0.5)
    assert len(run.faults) == (SECONDS + AGAIN_S) // (ROUND_S + 1) + 1


def test_times_are_those_of_undisturbed_faults(clock: Clock) -> None:
    run = made(clock, 0.5, 0.0, 0.5)
    verdict = judge("kill", seen(run, 2.0, 0.1, 3.0), run, Bounds(interrupted_max=150))
    assert (verdict.figures["faults"], verdict.figures["disturbed"]) == (1, 2)
    assert verdict.figures["interrupted_max"] == pytest.approx(100, abs=0.2)
    assert verdict.reasons == []
    assert verdict.figures["work"] == 7.0
    assert [each["interrupted_max"] for each in verdict.each] == pytest.approx([2000, 100, 3000], abs=0.2)


def test_an_undisturbed_fault_that_takes_too_long_fails(clock: Clock) -> None:
    run = made(clock, 0.0, 0.0, 0.5)
    verdict = judge("kill", seen(run, 0.1, 0.2, 0.1), run, Bounds(interrupted_max=150))
    assert verdict.reasons == ["interrupted_max is 200 ms, the bound is 150 ms"]


def test_where_all_were_disturbed_all_are_judged(clock: Clock) -> None:
    run = made(clock, 0.5)
    gaps = [0.1] * (len(run.faults) - 1) + [0.2]
    verdict = judge("kill", seen(run, *gaps), run, Bounds(interrupted_max=150))
    assert verdict.figures["faults"] == verdict.figures["disturbed"] == len(run.faults)
    assert [reason.split()[0] for reason in verdict.reasons] == ["interrupted_max", "up"]


def test_nothing_may_be_lost_in_a_disturbed_fault_either(clock: Clock) -> None:
    run = made(clock, 0.5, 0.0, 0.0)
    history = seen(run, 0.1, 0.1, 0.1)
    history.groups[0].fetches[0].offset = 5
    verdict = judge("kill", history, run, Bounds())
    assert verdict.figures["lost"] > 0
    assert verdict.reasons == ["1 findings of the checker"]
