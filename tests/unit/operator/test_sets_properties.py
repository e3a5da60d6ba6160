"""What must hold of plans for sets of several replicas, whatever happens between their actions.

`Model.record` asserts at each record that epochs never fall, that no epoch is issued to two pods, and that a set is
replaced only with the old one named next to it, or by what a log says. `FakePod` keeps the protocol's own rules.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.operator.fakes import topic
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_planner_properties import finish_loads

from muster_operator.api.models import LeadershipRecord, PartitionState
from muster_operator.plan.actions import CreateReplicas, Elect, RecordLeadership, RemoveReplicas, WritePartitionStatus
from muster_operator.plan.partition_view import log_ids

FACTORS: tuple[Literal[3, 5], ...] = (3, 5)


def made(factor: Literal[1, 3, 5] = 3, pods: int = 3, partitions: int = 4) -> Model:
    model = Model(pods=pods, partitions=partitions, replication_factor=factor)
    Operator(model).settle()
    assert model.all_led
    return model


def leaders(model: Model) -> Counter[str]:
    return Counter(each.status.leader or "" for each in model.objects.values())


def logs_are_whole(model: Model) -> None:
    """Every replica of every recorded set is there, follows, and the log names this very set. There is no other log."""
    for each in model.objects.values():
        status, index = each.status, each.spec.index
        assert (status.previous_replicas, status.learners, status.left) == ((), (), ())
        held = [model.running[replica.pod].volume.replicas[index] for replica in status.replicas]
        assert [one.log_id for one in held] == [replica.log_id for replica in status.replicas]
        assert {(set(one.replicas) == {h.log_id for h in held}, one.previous) for one in held} == {(True, ())}
        assert len({(one.last_epoch, one.end_offset) for one in held}) == 1
        assert status.following == len(held)
        assert sum(index in pod.volume.replicas for pod in model.running.values()) == len(held)


@pytest.mark.parametrize("factor", FACTORS)
def test_first_election_opens_one_set_of_all_replicas_and_spreads_the_leaders(factor: Literal[3, 5]) -> None:
    model = made(factor, pods=factor, partitions=2 * factor)
    logs_are_whole(model)
    assert set(leaders(model).values()) == {2}
    assert {each.status.epoch for each in model.objects.values()} == {0}
    assert Operator(model, token=2).replan()[0].__class__.__name__ == "PublishMetadata"


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_start_that_is_interrupted_after_any_action_and_begun_anew_converges(after: int) -> None:
    model = Model(replication_factor=3)
    first = Operator(model)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    Operator(model, token=2).settle()
    assert model.all_led
    logs_are_whole(model)


def test_pod_that_dies_loses_its_partitions_to_the_others_evenly_in_one_plan() -> None:
    model = made(partitions=24)
    model.stop("c-0")
    operator = Operator(model, token=2)
    elections = [action for action in operator.replan() if isinstance(action, Elect)]
    assert Counter(each.pod for each in elections) == {"c-1": 4, "c-2": 4}, (
        "all of them, however many moves may be made"
    )
    assert not any(each.force for each in elections)
    operator.settle()
    assert model.all_led
    assert leaders(model) == {"c-1": 12, "c-2": 12}


def test_partitions_go_back_to_their_preferred_leader_one_epoch_higher_each_time() -> None:
    model = made(partitions=6)
    model.stop("c-0")
    Operator(model, token=2).settle()
    model.restart("c-0")
    Operator(model, token=3).settle()
    assert set(leaders(model).values()) == {2}
    assert sorted(each.status.epoch for each in model.objects.values()) == [0, 0, 0, 0, 2, 2]
    logs_are_whole(model)


def test_majority_that_is_away_leaves_partitions_leaderless_and_calls_nobody() -> None:
    model = made()
    model.stop("c-0")
    model.stop("c-1")
    operator = Operator(model, token=2)
    assert not any(isinstance(action, Elect) for action in operator.replan())
    operator.settle()
    lost = [each.status for each in model.objects.values() if each.status.leader != "c-2"]
    assert {(each.state, each.reason) for each in lost} == {(PartitionState.LEADERLESS, "NoMajority")}
    model.restart("c-1")
    Operator(model, token=3).settle()
    assert model.all_led


def test_lost_volume_is_replaced_on_the_same_pod_by_a_change_of_the_set() -> None:
    model = made()
    before = {name: each.status.replicas for name, each in model.objects.items()}
    model.lose_volume("c-1")
    Operator(model, token=2).settle()
    assert model.all_led
    logs_are_whole(model)
    for name, each in model.objects.items():
        assert [one.pod for one in each.status.replicas] == [one.pod for one in before[name]], "the first is preferred"
        assert len({one.log_id for one in each.status.replicas} & {one.log_id for one in before[name]}) == 2
    model.steady_s = 600.0
    Operator(model, token=3).settle()
    assert max(leaders(model).values()) - min(leaders(model)[pod] for pod in ("c-0", "c-1", "c-2")) <= 1


def test_lost_volume_with_a_pod_to_spare_moves_nothing_else() -> None:
    model = made(pods=4)
    before = {name: each.status.replicas for name, each in model.objects.items()}
    model.lose_volume("c-1")
    operator = Operator(model, token=2)
    created = [each for _ in range(30) for each in steps(operator) if isinstance(each, CreateReplicas)]
    assert {each.pod for each in created} == {"c-1"}
    logs_are_whole(model)
    untouched = [name for name, replicas in before.items() if "c-1" not in {one.pod for one in replicas}]
    assert untouched
    assert all(model.objects[name].status.replicas == before[name] for name in untouched)


def steps(operator: Operator) -> tuple[object, ...]:
    actions = operator.replan()
    while operator.todo:
        operator.act()
    return actions


@pytest.mark.parametrize("after", range(0, 90, 4))
def test_replacement_interrupted_after_any_action_goes_on_and_ends_in_one_set(after: int) -> None:
    model = made(partitions=2)
    model.lose_volume("c-1")
    first = Operator(model, token=2)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    Operator(model, token=3).settle()
    assert model.all_led
    logs_are_whole(model)


def test_both_sets_are_named_until_the_log_says_that_the_new_one_is_final() -> None:
    model = made(5, pods=5, partitions=1)
    for pod in model.running.values():
        pod.slow_sets.add(0)
    leader = model.objects["t-0"].status.leader
    lost = next(name for name in model.running if name != leader)
    model.lose_volume(lost)
    model.running[lost].slow_sets.add(0)
    operator = Operator(model, token=2)
    operator.settle()
    changing = model.objects["t-0"].status
    assert changing.state is PartitionState.LED
    assert len(changing.previous_replicas) == 5
    model.stop(changing.leader or "")  # a failover in between names both
    elections = [action for action in Operator(model, token=3).replan() if isinstance(action, Elect)]
    assert {len(each.previous_replicas) for each in elections} == {5}
    model.restart(changing.leader or "")
    for pod in model.running.values():
        pod.slow_sets.clear()
    Operator(model, token=4).settle()
    for pod in model.running.values():
        pod.finish_sets(0)
    Operator(model, token=5).settle()
    logs_are_whole(model)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 5), (5, 3)])
def test_another_replication_factor_changes_every_set(before: Literal[1, 3, 5], after: Literal[1, 3, 5]) -> None:
    model = made(before, pods=5)
    model.topic = topic(model.partitions, replication_factor=after)
    Operator(model, token=2).settle(60)
    assert model.all_led
    logs_are_whole(model)
    assert {len(each.status.replicas) for each in model.objects.values()} == {after}


@pytest.mark.parametrize("after", range(0, 60, 3))
def test_shrinking_interrupted_after_any_action_leaves_no_log_behind(after: int) -> None:
    model = made(3, partitions=2)
    model.topic = topic(model.partitions, replication_factor=1)
    first = Operator(model, token=2)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    Operator(model, token=3).settle(60)
    assert model.all_led
    logs_are_whole(model)


def test_log_that_is_to_be_deleted_is_no_new_replica_however_caught_up_it_looks() -> None:
    """A pod's status may be older than the deletion, and what the leader says of its followers too."""
    model = made(3, partitions=1)
    model.topic = topic(model.partitions, replication_factor=1)
    operator = Operator(model, token=2)
    while not any(isinstance(action, RemoveReplicas) for action in operator.todo):
        operator.act()
        if not operator.todo:
            operator.replan()
    left = {each.log_id for each in model.objects["t-0"].status.left}
    assert len(left) == 2
    model.topic = topic(model.partitions, replication_factor=3)
    for action in Operator(model, token=3).replan():
        assert not isinstance(action, Elect)
        if isinstance(action, RecordLeadership):
            entry = LeadershipRecord.parse(action.leaderships["0"])
            assert not left.intersection(log_ids((*entry.learners, *entry.replicas)))
    Operator(model, token=4).settle(60)
    assert model.all_led
    logs_are_whole(model)


def test_change_whose_new_replicas_are_lost_before_any_log_names_it_is_taken_back() -> None:
    model = made(1, pods=3, partitions=1)
    model.topic = topic(model.partitions, replication_factor=3)
    operator = Operator(model, token=2)
    while not model.recorded("t-0").previous_replicas:
        if not operator.todo:
            operator.replan()
        operator.act()
    status = model.recorded("t-0")  # and the operator dies before the election
    (leader,) = (each.pod for each in status.previous_replicas)
    for name in sorted(model.running):
        if name != leader:
            model.lose_volume(name)
    model.restart(leader)
    Operator(model, token=3).settle(60)
    assert model.all_led
    logs_are_whole(model)
    assert len(model.objects["t-0"].status.replicas) == 3


def test_log_of_a_pod_that_is_away_while_it_leaves_its_set_is_deleted_when_it_is_back() -> None:
    model = made(3, pods=4, partitions=4)
    away = "c-1"
    model.stop(away)
    model.steady_s = 601.0
    Operator(model, token=2).settle(60)
    left = {name: each.status.left for name, each in model.objects.items() if each.status.left}
    assert left
    assert {one.pod for each in left.values() for one in each} == {away}
    model.steady_s = 0.0
    model.restart(away)
    Operator(model, token=3).settle(60)
    logs_are_whole(model)


def test_leader_whose_replica_needs_a_higher_epoch_is_elected_again_with_force() -> None:
    model = made(partitions=1)
    leader = model.objects["t-0"].status.leader or ""
    other = next(name for name in model.running if name != leader)
    replica = model.running[other].volume.replicas[0]
    replica.promised, replica.leader = 7, "somebody"
    operator = Operator(model, token=2)
    (election,) = [action for action in operator.replan() if isinstance(action, Elect)]
    assert (election.pod, election.epoch, election.force) == (leader, 8, True)
    operator.settle()
    logs_are_whole(model)


def test_higher_epoch_of_a_leader_that_nominated_itself_is_adopted() -> None:
    model = made(partitions=1)
    status = model.objects["t-0"].status
    other = next(replica.pod for replica in status.replicas if replica.pod != status.leader)
    ids = tuple(replica.log_id for replica in status.replicas)
    nominated = Elect("t-0", 0, other, 5, ids, force=True)
    model.steady_s = 0.0
    outside = Operator(model, token=2)
    outside._elect(nominated)
    (record,) = [action for action in Operator(model, token=3).replan() if isinstance(action, WritePartitionStatus)]
    assert (record.status.leader, record.status.epoch, record.status.state) == (other, 5, PartitionState.LED)


def test_sets_that_the_log_names_win_over_the_record() -> None:
    model = made(pods=4, partitions=1)
    [name] = model.objects
    each = model.objects[name]
    wrong = tuple(replace(one, log_id=f"wrong-{one.log_id}") for one in each.status.replicas[2:])
    model.loss_allowed = True  # somebody restored an old record
    status = replace(each.status, replicas=(*each.status.replicas[:2], *wrong), leader=None, epoch=0)
    model.put(name, status)
    for pod in [*model.running]:
        model.restart(pod)
    Operator(model, token=2).settle(40)
    assert model.all_led
    logs_are_whole(model)
    assert {one.log_id for one in model.objects[name].status.replicas} == {one.log_id for one in each.status.replicas}


def test_better_log_is_elected_when_the_pod_that_was_called_names_it() -> None:
    model = made(partitions=1)
    status = model.objects["t-0"].status
    leader = status.leader or ""
    first, second = (replica.pod for replica in status.replicas if replica.pod != leader)
    model.running[second].volume.replicas[0].end_offset += 5  # too few to be seen in a status
    model.stop(leader)
    operator = Operator(model, token=2)
    operator.settle()
    assert model.objects["t-0"].status.leader == second
    assert [each.epoch for each in model.running[first].elections[-1:]] == [1]
    assert model.objects["t-0"].status.epoch == 2


def test_pod_that_cannot_write_is_passed_over_for_another_one() -> None:
    model = made(partitions=2)
    model.running["c-1"].full = True
    model.stop("c-0")
    Operator(model, token=2).settle()
    assert {each.status.leader for each in model.objects.values()} <= {"c-1", "c-2"}
    assert model.all_led


def test_draining_pod_hands_over_before_it_resigns() -> None:
    model = made(partitions=3)
    model.running["c-0"].drained = True
    operator = Operator(model, token=2)
    elections = [action for action in operator.replan() if isinstance(action, Elect)]
    assert [(each.resign, each.force, each.epoch) for each in elections] == [("c-0", True, 1)]
    operator.settle()
    assert model.all_led
    assert "c-0" not in leaders(model)
    assert not model.running["c-0"]._led


# Two operators, crashes, losses: at most a minority of the volumes is lost


EVENTS = st.one_of(
    st.tuples(st.just("plan"), st.integers(0, 1)),
    st.tuples(st.just("act"), st.integers(0, 1)),
    st.tuples(st.just("act"), st.integers(0, 1)),
    st.tuples(st.just("act"), st.integers(0, 1)),
    st.tuples(st.just("finish"), st.integers(0, 1)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.integers(0, 3)),
    st.tuples(st.just("stop"), st.integers(0, 3)),
    st.tuples(st.just("drain"), st.integers(0, 3)),
    st.tuples(st.just("foreign"), st.integers(0, 3)),
    st.tuples(st.just("slow"), st.integers(0, 3)),
    st.tuples(st.just("fast"), st.integers(0, 3)),
)


def happen(model: Model, operators: list[Operator], kind: str, number: int) -> None:
    name = f"c-{number}"
    match kind:
        case "plan":
            operators[number].replan()
        case "act":
            operators[number].act()
        case "finish":
            while operators[number].todo:
                operators[number].act()
        case "crash":
            operators[number] = Operator(model, token=max(each.token for each in operators) + 1)
        case "restart":
            model.restart(name)
        case "stop":
            model.stop(name)
        case "drain":
            model.running[name].drained = True
        case "foreign":
            for index, replica in model.running[name].volume.replicas.items():
                if replica.used and name not in model.down:
                    model.running[name].promise_elsewhere(index, replica.promised + 2)
        case "slow":
            model.running[name].slow_sets.update(range(model.partitions))
        case "fast":
            finish_loads(model.running[name])
            for index in range(model.partitions):
                model.running[name].finish_sets(index)


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(EVENTS, max_size=80), st.integers(0, 80), st.integers(0, 3))
def test_two_operators_with_crashes_and_a_lost_volume_keep_the_rules_and_converge(
    events: list[tuple[str, int]], loss_at: int, victim: int
) -> None:
    model = Model(pods=4, partitions=3, replication_factor=3)
    operators = [Operator(model, token=1), Operator(model, token=2)]
    operators[0].settle()
    for at, (kind, number) in enumerate(events):
        if at == loss_at:
            model.lose_volume(f"c-{victim}")
        happen(model, operators, kind, number)
    for name in [*model.running]:
        model.restart(name)
        happen(model, operators, "fast", int(name[-1]))
    last = Operator(model, token=99)
    last.settle(80)
    assert model.all_led
    logs_are_whole(model)
    assert last.replan() == ()
    assert set(leaders(model)) <= {
        replica.pod for each in model.objects.values() for replica in each.status.replicas[:1]
    }
