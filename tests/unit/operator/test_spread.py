"""Pods that were added take their share of replicas and leaders, and then nothing moves any more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as with_fields
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator
from tests.unit.podapi.fake_pod import FakePod

from muster_operator.api.conditions import Condition, find_condition
from muster_operator.api.models import OffsetsPartition, PartitionState, Replica
from muster_operator.kube.events import rebalance_news
from muster_operator.plan.actions import Elect, WriteClusterStatus
from muster_operator.plan.observation import Connection, PodView
from muster_operator.plan.planner import plan
from muster_operator.plan.spread import MOST_AT_ONCE, firsts, shares


def grown(factor: Literal[1, 3, 5], before: int, after: int, partitions: int = 12, rebalance: str = "Auto") -> Model:
    model = Model(pods=before, partitions=partitions, replication_factor=factor)
    Operator(model).settle()
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, pods=after, rebalance=rebalance))
    for number in range(before, after):
        model.running[f"c-{number}"] = FakePod(f"c-{number}", number, net=model.net)
    return model


def held(model: Model) -> Counter[str]:
    return Counter(each.pod for one in model.objects.values() for each in one.status.replicas)


def led(model: Model) -> Counter[str]:
    return Counter(one.status.leader or "" for one in model.objects.values())


def differ(counts: Counter[str], pods: int) -> int:
    numbers = [counts[f"c-{number}"] for number in range(pods)]
    return max(numbers) - min(numbers)


SCALES: tuple[tuple[Literal[1, 3, 5], int, int], ...] = ((3, 3, 5), (1, 3, 5), (3, 3, 4), (5, 5, 6))


@pytest.mark.parametrize(("factor", "before", "after"), SCALES)
def test_added_pods_get_their_share_of_replicas_and_leaders(factor: Literal[1, 3, 5], before: int, after: int) -> None:
    model = grown(factor, before, after)
    Operator(model, token=2).settle(400)
    assert model.all_led
    assert differ(held(model), after) <= 1
    assert differ(led(model), after) <= 1
    assert Operator(model, token=3).replan()[1:] == (), "what is even stays as it is; a new operator has a new image"


def test_added_pods_get_their_share_after_a_reshard_too() -> None:
    """The status of the topic names the last re-shard for ever."""
    model = Model(pods=3, partitions=2, replication_factor=3)
    Operator(model).settle()
    model.ask(6)
    Operator(model, token=2).settle(60)
    for pod in model.running.values():
        for index in range(2, 8):
            pod.fill(index, 2)
    Operator(model, token=3).settle(60)
    assert model.topic.status.reshard is not None
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, pods=5, rebalance="Auto"))
    for number in (3, 4):
        model.running[f"c-{number}"] = FakePod(f"c-{number}", number, net=model.net)
    Operator(model, token=4).settle(400)
    serving = [one.status for one in model.objects.values() if one.status.state is PartitionState.LED]
    assert len(serving) == 6
    counts = Counter(each.pod for status in serving for each in status.replicas)
    assert differ(counts, 5) <= 1


def test_nothing_moves_unless_it_is_asked_for() -> None:
    model = grown(3, 3, 5, rebalance="Manual")
    Operator(model, token=2).settle()
    assert not {"c-3", "c-4"} & held(model).keys()


def test_few_move_at_a_time_and_no_partition_is_without_its_copies_or_not_ready() -> None:
    model = grown(3, 3, 5)
    operator = Operator(model, token=2)
    for _ in range(400):
        if not operator.replan():
            break
        elections = [each for each in operator.todo if isinstance(each, Elect)]
        assert all(each.force for each in elections), "no partition is without a leader"
        while operator.todo:
            operator.act()
        statuses = [each.status for each in model.objects.values()]
        assert sum(bool(each.learners) for each in statuses) <= MOST_AT_ONCE
        assert all(len(each.replicas) == 3 for each in statuses)
        assert PartitionState.LEADERLESS not in {each.state for each in statuses}
    assert differ(held(model), 5) <= 1


@pytest.mark.parametrize("after", range(1, 120, 9))
def test_another_operator_goes_on_after_any_action(after: int) -> None:
    model = grown(3, 3, 5, partitions=6)
    first = Operator(model, token=2)
    for _ in range(after):
        if not first.todo and not first.replan():
            break
        first.act()
    Operator(model, token=3).settle(400)
    assert model.all_led
    assert differ(held(model), 5) <= 1
    assert all(len(each.status.replicas) == each.status.following == 3 for each in model.objects.values())


def test_topic_stays_ready_and_the_partition_says_what_happens() -> None:
    model = grown(3, 3, 5)
    operator = Operator(model, token=2)
    said = set()
    for _ in range(6):
        operator.replan()
        while operator.todo:
            operator.act()
        for each in model.objects.values():
            ready = find_condition(each.status.conditions, "Ready")
            said |= {ready.message.partition("; ")[2]} if ready is not None else set()
    assert any("gets a replica" in text for text in said)


def rebalancing(model: Model) -> Condition | None:
    return find_condition(model.cluster.status.conditions, "Rebalancing")


def test_moves_that_go_on_or_wait_are_told_until_all_is_even() -> None:
    model = grown(1, 3, 4, partitions=8)
    operator = Operator(model, token=2)
    seen = operator.observe()
    young = with_fields(seen, pods=tuple(with_fields(pod, steady_s=0.0) for pod in seen.pods))
    (status,) = (each.status for each in plan(young, 1.0) if isinstance(each, WriteClusterStatus))
    deferred = find_condition(status.conditions, "Rebalancing")
    assert deferred is not None
    assert (deferred.reason, "to c-3" in deferred.message) == ("RebalanceDeferred", True)

    told = set()
    for _ in range(400):
        if not operator.replan():
            break
        while operator.todo:
            operator.act()
        if (now := rebalancing(model)) is not None:
            told.add(now.reason)
    assert told == {"MovingReplicas"}
    assert rebalancing(model) is None


def test_event_tells_that_moves_begin_wait_and_are_over() -> None:
    ready = Condition("Ready", "True", "AllPartitionsLed", "all led")
    moving = Condition("Rebalancing", "True", "MovingReplicas", "moves now")
    waits = Condition("Rebalancing", "True", "RebalanceDeferred", "waits")
    assert rebalance_news((ready,), (ready, moving)) == moving
    assert rebalance_news((ready, moving), (ready, moving)) is None
    assert rebalance_news((ready, moving), (ready, waits)) == waits
    done = rebalance_news((ready, moving), (ready,))
    assert done is not None
    assert done.reason == "Rebalanced"
    not_ready = Condition("Ready", "False", "Suspended", "")
    assert rebalance_news((ready, moving), (not_ready,)) is None, "nobody looks any more"


def test_partitions_that_a_person_has_placed_stay() -> None:
    model = grown(3, 3, 5, partitions=3)
    for name, each in model.objects.items():
        pods = tuple(one.pod for one in each.status.replicas)
        model.objects[name] = replace(each, spec=replace(each.spec, replicas=pods))
    before = held(model)
    Operator(model, token=2).settle(100)
    assert held(model) == before


# The numbers alone: replicas that move at once, without pods


def views(zones: list[int]) -> list[PodView]:
    return [
        PodView(f"c-{number}", number, Connection.UP, node=f"n-{number}", zone=f"z-{zone}")
        for number, zone in enumerate(zones)
    ]


@pytest.mark.long
@settings(max_examples=200)
@given(st.data(), st.lists(st.integers(0, 2), min_size=3, max_size=7), st.integers(1, 30))
def test_moves_come_to_an_end_make_everything_more_equal_and_keep_the_zones(
    data: st.DataObject, zones: list[int], count: int
) -> None:
    pods = views(zones)
    model = Model(pods=len(pods), partitions=count, replication_factor=3)
    model.create(tuple(range(count)))
    parts: dict[int, OffsetsPartition] = {}
    for each in model.objects.values():
        chosen = data.draw(st.permutations(range(len(pods))))[:3]
        parts[each.spec.index] = on(each, [f"c-{number}" for number in chosen])
    copies = dict.fromkeys(parts, 3)
    for _ in range(200):
        moves = shares(parts, pods, copies, begin=True)
        assert len(moves) <= MOST_AT_ONCE
        if not moves:
            break
        for index, move in moves.items():
            before = [one.pod for one in parts[index].status.replicas]
            after = [move.joins if pod == move.leaves else pod for pod in before]
            assert len(set(after)) == 3
            assert len({zones[int(pod[2:])] for pod in after}) >= len({zones[int(pod[2:])] for pod in before})
            parts[index] = on(parts[index], after)
    else:
        pytest.fail("no end")
    for _ in range(200):
        if not (chosen_first := firsts(parts, pods)):
            break
        for index, pod in chosen_first.items():
            names = [one.pod for one in parts[index].status.replicas]
            parts[index] = on(parts[index], [pod, *(name for name in names if name != pod)])
    else:
        pytest.fail("no end of leaders")


def on(each: OffsetsPartition, pods: list[str]) -> OffsetsPartition:
    replicas = tuple(Replica(pod, f"log-{each.spec.index}-{pod}") for pod in pods)
    status = replace(each.status, replicas=replicas, state=PartitionState.LED, following=3, leader=pods[0])
    return replace(each, status=status)
