"""A failover, as the operator sees it and plans it."""

from __future__ import annotations

from dataclasses import replace as with_fields

from tests.unit.operator.model import Model, Operator

from muster_operator.plan.actions import Action, Elect
from muster_operator.plan.observation import Observation
from muster_operator.plan.planner import plan


def lost_leader(partitions: int = 1) -> tuple[Observation, tuple[Action, ...], list[Elect]]:
    """The leader of a partition was silent for a second when it was doubted, and half a second after that there is a
    plan."""
    model = Model(partitions=partitions, replication_factor=3)
    Operator(model).settle()
    leader = next(iter(model.objects.values())).status.leader
    assert leader is not None
    model.stop(leader)
    seen = Operator(model, token=2).observe()
    doubted = tuple(with_fields(pod, noticed_s=1.0, steady_s=0.5) if pod.name == leader else pod for pod in seen.pods)
    seen = with_fields(seen, pods=doubted)
    actions = plan(seen, 1.0)
    elections = [each for each in actions if isinstance(each, Elect)]
    assert elections
    return seen, actions, elections
