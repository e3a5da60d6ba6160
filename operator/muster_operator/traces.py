"""Spans of elections and rollouts of one cluster, for a collector of OpenTelemetry (docs/traces.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from muster_coordinator.tracing.ports import Span, Spans
from muster_operator.clock import Clock
from muster_operator.plan.actions import Action, Elect, RestartPod
from muster_operator.plan.observation import Connection, Observation

log = structlog.get_logger(__name__)

_IN_DOUBT = (Connection.DOWN, Connection.SUSPECT)
NAMED = 20
"""Partitions that a span names; it counts all of them."""


@dataclass(slots=True)
class _Elections:
    """Those of one plan. `at_s`: when the last phase ended, in seconds since 1970. `left`: partitions not led yet."""

    span: Span
    at_s: float
    left: set[str] = field(default_factory=set)


class Traces:
    """One trace for the elections of each plan, with the phases of docs/metrics.md, and one for each rollout.

    Where leaders were lost a trace begins at the last word of their pod, else at the plan.
    """

    def __init__(self, spans: Spans, clock: Clock, cluster: str) -> None:
        self._spans = spans
        self._clock = clock
        self._cluster = cluster
        self._planned: _Elections | None = None
        self._called: dict[str, _Elections] = {}  # by partition
        self._rollout: Span | None = None
        self._restart: tuple[str, Span] | None = None  # uid of the pod that is replaced

    # -- elections -----------------------------------------------------------------------------------------------------

    def plan(self, seen: Observation, actions: Sequence[Action]) -> None:
        """The actions are about to be carried out."""
        if self._planned is not None:
            self._planned.span.end(outcome="not recorded: it was planned anew")
            self._planned = None
        elected = {each.partition: each for each in actions if isinstance(each, Elect)}
        if not elected:
            return
        now_s = self._clock.wall()
        noticed_s, decided_s = _lost_for(seen, elected)
        first = next(iter(elected.values()))
        span = self._spans.begin(
            "election",
            start_s=now_s - noticed_s - decided_s,
            attributes={
                "cluster": self._cluster,
                "count": len(elected),
                "partitions": [*elected][:NAMED],
                "reason": first.reason.value,
                "message": first.message,
            },
        )
        self._planned = _Elections(span, now_s - noticed_s - decided_s)
        if noticed_s or decided_s:
            self._phase("noticed", now_s - decided_s)
            self._phase("decided", now_s)
        log.info("election_traced", cluster=self._cluster, trace=span.trace_id, partitions=len(elected))

    def recorded(self) -> None:
        """Leaders and epochs of the plan are in the store."""
        self._phase("recorded", self._clock.wall())

    def call(self, pod: str, elections: Sequence[Elect]) -> Span:
        """The pod is about to be called for these, which are in the plan. The caller ends the span."""
        assert self._planned is not None
        for each in elections:
            self._forget(each.partition, "elected again")
            self._called[each.partition] = self._planned
            self._planned.left.add(each.partition)
        return self._spans.begin("call", self._planned.span.trace, attributes={"pod": pod, "count": len(elections)})

    def called(self) -> None:
        """The pods are called."""
        self._phase("called", self._clock.wall())
        self._planned = None

    def led(self, partition: str) -> None:
        """The partition has an active leader."""
        self._forget(partition, "led")

    def _forget(self, partition: str, outcome: str) -> None:
        elections = self._called.pop(partition, None)
        if elections is None:
            return
        elections.left.discard(partition)
        if not elections.left:
            now_s = self._clock.wall()
            if outcome == "led":
                self._spans.begin("led", elections.span.trace, elections.at_s).end(now_s)
            elections.span.end(now_s, outcome=outcome)

    def _phase(self, name: str, until_s: float) -> None:
        planned = self._planned
        if planned is not None:
            self._spans.begin(name, planned.span.trace, planned.at_s).end(until_s)
            planned.at_s = until_s

    # -- rollouts ------------------------------------------------------------------------------------------------------

    def rollout(self, actions: Sequence[Action], ended: str) -> None:
        """`ended`: why no pod is about to be replaced; "" while one is."""
        restart = next((each for each in actions if isinstance(each, RestartPod)), None)
        if restart is not None:
            self._restarts(restart)
        elif ended and self._rollout is not None:
            self._end_restart()
            self._rollout.end(outcome=ended)
            self._rollout = None

    def _restarts(self, restart: RestartPod) -> None:
        if self._restart is not None and self._restart[0] == restart.uid:
            return  # the call has failed, and is repeated
        self._end_restart()
        if self._rollout is None:
            self._rollout = self._spans.begin("rollout", attributes={"cluster": self._cluster})
            log.info("rollout_traced", cluster=self._cluster, trace=self._rollout.trace_id)
        span = self._spans.begin("restart", self._rollout.trace, attributes={"pod": restart.pod})
        self._restart = restart.uid, span

    def _end_restart(self) -> None:
        """The pod was replaced, and everything is as whole as the next one's turn asks for."""
        if self._restart is not None:
            self._restart[1].end()
            self._restart = None


def _lost_for(seen: Observation, elected: dict[str, Elect]) -> tuple[float, float]:
    """Seconds from the last word of a lost leader to the doubt whether it lives, and from there to now, for the leader
    that was silent for longest; zeros if none is lost."""
    pods = {pod.name: pod for pod in seen.pods if pod.connection in _IN_DOUBT}
    leaders = {each.status.leader for each in seen.partitions if each.metadata.name in elected} if pods else ()
    lost = [pods[leader] for leader in leaders if leader in pods]
    longest = max(lost, key=lambda pod: pod.noticed_s + pod.steady_s, default=None)
    return (longest.noticed_s, longest.steady_s) if longest is not None else (0.0, 0.0)
