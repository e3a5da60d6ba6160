"""What is written for people waits for elections, and is not written all the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from muster_operator.attempts import SOON_S, Answer, Attempts
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.observation import Observation
from muster_operator.steps.context import TELL_EVERY_S, Context, Memory
from muster_operator.store.port import ClusterKey


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def context_at(time: Time) -> Context:
    unused = cast(Any, None)
    memory = Memory(Attempts(lambda: 0.5))
    clock = replace(Clock(), monotonic=time.monotonic)
    key = ClusterKey("ns", "c")
    seen = Observation("ns", "c")
    return Context(key, seen, memory, unused, unused, unused, clock, OperatorMetrics(), unused)


def test_counts_are_told_at_most_every_quarter_of_a_second_by_each_step() -> None:
    time = Time()
    context = context_at(time)
    assert context.has_time_to_tell("record")
    assert context.has_time_to_tell("write_status")
    time.now += TELL_EVERY_S / 2
    assert not context.has_time_to_tell("record")
    assert context.memory.steady_in_s == TELL_EVERY_S / 2
    time.now += TELL_EVERY_S
    assert context.has_time_to_tell("record")


def test_nothing_is_told_while_elections_are_about_to_be_answered() -> None:
    time = Time()
    context = context_at(time)
    context.memory.attempts.start("p", "c-0", 1, time.now)
    assert not context.has_time_to_tell("record")
    context.memory.attempts.answer("p", 1, time.now, Answer())
    assert context.has_time_to_tell("record")


def test_election_that_is_not_answered_keeps_nobody_waiting_for_long() -> None:
    time = Time()
    context = context_at(time)
    context.memory.attempts.start("p", "c-0", 1, time.now)
    assert context.memory.attempts.next_due(time.now) == SOON_S
    time.now += SOON_S
    assert context.has_time_to_tell("record")
