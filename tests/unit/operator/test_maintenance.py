"""Pods that a person takes out of service or has replaced: what they lead, what clients are told, and the way back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import World, cluster, world
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_adopt import carried_out, made
from tests.unit.operator.test_sets_properties import leaders, logs_are_whole
from tests.unit.podapi.fake_server import eventually

from muster_operator.api.conditions import find_condition
from muster_operator.api.models import Failover, PartitionState, Rollout
from muster_operator.plan.actions import RestartPod
from muster_operator.plan.planner import plan

Asked = Literal["Drained", "Fenced"]


def ask(model: Model, maintenance: Mapping[str, Asked]) -> Operator:
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, maintenance=maintenance))
    return Operator(model, token=2)


def told(operator: Operator) -> list[int]:
    """The brokers of the last image."""
    assert operator.image is not None
    return [each.node_id for each in operator.image.brokers]


@pytest.mark.parametrize("asked", ["Drained", "Fenced"])
def test_leaders_leave_the_pod_stay_away_and_come_back_when_it_is_taken_back(asked: Asked) -> None:
    model = made(3, pods=3, partitions=6)
    before = leaders(model)
    assert "c-1" in before
    operator = ask(model, {"c-1": asked})
    for _ in range(60):
        carried_out(operator)
        assert {each.status.state for each in model.objects.values()} <= {PartitionState.LED, PartitionState.ELECTING}
    assert model.all_led
    assert "c-1" not in leaders(model)
    assert all("c-1" in [one.pod for one in each.status.replicas] for each in model.objects.values()), "it keeps logs"
    logs_are_whole(model)
    ask(model, {}).settle(60)
    assert leaders(model) == before


def test_drained_pod_leads_when_no_other_can_and_a_fenced_one_does_not() -> None:
    outcomes: tuple[tuple[Asked, PartitionState], ...] = (
        ("Drained", PartitionState.LED),
        ("Fenced", PartitionState.LEADERLESS),
    )
    for asked, state in outcomes:
        model = made(3, pods=3, partitions=1)
        operator = ask(model, {"c-0": asked, "c-1": asked})
        operator.settle(60)
        assert [*leaders(model)] == ["c-2"]
        model.stop("c-2")
        Operator(model, token=3).settle()
        (partition,) = model.objects.values()
        assert partition.status.state is state
    ready = find_condition(partition.status.conditions, "Ready")
    assert ready is not None
    assert "pod c-0 is fenced by spec.maintenance" in ready.message


def test_clients_are_told_of_a_fenced_pod_until_all_of_them_have_learned_its_successors() -> None:
    model = made(3, pods=3, partitions=3)
    operator = ask(model, {"c-1": "Fenced"})
    operator.settle(60)
    assert "c-1" not in leaders(model)
    assert told(operator) == [0, 1, 2]
    model.now += 11.0
    operator.settle()
    assert told(operator) == [0, 2]
    operator = ask(model, {"c-1": "Drained"})
    operator.settle()
    assert told(operator) == [0, 1, 2]


def test_pod_that_is_asked_to_restart_is_emptied_and_then_replaced_and_another_of_its_name_is_not() -> None:
    model = made(3, pods=3, partitions=3)
    uid = model.view("c-1").uid
    assert uid
    rollout = Rollout(restart={"c-1": uid})
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, rollout=rollout))
    operator = Operator(model, token=2)
    for _ in range(60):
        actions = operator.replan()
        if restarts := [each for each in actions if isinstance(each, RestartPod)]:
            break
        while operator.todo:
            operator.act()
    assert restarts == [RestartPod("c-1", uid)]
    assert "c-1" not in leaders(model)
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, rollout=Rollout(restart={"c-1": "other"})))
    assert not [each for each in plan(Operator(model, token=3).observe(), 1.0) if isinstance(each, RestartPod)]


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made_world:
        yield made_world


async def test_operator_replaces_the_pods_that_are_asked_for_one_at_a_time(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        failover = Failover(suspect_after="1s", election_timeout="5s", rebalance_after="100ms")
        declared = cluster(failover=failover, rollout=Rollout(restart={"c-0": "uid-0", "c-2": "uid-2", "c-1": "gone"}))
        await town.store.apply(declared)
        await eventually(lambda: bool(town.workload.restarted))
        assert town.workload.restarted == ["c-2"], "the highest first, and no other before it is back"
