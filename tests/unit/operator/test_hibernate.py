"""A cluster without pods, and back: nothing is elected for it, and nothing is lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_adopt import made, sets
from tests.unit.operator.test_sets_properties import logs_are_whole
from tests.unit.podapi.fake_pod import FakePod

from muster_operator.api.conditions import find_condition
from muster_operator.api.models import PartitionState
from muster_operator.plan.actions import Elect, RecordLeadership
from muster_operator.plan.scale import pods_to_run


def declare(model: Model, *, asleep: bool) -> None:
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, hibernate=asleep))


@pytest.mark.parametrize("sick", [False, True])
def test_cluster_sleeps_without_an_election_also_when_it_is_sick_and_goes_on(sick: bool) -> None:
    model = made()
    before = sets(model)
    if sick:
        for name in ("c-0", "c-1"):
            model.stop(name)
        Operator(model, token=2).settle()
    declare(model, asleep=True)
    operator = Operator(model, token=3)
    assert pods_to_run(operator.observe()) == 0
    volumes = {name: pod.volume for name, pod in model.running.items()}
    for name in [*model.running]:  # one after the other, as they end
        assert not any(isinstance(each, Elect | RecordLeadership) for each in operator.replan())
        operator.settle()
        model.stop(name)
        del model.running[name]
    operator.settle()
    for conditions in (model.cluster.status.conditions, model.topic.status.conditions):
        ready = find_condition(conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", "Hibernated")
        assert find_condition(conditions, "Stalled") is None
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LEADERLESS}
    declare(model, asleep=False)
    assert pods_to_run(operator.observe()) == 3
    for number, (name, volume) in enumerate(sorted(volumes.items())):
        model.running[name] = FakePod(name, number, volume, model.net)
        model.down.discard(name)
    Operator(model, token=4).settle(40)
    assert model.all_led
    assert sets(model) == before
    logs_are_whole(model)
