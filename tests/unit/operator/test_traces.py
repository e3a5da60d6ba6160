"""Spans of elections and rollouts: their phases, who is under whom, and what becomes of plans that fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.spans import KeptSpans, attributes, seconds
from tests.unit.operator.failovers import lost_leader
from tests.unit.operator.fakes import world
from tests.unit.podapi.fake_server import eventually

from muster_operator.clock import Clock
from muster_operator.plan.actions import RestartPod
from muster_operator.traces import Traces

PHASES = ["noticed", "decided", "recorded", "called", "led"]


@dataclass
class Watch:
    now_s: float = 1000.0

    def wall(self) -> float:
        return self.now_s

    def passes(self, seconds: float) -> None:
        self.now_s += seconds


def traced() -> tuple[Traces, KeptSpans, Watch]:
    spans, watch = KeptSpans(), Watch()
    return Traces(spans, Clock(wall=watch.wall), "ns/c"), spans, watch


def test_failover_is_one_trace_from_the_last_word_to_the_next_leader() -> None:
    seen, actions, (election,) = lost_leader()
    traces, spans, watch = traced()
    traces.plan(seen, actions)
    watch.passes(0.25)
    traces.recorded()
    call = traces.call(election.pod, [election])
    watch.passes(0.125)
    traces.called()
    call.end(watch.now_s, outcome="answered")
    watch.passes(2.0)
    traces.led(election.partition)
    assert spans.tree() == [("election", each) for each in (*PHASES[:4], "call", "led")] + [("", "election")]
    phases = {each.name: seconds(each) for each in spans.ended}
    assert phases == {
        "election": (998.5, 1002.375),
        "noticed": (998.5, 999.5),
        "decided": (999.5, 1000.0),
        "recorded": (1000.0, 1000.25),
        "called": (1000.25, 1000.375),
        "led": (1000.375, 1002.375),
        "call": phases["call"],
    }
    (whole,) = spans.named("election")
    told = attributes(whole)
    assert (told["cluster"], told["count"], told["partitions"]) == ("ns/c", 1, (election.partition,))
    assert (told["reason"], told["outcome"]) == (election.reason.value, "led")
    traces.led(election.partition)
    assert len(spans.ended) == 7, "another look at the same leader is no news"


def test_trace_of_many_partitions_ends_with_the_last_of_them() -> None:
    seen, actions, elections = lost_leader(partitions=6)
    assert len(elections) > 1
    traces, spans, _ = traced()
    traces.plan(seen, actions)
    traces.recorded()
    for each in elections:
        traces.call(each.pod, [each]).end()
    traces.called()
    for each in elections[1:]:
        traces.led(each.partition)
    assert spans.named("election") == []
    traces.led(elections[0].partition)
    assert len(spans.named("election")) == len(spans.named("led")) == 1


def test_plan_whose_record_is_overtaken_ends_when_it_is_planned_anew() -> None:
    seen, actions, _ = lost_leader()
    traces, spans, _ = traced()
    traces.plan(seen, actions)
    traces.plan(seen, ())
    (whole,) = spans.named("election")
    assert attributes(whole)["outcome"] == "not recorded: it was planned anew"
    assert spans.named("led") == []


def test_partition_that_is_elected_again_leaves_the_first_trace_without_a_leader() -> None:
    seen, actions, (election,) = lost_leader()
    traces, spans, _ = traced()
    for _ in range(2):
        traces.plan(seen, actions)
        traces.recorded()
        traces.call(election.pod, [election]).end(outcome="no answer")
        traces.called()
    traces.led(election.partition)
    assert [attributes(each)["outcome"] for each in spans.named("election")] == ["elected again", "led"]
    assert len(spans.named("led")) == 1


def test_rollout_has_one_span_for_each_pod_that_is_replaced() -> None:
    traces, spans, watch = traced()
    traces.rollout((), "done")
    for pod in ("c-2", "c-1"):
        traces.rollout((RestartPod(pod, f"uid of {pod}"),), "")
        traces.rollout((RestartPod(pod, f"uid of {pod}"),), "")
        watch.passes(5.0)
        traces.rollout((), "")
    traces.rollout((), "done")
    traces.rollout((), "done")
    assert spans.tree() == [("rollout", "restart"), ("rollout", "restart"), ("", "rollout")]
    assert [attributes(each).get("pod") for each in spans.ended] == ["c-2", "c-1", None]
    assert attributes(spans.ended[-1]) == {"cluster": "ns/c", "outcome": "done"}


async def test_operator_hands_the_span_of_each_call_to_the_pod(tmp_path: Path) -> None:
    spans = KeptSpans()
    async with world(tmp_path, replication_factor=3) as made, made.operator(spans=spans):
        await made.until_ready()
        await eventually(lambda: len(spans.named("election")) == 1)
        assert {each.name for each in spans.ended} == {*PHASES[2:], "call", "election"}, "nobody led before"
        await made.stop_pod(1)
        await eventually(lambda: len(spans.named("election")) > 1)
        traces = [trace for pod in made.pods.values() for trace in pod.traces]
    assert {*PHASES} <= {each.name for each in spans.ended}
    called = [each.get_span_context() for each in spans.named("call")]
    assert len(called) == len(traces)
    assert {*traces} == {f"00-{each.trace_id:032x}-{each.span_id:016x}-01" for each in called}
