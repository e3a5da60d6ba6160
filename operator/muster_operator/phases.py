"""The parts of a failover's time, from the last word of the lost leader to the next active one; for metrics."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.api.models import PartitionState
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.actions import Action, Elect
from muster_operator.plan.observation import Connection, Observation

_IN_DOUBT = (Connection.DOWN, Connection.SUSPECT)


class Phases:
    """The failovers of one cluster that this operator carries out. All times are monotonic seconds.

    noticed: from the last word of the pod to the doubt whether it lives. decided: from there to the plan that elects
    another one. recorded: to the record of leader and epoch. called: to the call of that pod. led: to an active leader.
    """

    def __init__(self, metrics: OperatorMetrics) -> None:
        self._seconds = metrics.failover_phase_seconds
        self._planned: list[str] = []
        self._at = 0.0
        self._called: dict[str, float] = {}

    def plan(self, seen: Observation, actions: Sequence[Action], now: float) -> None:
        """The plan elects successors for leaders that are lost. A later attempt for the same loss does not count."""
        pods = {pod.name: pod for pod in seen.pods if pod.connection in _IN_DOUBT}
        elected = {each.partition for each in actions if isinstance(each, Elect)} if pods else ()
        self._planned, self._at = [], now
        for partition in seen.partitions if elected else ():
            name, status = partition.metadata.name, partition.status
            pod = pods.get(status.leader or "")
            if name in elected and pod is not None and status.state is PartitionState.LED:
                self._planned.append(name)
                self._seconds.labels("noticed").observe(pod.noticed_s)
                self._seconds.labels("decided").observe(pod.steady_s)

    def recorded(self, now: float) -> None:
        """Leaders and epochs of the plan are in the store."""
        self._end("recorded", now)

    def called(self, now: float) -> None:
        """The pods are called."""
        self._end("called", now)
        self._called.update(dict.fromkeys(self._planned, now))
        self._planned = []

    def led(self, partition: str, now: float) -> None:
        """The partition has an active leader."""
        called = self._called.pop(partition, None)
        if called is not None:
            self._seconds.labels("led").observe(now - called)

    def _end(self, phase: str, now: float) -> None:
        for _ in self._planned:
            self._seconds.labels(phase).observe(now - self._at)
        self._at = now
