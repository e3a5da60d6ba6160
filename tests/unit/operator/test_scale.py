"""Fewer pods: those that are to go hold nothing any more before the workload has fewer, and no partition waits."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Literal

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_adopt import carried_out, made, sets
from tests.unit.operator.test_sets_properties import leaders, logs_are_whole

from muster_operator.api.conditions import find_condition
from muster_operator.api.models import PartitionState
from muster_operator.plan.observation import Connection, PodView
from muster_operator.plan.scale import pods_to_run


def declare(model: Model, pods: int) -> None:
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, pods=pods))


def follow(model: Model, operator: Operator, rounds: int = 60) -> list[int]:
    """Plans and their actions, and a workload that ends pods as a StatefulSet does: the numbers that it was given.
    Every partition that has a leader keeps one in each step.
    """
    numbers = []
    for _ in range(rounds):
        carried_out(operator)
        wanted = pods_to_run(operator.observe())
        if wanted != (numbers[-1] if numbers else len(model.running)):
            numbers.append(wanted)
        for name in [name for name, pod in model.running.items() if pod.node_id >= wanted]:
            model.stop(name)
            del model.running[name]
        states = {each.status.state for each in model.objects.values()}
        assert not states & {PartitionState.LEADERLESS, PartitionState.STALLED}
    return numbers


def stalled(model: Model) -> tuple[str, str]:
    """(reason, message) of the cluster's Stalled condition."""
    found = find_condition(model.cluster.status.conditions, "Stalled")
    return ("", "") if found is None else (found.reason, found.message)


@pytest.mark.parametrize(("before", "after", "factor"), [(5, 3, 3), (5, 3, 1), (4, 3, 3), (6, 5, 5), (3, 1, 1)])
def test_pods_that_are_to_go_are_emptied_first(before: int, after: int, factor: Literal[1, 3, 5]) -> None:
    model = made(factor, pods=before, partitions=8)
    declare(model, after)
    assert follow(model, Operator(model, token=2))[-1] == after
    assert len(model.running) == after
    assert model.all_led
    logs_are_whole(model)
    assert set(leaders(model)) <= {f"c-{number}" for number in range(after)}


def test_number_falls_only_when_the_highest_pods_hold_nothing() -> None:
    model = made(3, pods=5, partitions=8)
    declare(model, 3)
    operator = Operator(model, token=2)
    assert pods_to_run(operator.observe()) == 5
    carried_out(operator)
    ready = find_condition(model.cluster.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "ScalingDown")
    assert "pod c-3, c-4 goes when it holds nothing" in ready.message
    operator.settle(60)
    assert pods_to_run(operator.observe()) == 3


def test_fewer_pods_than_copies_are_blocked_with_both_ways_out_and_the_rest_goes_on() -> None:
    model = made(3, pods=3)
    before = sets(model)
    declare(model, 1)
    operator = Operator(model, token=2)
    assert follow(model, operator, 10) == []
    reason, message = stalled(model)
    assert reason == "ScaleDownBlocked"
    assert """patch coordinatorcluster c --type merge -p '{"spec":{"pods":3}}'""" in message
    assert """patch offsetstopic t --type merge -p '{"spec":{"replicationFactor":1}}'""" in message
    assert sets(model) == before
    model.stop("c-0")  # the rest goes on
    operator.settle()
    assert model.all_led
    model.restart("c-0")
    model.topic = replace(model.topic, spec=replace(model.topic.spec, replication_factor=1))
    follow(model, Operator(model, token=3))
    assert len(model.running) == 1
    assert stalled(model) == ("", "")
    logs_are_whole(model)


def test_partition_that_names_a_pod_which_is_to_go_blocks_it_and_is_named() -> None:
    model = made(1, pods=3, partitions=3)
    name = next(name for name, each in model.objects.items() if each.status.leader == "c-2")
    each = model.objects[name]
    model.objects[name] = replace(each, spec=replace(each.spec, replicas=("c-2",)))
    declare(model, 2)
    assert follow(model, Operator(model, token=2), 20) == []
    reason, message = stalled(model)
    assert reason == "ScaleDownBlocked"
    assert f"spec.replicas of OffsetsPartition {name}" in message
    model.objects[name] = replace(model.objects[name], spec=replace(each.spec, replicas=()))
    assert follow(model, Operator(model, token=3)) == [2]
    logs_are_whole(model)


def test_pod_that_is_away_for_a_moment_is_not_taken_for_an_empty_one() -> None:
    model = made(3, pods=5, partitions=8)
    declare(model, 3)
    model.stop("c-4")
    seen = Operator(model, token=2).observe()
    assert pods_to_run(seen) == 5
    gone = tuple(pod for pod in seen.pods if pod.name != "c-4")
    assert pods_to_run(with_fields(seen, pods=gone)) == 5


def test_pods_without_a_record_stay_while_they_have_a_log_or_do_not_answer() -> None:
    model = made(1, pods=4, partitions=4)
    declare(model, 3)
    model.recreate()
    seen = Operator(model, token=2).observe()
    assert pods_to_run(seen) == 4
    unheard = PodView("c-3", 3, Connection.DOWN)
    assert pods_to_run(with_fields(seen, pods=(*seen.pods[:3], unheard))) == 4
    assert pods_to_run(with_fields(seen, topics=(), partitions=())) == 4
    assert follow(model, Operator(model, token=3)) == [3]
    logs_are_whole(model)


@pytest.mark.parametrize("after", range(0, 60, 7))
def test_scale_down_interrupted_after_any_action_goes_on(after: int) -> None:
    model = made(3, pods=5, partitions=4)
    declare(model, 3)
    first = Operator(model, token=2)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    follow(model, Operator(model, token=3))
    assert model.all_led
    logs_are_whole(model)
    declare(model, 5)
    for number in (3, 4):
        model.running[f"c-{number}"] = type(model.running["c-0"])(f"c-{number}", number, net=model.net)
    Operator(model, token=4).settle()
    assert model.all_led


def test_new_partitions_are_not_placed_on_pods_that_are_to_go() -> None:
    model = Model(pods=5, partitions=6, replication_factor=3)
    declare(model, 3)
    Operator(model).settle()
    assert {one.pod for each in model.objects.values() for one in each.status.replicas} == {"c-0", "c-1", "c-2"}
