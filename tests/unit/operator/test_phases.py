"""Where the time of a failover went, by phase."""

from __future__ import annotations

from dataclasses import replace as with_fields

from msgspec.structs import replace
from tests.unit.operator.failovers import lost_leader
from tests.unit.operator.model import Model, Operator

from muster_operator.api.models import PartitionState
from muster_operator.metrics import OperatorMetrics
from muster_operator.phases import Phases
from muster_operator.plan.actions import Elect
from muster_operator.plan.planner import plan

PHASES = ("noticed", "decided", "recorded", "called", "led")


def sums(metrics: OperatorMetrics) -> dict[str, float]:
    name = "muster_operator_failover_phase_seconds_sum"
    found = {each: metrics.registry.get_sample_value(name, {"phase": each}) for each in PHASES}
    return {phase: round(value, 3) for phase, value in found.items() if value is not None}


def test_phases_of_a_failover_add_up_and_a_second_attempt_does_not_count() -> None:
    seen, actions, (election,) = lost_leader()
    (partition,) = seen.partitions
    assert election.partition == partition.metadata.name
    metrics = OperatorMetrics()
    phases = Phases(metrics)
    phases.plan(seen, actions, 10.0)
    phases.recorded(10.25)
    phases.called(10.375)
    phases.led(partition.metadata.name, 11.375)
    assert sums(metrics) == {"noticed": 1.0, "decided": 0.5, "recorded": 0.25, "called": 0.125, "led": 1.0}
    phases.led(partition.metadata.name, 99.0)
    status = replace(partition.status, state=PartitionState.LEADERLESS)
    again = with_fields(seen, partitions=(replace(partition, status=status),))
    phases.plan(again, actions, 20.0)
    phases.recorded(21.0)
    phases.called(22.0)
    assert sums(metrics)["led"] == 1.0
    assert sums(metrics)["recorded"] == 0.25


def test_planned_move_is_no_failover() -> None:
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    (partition,) = model.objects.values()
    seen = Operator(model, token=2).observe()
    cordoned = tuple(with_fields(pod, cordoned=pod.name == partition.status.leader) for pod in seen.pods)
    seen = with_fields(seen, pods=cordoned)
    actions = plan(seen, 1.0)
    assert [each for each in actions if isinstance(each, Elect)]
    metrics = OperatorMetrics()
    Phases(metrics).plan(seen, actions, 10.0)
    assert sums(metrics) == {}
