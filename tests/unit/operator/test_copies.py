"""Sets and learners that would name one log twice: by copied volumes, or by records of before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_operator.api.conditions import ConditionType, Reason, find_condition
from muster_operator.api.models import PartitionState, Replica


@pytest.mark.parametrize("is_named", [True, False])
def test_learner_of_a_restored_record_that_is_in_the_set_by_now_is_not_added_again(is_named: bool) -> None:
    """Found by simulation, seed 1029: the next change named its log twice, and pods refused that for ever."""
    model = Model(pods=5, partitions=1, replication_factor=3)
    Operator(model).settle()
    before = model.recorded("t-0")
    lost = next(each.pod for each in before.replicas if each.pod != before.leader)
    model.lose_volume(lost)
    operator = Operator(model, token=2)
    learning = before
    while not any(each.log_id or not is_named for each in learning.learners):
        if not operator.todo:
            operator.replan()
        operator.act()
        learning = model.recorded("t-0")
    operator.settle()
    changed = model.recorded("t-0")
    (learner,) = learning.learners
    assert learner.pod in {each.pod for each in changed.replicas}
    model.put("t-0", learning)
    another = next(each.pod for each in changed.replicas if each.pod not in (changed.leader, learner.pod))
    model.lose_volume(another)
    Operator(model, token=3).settle()
    after = model.recorded("t-0")
    assert len({each.log_id for each in after.replicas}) == 3
    assert (after.state, after.following, after.learners) == (PartitionState.LED, 3, ())


@pytest.mark.parametrize("is_away", [False, True])
def test_copy_of_a_learners_volume_is_no_second_learner(is_away: bool) -> None:
    """Two replicas are lost. The log that takes the place of one is copied before the record names the other."""
    model = Model(pods=5, partitions=1, replication_factor=5)
    operator = Operator(model)
    operator.settle()
    before = model.recorded("t-0")
    one, other = [each.pod for each in before.replicas if each.pod != before.leader][:2]
    model.lose_volume(one)
    model.lose_volume(other)
    while not all(model.running[each].volume.replicas for each in (one, other)):
        if not operator.todo:
            operator.replan()
        operator.act()
    operator.todo.clear()
    model.running[other].volume.replicas[0] = model.running[one].volume.replicas[0]
    if is_away:
        learning = tuple(each.pod for each in model.recorded("t-0").learners)
        assert {*learning} == {one, other}
        copied = model.running[one].volume.replicas[0].log_id
        named = tuple(Replica(pod, copied if pod == one else "") for pod in learning)
        model.put("t-0", replace(model.recorded("t-0"), learners=named))
        model.stop(one)

    def check_rounds() -> None:
        for _ in range(10):
            operator.replan()
            while operator.todo:
                operator.act()
            status = model.recorded("t-0")
            named = [each.log_id for each in (*status.replicas, *status.learners) if each.log_id]
            assert len(named) == len({*named}), "a log is named twice"
        assert not operator.replan(), "a plan that repeats itself"

    check_rounds()
    if is_away:
        model.restart(one)
        check_rounds()
    told = find_condition(model.objects["t-0"].status.conditions, ConditionType.READY)
    assert told is not None
    assert (told.reason == Reason.DUPLICATE_LOG) is is_away, "only what is in the set keeps it from being led"
    assert "remove the volume that is a copy" in told.message
    model.lose_volume(other)
    Operator(model, token=3).settle()
    after = model.recorded("t-0")
    assert len({each.log_id for each in after.replicas}) == 5
    assert (after.state, after.following, after.learners) == (PartitionState.LED, 5, ())
