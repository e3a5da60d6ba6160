"""Re-shards, whatever happens between the actions of two operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_coordinator.states import ShardState
from muster_operator.api.conditions import ConditionType, find_condition
from muster_operator.api.models import Layout, PartitionState, ReshardPhase, ReshardStatus
from muster_operator.plan.actions import CreatePartitions, RecordReshard, SetFences
from muster_operator.plan.reshard import indexes, is_retired

OLD, NEW = 4, 3
BEYOND_RETURN = (ReshardPhase.OPENING, ReshardPhase.DONE)


@dataclass
class Town:
    """A model with clients, which commit wherever the layout that they know lets them, and `muster reshard`."""

    model: Model = field(default_factory=lambda: Model(partitions=OLD, replication_factor=3))
    acknowledged: Counter[int] = field(default_factory=Counter)  # by partition
    copied: dict[int, Counter[int]] = field(default_factory=dict)  # by re-shard: what was there when it was read
    layouts: list[range] = field(default_factory=list)

    def __post_init__(self) -> None:
        Operator(self.model).settle()

    @property
    def reshard(self) -> ReshardStatus:
        assert self.model.topic.status.reshard is not None
        return self.model.topic.status.reshard

    def open(self, index: int) -> bool:
        """Some pod answers clients for the partition."""
        views = [
            self.model.view(name).replicas.get(index) for name in self.model.running if name not in self.model.down
        ]
        return any(view is not None and view.state is ShardState.ACTIVE for view in views)

    def clients(self) -> None:
        """Of any layout that a pod may still know."""
        current = self.model.topic.layout.indexes
        if current not in self.layouts:
            self.layouts.append(current)
        for index in {each for layout in self.layouts for each in layout}:
            if self.open(index):
                assert index in current, f"{index} serves, and {current} are the partitions"
                self.acknowledged[index] += 1

    def command(self, share: int | None = None) -> None:
        """Read the old logs once, then fill some of the new ones, as long as it sees Copying."""
        reshard = self.model.topic.status.reshard
        if reshard is None or reshard.phase is not ReshardPhase.COPYING:
            return
        self.copied.setdefault(reshard.base, self.acknowledged.copy())
        for index in reshard.layout.indexes[:share]:
            for name, pod in self.model.running.items():
                if name not in self.model.down:
                    pod.fill(index, reshard.base)

    def check(self) -> None:
        """What the new partitions have is all that the old ones ever acknowledged."""
        reshard = self.model.topic.status.reshard
        if reshard is not None and reshard.phase in BEYOND_RETURN:
            old = [each for each in self.acknowledged if each < reshard.base]
            assert {each: self.acknowledged[each] for each in old} == {
                each: self.copied[reshard.base][each] for each in old
            }, "an acknowledged commit is not in the new partitions"


def settled(town: Town, operator: Operator) -> None:
    """No more faults: everything ends."""
    for _ in range(5):
        operator.settle()
        town.command()
        town.check()
    town.clients()


def test_reshard_step_by_step() -> None:
    town = Town()
    operator = Operator(town.model, token=2)
    town.clients()
    town.model.ask(NEW)
    seen = []
    for _ in range(200):
        actions = operator.replan()
        seen.append(town.model.topic.status.reshard)
        if not actions:
            town.command()
            if not operator.replan():
                break
        while operator.todo:
            operator.act()
            town.clients()
            town.check()
    phases = list(dict.fromkeys(each.phase for each in seen if each is not None))
    assert phases == ["Preparing", "Fencing", "Copying", "Opening", "Done"]
    assert town.model.topic.layout == Layout(OLD, NEW)
    states = {index: town.model.objects[f"t-{index}"].status.state for index in range(OLD + NEW)}
    assert states == dict.fromkeys(range(OLD), PartitionState.RETIRED) | dict.fromkeys(
        range(OLD, OLD + NEW), PartitionState.LED
    )
    assert all(town.open(index) == (index >= OLD) for index in states)
    image = operator.image
    assert image is not None
    assert (image.offsets_base, len(image.leaders)) == (OLD, NEW)


def test_new_partitions_open_in_epochs_above_all_of_the_old_ones() -> None:
    """Also above those of elections that came after the new ones had theirs."""
    town = Town()
    operator = Operator(town.model, token=2)
    town.model.put("t-1", replace(town.model.recorded("t-1"), epoch=40))
    town.model.ask(NEW)
    operator.settle()
    assert (town.reshard.phase, town.reshard.epoch) == (ReshardPhase.COPYING, 40)
    led = [town.model.recorded(f"t-{index}").epoch for index in range(OLD, OLD + NEW)]
    assert min(led) > 40
    late = replace(town.reshard, epoch=77)
    town.model.topic = replace(town.model.topic, status=replace(town.model.topic.status, reshard=late))
    town.command()
    assert not any(isinstance(each, RecordReshard) for each in operator.replan()), "complete, and not above"
    settled(town, operator)
    assert town.reshard.phase is ReshardPhase.DONE
    assert min(town.model.recorded(f"t-{index}").epoch for index in range(OLD, OLD + NEW)) > 77


def test_conditions_say_how_far_it_is() -> None:
    town = Town()
    operator = Operator(town.model, token=2)
    town.model.ask(NEW)
    operator.settle()
    ready = find_condition(town.model.topic.status.conditions, ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "ReshardCopying")
    assert "0 of 3 new partitions are complete" in ready.message
    settled(town, operator)
    ready = find_condition(town.model.topic.status.conditions, ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "AllPartitionsLed")


def test_nothing_is_closed_while_a_pod_is_away() -> None:
    town = Town()
    town.model.stop("c-2")
    operator = Operator(town.model, token=2)
    town.model.ask(NEW)
    operator.settle()
    assert town.reshard.phase is ReshardPhase.PREPARING
    assert all(map(town.open, range(OLD)))
    town.model.restart("c-2")
    settled(town, operator)
    assert town.reshard.phase is ReshardPhase.DONE


@pytest.mark.parametrize("wanted", [None, OLD])
def test_so_many_partitions_as_there_are_is_no_reshard(wanted: int | None) -> None:
    town = Town()
    town.model.ask(wanted)
    assert not any(
        isinstance(each, RecordReshard | SetFences | CreatePartitions)
        for each in Operator(town.model, token=2).replan()
    )


def test_what_was_taken_back_is_not_begun_again_before_the_topic_changes() -> None:
    town = Town()
    operator = Operator(town.model, token=2)
    town.model.ask(NEW)
    operator.settle()
    town.model.objects["t-0"]  # an old partition loses its fence: somebody had the loss of data allowed
    for pod in town.model.running.values():
        pod.volume.replicas[0].fence = None
    operator.settle()
    assert town.reshard.phase is ReshardPhase.ABORTED
    assert all(map(town.open, range(OLD)))
    town.command()
    operator.settle()
    assert town.reshard.phase is ReshardPhase.ABORTED
    town.model.ask(NEW)
    settled(town, operator)
    assert (town.reshard.phase, town.reshard.base) == (ReshardPhase.DONE, OLD + NEW)


def test_indexes_are_never_given_twice() -> None:
    town = Town()
    operator = Operator(town.model, token=2)
    bases = []
    for partitions in (NEW, 5, OLD):
        town.model.ask(partitions)
        settled(town, operator)
        bases.append(town.model.topic.layout)
    assert bases == [Layout(4, 3), Layout(7, 5), Layout(12, 4)]
    assert indexes(town.model.topic) == (12, 13, 14, 15)
    assert [is_retired(town.model.topic, index) for index in (0, 11, 12, 15, 16)] == [True, True, False, False, False]


def test_logs_of_retired_partitions_go_when_a_person_deletes_these_and_not_before() -> None:
    town = Town()
    operator = Operator(town.model, token=2)
    town.model.ask(NEW)
    settled(town, operator)
    held = [set(pod.volume.replicas) for pod in town.model.running.values()]
    assert held == [set(range(OLD + NEW))] * 3
    for pod in town.model.running.values():  # as a pod does when it hears of the new layout
        for index in range(OLD):
            pod._step_down(index)
    del town.model.objects["t-1"]
    operator.settle()
    held = [set(pod.volume.replicas) for pod in town.model.running.values()]
    assert held == [set(range(OLD + NEW)) - {1}] * 3


STEPS = st.lists(
    st.sampled_from(["act 0", "act 1", "plan 0", "plan 1", "clients", "read", "fill", "ask", "back", "stop", "start"]),
    max_size=60,
)


@pytest.mark.long
@settings(max_examples=150)
@given(STEPS, st.integers(0, 2))
def test_two_operators_stop_anywhere_and_nothing_acknowledged_is_lost(steps: list[str], victim: int) -> None:
    town = Town()
    model, name = town.model, f"c-{victim}"
    operators = [Operator(model, token=2), Operator(model, token=3)]
    model.ask(NEW)
    for step in steps:
        kind, _, number = step.partition(" ")
        match kind:
            case "act":
                for _ in range(7):
                    operators[int(number)].act()
            case "plan":
                operators[int(number)].replan()
            case "clients":
                town.clients()
            case "read":
                town.command(0)
            case "fill":
                town.command()
            case "ask":
                model.ask(NEW)
            case "back":
                model.ask(None)
            case "stop":
                model.stop(name)
            case "start":
                model.restart(name)
        town.check()
    model.restart(name)
    for late in operators:  # what an operator that was overtaken still does
        while late.todo:
            late.act()
        town.clients()
        town.check()
    settled(town, Operator(model, token=4))
    wanted = model.topic.spec.reshard
    expected = OLD if wanted is None and model.topic.layout.base == 0 else NEW
    assert len(model.topic.layout.indexes) == expected
    assert all(map(town.open, model.topic.layout.indexes))


def test_the_test_would_notice_an_old_partition_that_serves_too_long() -> None:
    town = Town()
    operator = Operator(town.model, token=2)
    town.clients()
    town.model.ask(NEW)
    operator.settle()
    town.command()
    town.acknowledged[0] += 1
    operator.settle()
    with pytest.raises(AssertionError, match="not in the new partitions"):
        town.check()
    status = replace(town.reshard, phase=ReshardPhase.DONE)
    assert status.layout == Layout(OLD, NEW)


def test_reshard_that_is_asked_for_while_no_pod_answers_begins_with_the_next_free_number() -> None:
    model = Model(partitions=2)
    Operator(model).settle()
    for name in [*model.running]:
        model.stop(name)
    model.ask(3)
    Operator(model, token=2).settle()
    assert model.topic.status.reshard is not None
    assert model.topic.status.reshard.base == 2
