"""What must hold of every plan, whatever happens between its actions.

`Model.record` asserts at each record that epochs never fall, that no epoch is issued to two pods, and that a recorded
log id stays.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.model import Model, Operator

from muster_coordinator.states import ShardState
from muster_operator.api.models import LeadershipRecord, PartitionState
from muster_operator.plan.actions import Elect, RecordLeadership

PODS = st.sampled_from(["c-0", "c-1", "c-2"])
INDEXES = st.integers(0, 3)


def test_converged_cluster_has_an_empty_plan() -> None:
    model = Model()
    operator = Operator(model)
    operator.settle()
    assert model.all_led
    assert operator.replan() == ()


def test_plan_of_a_converged_cluster_is_empty_for_a_new_operator_but_for_its_image() -> None:
    model = Model()
    Operator(model).settle()
    newcomer = Operator(model, token=2)
    kinds = {type(action).__name__ for action in newcomer.replan()}
    assert kinds == {"PublishMetadata"}
    newcomer.settle()


def test_record_comes_before_its_election_in_every_plan() -> None:
    model = Model()
    operator = Operator(model)
    for _ in range(6):
        actions = operator.replan()
        for at, action in enumerate(actions):
            if isinstance(action, Elect):
                record = next(each for each in actions[:at] if isinstance(each, RecordLeadership))
                entry = LeadershipRecord.parse(record.leaderships[str(action.index)])
                assert (entry.leader, entry.epoch) == (action.pod, action.epoch)
        while operator.todo:
            operator.act()


@pytest.mark.parametrize("after", range(40))
def test_plan_interrupted_after_any_action_and_made_anew_converges(after: int) -> None:
    """The `after`-th action of the whole start is the last one of an operator that then dies."""
    model = Model()
    first = Operator(model)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    Operator(model, token=2).settle()
    assert model.all_led
    assert all(each.status.epoch == 0 for each in model.objects.values())


@pytest.mark.parametrize("after", range(20))
def test_failover_interrupted_after_any_action_converges_one_epoch_higher_or_two(after: int) -> None:
    model = Model()
    Operator(model).settle()
    model.restart("c-1")
    first = Operator(model, token=2)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    Operator(model, token=3).settle()
    assert model.all_led
    assert {each.status.epoch for each in model.objects.values() if each.status.leader == "c-1"} == {1}


EVENTS = st.one_of(
    st.tuples(st.just("plan"), st.integers(0, 1)),
    st.tuples(st.just("act"), st.integers(0, 1)),
    st.tuples(st.just("act"), st.integers(0, 1)),
    st.tuples(st.just("act"), st.integers(0, 1)),
    st.tuples(st.just("finish"), st.integers(0, 1)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.tuples(st.just("restart"), PODS),
    st.tuples(st.just("stop"), PODS),
    st.tuples(st.just("foreign"), PODS, INDEXES, st.integers(1, 3)),
    st.tuples(st.just("slow"), PODS, INDEXES),
    st.tuples(st.just("fast"), PODS),
)


def happen(model: Model, operators: list[Operator], event: tuple[object, ...]) -> None:
    kind, subject, *rest = event
    if isinstance(subject, int):
        operator = operators[subject]
        if kind == "plan":
            operator.replan()
        elif kind == "act":
            operator.act()
        elif kind == "finish":
            while operator.todo:
                operator.act()
        elif kind == "crash":
            operators[subject] = Operator(model, token=max(each.token for each in operators) + 1)
        return
    assert isinstance(subject, str)
    pod = model.running[subject]
    if kind == "restart":
        model.restart(subject)
    elif kind == "stop":
        model.stop(subject)
    elif kind == "slow":
        pod.slow.update(index for index in rest if isinstance(index, int))
    elif kind == "fast":
        finish_loads(pod)
    elif kind == "foreign":
        index, ahead = rest
        assert isinstance(index, int)
        assert isinstance(ahead, int)
        if index in pod.volume.replicas and pod.volume.replicas[index].used:
            pod.promise_elsewhere(index, pod.volume.replicas[index].promised + ahead)


def finish_loads(pod: object) -> None:
    from tests.unit.podapi.fake_pod import FakePod

    assert isinstance(pod, FakePod)
    pod.slow.clear()
    for index in [*pod.volume.replicas]:
        pod.finish_loading(index)


@pytest.mark.long
@settings(max_examples=300)
@given(st.lists(EVENTS, max_size=120))
def test_two_operators_interleaved_with_faults_keep_the_rules_and_converge(events: list[tuple[object, ...]]) -> None:
    model = Model()
    operators = [Operator(model, token=1), Operator(model, token=2)]
    for event in events:
        happen(model, operators, event)
    for name in model.running:
        if name in model.down:
            model.restart(name)
        finish_loads(model.running[name])
    Operator(model, token=99).settle()
    assert model.all_led
    for partition in model.objects.values():
        leader = model.running[partition.status.leader or ""]
        status = next(each for each in leader.partitions() if each.partition == partition.spec.index)
        assert (status.state, status.leader_epoch) == (ShardState.ACTIVE, partition.status.epoch)
    for pod in model.running.values():
        assert len(pod.accepted) == len(set(pod.accepted))


@settings(max_examples=100)
@given(st.sets(PODS, min_size=1))
def test_partitions_of_pods_that_are_down_are_leaderless_and_nobody_else_gets_them(down: set[str]) -> None:
    model = Model()
    operator = Operator(model)
    operator.settle()
    holders = {name: each.status.replicas for name, each in model.objects.items()}
    for name in down:
        model.stop(name)
    operator.settle()
    for name, partition in model.objects.items():
        expected = PartitionState.LEADERLESS if partition.status.leader in down else PartitionState.LED
        assert partition.status.state is expected
        assert partition.status.replicas == holders[name]
