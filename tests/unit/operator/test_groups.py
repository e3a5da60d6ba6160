"""ConsumerGroups: when pods are asked to move a group, and what is said of where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import World, cluster, topic, world
from tests.unit.podapi.fake_server import eventually

from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.podapi.moves import MoveAnswer, MovesAnswer, MoveStatus, RoutedGroup
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.states import ShardState
from muster_operator.api.conditions import Condition, ConditionType, Reason, find_condition
from muster_operator.api.models import ConsumerGroup, CoordinatorCluster, Gateway, Upstream
from muster_operator.plan.actions import AskedMove, StartMoves, WriteGroupStatus
from muster_operator.plan.group_facts import AGAIN_S, GroupFacts, GroupMemory
from muster_operator.plan.groups import AT_ONCE
from muster_operator.plan.observation import CallKind, Connection, Observation, PodView
from muster_operator.plan.planner import plan

PARTITIONS = 6
UPSTREAM = Upstream("kafka:9092", served_groups=("m-",), movable_groups=("k-",))
KNOWN = GroupFacts(is_known=True)
HERE = GroupFacts(is_known=True, at_muster=True)


def group(
    name: str, coordinator: str = "Muster", created: str = "2026-01-01T00:00:00Z", of: str | None = None
) -> ConsumerGroup:
    """`of`: the id of the group; as its resource if it is not given."""
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1, "creationTimestamp": created}
    spec = {"clusterRef": {"name": "c"}, "group": of or name, "coordinator": coordinator}
    return msgspec.convert({"metadata": meta, "spec": spec}, ConsumerGroup)


def fronted(**spec: Any) -> CoordinatorCluster:
    return cluster(1, **{"upstream": UPSTREAM, "gateway": Gateway(), **spec})


def leader(active: bool = True) -> PodView:
    state = ShardState.ACTIVE if active else ShardState.LOADING
    replicas = {number: ReplicaStatus(number, state, epoch=1, leader_epoch=1) for number in range(PARTITIONS)}
    return PodView("c-0", 0, Connection.UP, replicas=replicas)


def seen(*groups: ConsumerGroup, facts: GroupFacts = KNOWN, **more: Any) -> Observation:
    given = {
        "cluster": fronted(),
        "topics": (topic(PARTITIONS),),
        "pods": (leader(),),
        "group_facts": {each.spec.group: facts for each in groups},
        **more,
    }
    return Observation("ns", "c", groups=groups, **given)


def written(observation: Observation) -> dict[str, ConsumerGroup]:
    """The objects as they are after the plan, by name."""
    after = {each.metadata.name: each for each in observation.groups or ()}
    for each in plan(observation, 0.0):
        if isinstance(each, WriteGroupStatus):
            after[each.seen.metadata.name] = replace(each.seen, status=each.status)
    return after


def condition(subject: ConsumerGroup, kind: ConditionType = ConditionType.READY) -> Condition | None:
    return find_condition(subject.status.conditions, kind)


def reason(observation: Observation, name: str = "k-orders") -> str:
    """The reason of the Ready condition; Reconciling and Stalled are as kstatus wants them."""
    subject = written(observation)[name]
    ready, moves, stalled = (
        condition(subject, kind) for kind in (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
    )
    assert ready is not None
    assert ready.observed_generation == subject.metadata.generation == subject.status.observed_generation
    assert (ready.status == "True") == (moves is None and stalled is None)
    assert moves is None or stalled is None
    return ready.reason


def asked(observation: Observation) -> list[str]:
    """Groups whose move is asked for."""
    starts = [each for each in plan(observation, 0.0) if isinstance(each, StartMoves)]
    return [one.group for each in starts for one in each.groups]


# -- when a move is asked for -----------------------------------------------------------------------------------------


def test_group_that_is_at_kafka_and_declared_here_is_moved_by_the_pod_that_leads_it() -> None:
    (start,) = (each for each in plan(seen(group("k-orders")), 0.0) if isinstance(each, StartMoves))
    assert start == StartMoves("c-0", (AskedMove("k-orders", back=False, generation=1),))


def test_group_that_is_here_and_declared_at_kafka_goes_back() -> None:
    observation = seen(group("k-orders", "Kafka"), facts=HERE)
    (start,) = (each for each in plan(observation, 0.0) if isinstance(each, StartMoves))
    assert start == StartMoves("c-0", (AskedMove("k-orders", back=True, generation=1),))
    assert reason(observation) == Reason.MOVE_WAITS
    back = with_fields(KNOWN, move=MoveStatus("k-orders", 0, "moved", "", 90, back=True))
    last = written(seen(group("k-orders", "Kafka"), facts=back))["k-orders"].status.last_move
    assert last is not None
    assert (last.to, last.done) == ("Kafka", True)


@pytest.mark.parametrize(
    "observation",
    [
        seen(group("m-orders", "Kafka")),
        seen(group("k-orders", "Kafka")),
        seen(group("k-orders"), facts=HERE),
        seen(group("k-orders"), facts=GroupFacts()),
        seen(group("k-orders"), facts=with_fields(KNOWN, is_due=False)),
        seen(group("k-orders"), facts=with_fields(KNOWN, move=MoveStatus("k-orders", 0, "draining", "", 1))),
        seen(group("m-orders")),
        seen(group("other")),
        seen(group("k-orders"), pods=(leader(active=False),)),
        seen(group("k-orders"), busy=frozenset({(CallKind.MOVE, "c-0")})),
        seen(group("k-orders"), gateway_waits="0 of 2 gateway pods are ready"),
        seen(group("k-orders"), cluster=fronted(suspend=True)),
        seen(group("k-orders"), cluster=fronted(upstream=None, gateway=None)),
        seen(group("k-orders"), cluster=None),
    ],
    ids=[
        "Muster's for good, and wanted at Kafka",
        "stays",
        "is here",
        "not known where",
        "not due",
        "is moving",
        "Muster's for good",
        "not movable",
        "no leader",
        "is being asked",
        "gateways have old settings",
        "suspended",
        "no upstream",
        "no cluster",
    ],
)
def test_no_move_is_asked_for(observation: Observation) -> None:
    assert asked(observation) == []


def test_few_move_at_a_time_those_under_way_included() -> None:
    groups = [group(f"k-{number}") for number in range(AT_ONCE + 3)]
    assert len(asked(seen(*groups))) == AT_ONCE
    moving = with_fields(KNOWN, move=MoveStatus("k-0", 0, "draining", "", 1))
    facts = {each.spec.group: moving if number < 2 else KNOWN for number, each in enumerate(groups)}
    assert len(asked(with_fields(seen(*groups), group_facts=facts))) == AT_ONCE - 2


def test_leader_is_that_of_the_partition_which_the_hash_of_the_group_gives() -> None:
    index = partition_for("k-orders", PARTITIONS)
    whole = leader()
    other = with_fields(whole, name="c-1", replicas={index: whole.replicas[index]})
    rest = with_fields(whole, replicas={key: each for key, each in whole.replicas.items() if key != index})
    (start,) = (each for each in plan(seen(group("k-orders"), pods=(rest, other)), 0.0) if isinstance(each, StartMoves))
    assert start.pod == "c-1"
    assert written(seen(group("k-orders"), pods=(rest, other)))["k-orders"].status.partition == index


# -- what is said -----------------------------------------------------------------------------------------------------


def test_group_that_is_where_it_shall_be_is_ready() -> None:
    assert reason(seen(group("k-orders"), facts=HERE)) == Reason.AT_MUSTER
    assert reason(seen(group("k-orders", "Kafka"))) == Reason.AT_KAFKA
    assert reason(seen(group("m-orders")), "m-orders") == Reason.AT_MUSTER
    assert reason(seen(group("other", "Kafka")), "other") == Reason.AT_KAFKA
    status = written(seen(group("k-orders"), facts=HERE))["k-orders"].status
    assert (status.coordinator, status.step) == ("Muster", "")


def test_move_is_told_step_by_step_and_how_it_ended() -> None:
    moving = with_fields(KNOWN, move=MoveStatus("k-orders", 0, "draining", "", 40))
    assert reason(seen(group("k-orders"), facts=moving)) == Reason.GROUP_MOVING
    subject = written(seen(group("k-orders"), facts=moving))["k-orders"]
    assert (subject.status.coordinator, subject.status.step) == ("Kafka", "draining")
    moved = with_fields(HERE, move=MoveStatus("k-orders", 0, "moved", "", 230))
    after = written(seen(subject, facts=moved))["k-orders"]
    assert (after.status.coordinator, after.status.step) == ("Muster", "")
    assert after.status.last_move is not None
    assert (after.status.last_move.done, after.status.last_move.fenced_ms) == (True, 230)
    assert written(seen(after, facts=moved))["k-orders"] is after, "nothing to write a second time"
    assert written(seen(after, facts=HERE))["k-orders"] is after, "pods forget their moves"


def test_what_keeps_a_group_at_kafka_is_told() -> None:
    refused = with_fields(KNOWN, obstacles=("it has offsets in a transaction that is open", "it is fenced"))
    assert reason(seen(group("k-orders"), facts=refused)) == Reason.MOVE_REFUSED
    text = condition(written(seen(group("k-orders"), facts=refused))["k-orders"])
    assert text is not None
    assert "a transaction that is open; it is fenced" in text.message
    given_up = with_fields(KNOWN, move=MoveStatus("k-orders", 0, "given up", "Kafka does not answer", 900))
    assert reason(seen(group("k-orders"), facts=given_up)) == Reason.MOVE_GIVEN_UP
    last = written(seen(group("k-orders"), facts=given_up))["k-orders"].status.last_move
    assert last is not None
    assert (last.done, last.reason) == (False, "Kafka does not answer")
    assert reason(seen(group("k-orders"), gateway_waits="0 of 2 gateway pods are ready")) == Reason.MOVE_WAITS
    assert reason(seen(group("k-orders"), pods=())) == Reason.MOVE_WAITS


def test_what_only_a_person_can_mend_is_stalled() -> None:
    assert reason(seen(group("other")), "other") == Reason.GROUP_NOT_MOVABLE
    assert reason(seen(group("m-orders", "Kafka")), "m-orders") == Reason.NO_WAY_BACK
    stalled = condition(written(seen(group("other")))["other"], ConditionType.STALLED)
    assert stalled is not None
    assert "spec.upstream.movableGroups" in stalled.message


@pytest.mark.parametrize("facts", [GroupFacts(), HERE])
def test_group_that_moved_and_is_named_no_more_is_still_here(facts: GroupFacts) -> None:
    def moved(wanted: str) -> ConsumerGroup:
        found = group("other", wanted)
        return replace(found, status=replace(found.status, coordinator="Muster"))

    assert reason(seen(moved("Muster"), facts=facts), "other") == Reason.AT_MUSTER
    assert reason(seen(moved("Kafka"), facts=facts), "other") == Reason.GROUP_NOT_MOVABLE


def test_group_of_no_cluster_waits_for_it() -> None:
    ready = condition(written(seen(group("k-orders"), cluster=None))["k-orders"])
    assert ready is not None
    assert ready.reason == Reason.CLUSTER_NOT_FOUND


def test_of_two_resources_of_one_group_the_older_counts_and_the_other_is_told() -> None:
    old = group("zebra", of="k-orders")
    new = group("apple", "Kafka", created="2026-01-02T00:00:00Z", of="k-orders")
    observation = seen(new, old)
    assert asked(observation) == ["k-orders"]
    assert reason(observation, "apple") == Reason.GROUP_DECLARED_TWICE
    assert (
        asked(seen(replace(new, metadata=replace(new.metadata, creation_timestamp="2025-01-01T00:00:00Z")), old)) == []
    )


def test_whether_kafka_gets_the_offsets_is_told_of_a_group_that_is_here_alone() -> None:
    def told(facts: GroupFacts, of: ConsumerGroup) -> tuple[str, str] | None:
        found = condition(written(seen(of, facts=facts))["k-orders"], ConditionType.WRITTEN_BACK)
        return (found.status, found.reason) if found is not None else None

    declared = group("k-orders")
    assert told(HERE, declared) is None
    refused = with_fields(HERE, write_problem="it has members there")
    assert told(refused, declared) == ("False", Reason.OFFSETS_NOT_WRITTEN)
    after = written(seen(declared, facts=refused))["k-orders"]
    assert told(HERE, after) == ("False", Reason.OFFSETS_NOT_WRITTEN), "the pod has just begun to lead"
    assert told(with_fields(HERE, write_problem=""), after) == ("True", Reason.OFFSETS_WRITTEN)
    assert told(KNOWN, after) is None


# -- what is remembered -----------------------------------------------------------------------------------------------


def facts_of(memory: GroupMemory, now_s: float = 0.0, generation: int = 1) -> GroupFacts:
    return memory.view({"g": generation}, {"g": "c-0"}, now_s)["g"]


def route(epoch: int, *, at_muster: bool) -> MovesAnswer:
    return MovesAnswer((), (RoutedGroup("g", 0, epoch, at_muster),))


def test_route_with_the_highest_epoch_counts_in_any_order() -> None:
    memory = GroupMemory()
    memory.said("c-0", route(2, at_muster=True), ["g"])
    memory.said("c-1", route(1, at_muster=False), ["g"])
    assert facts_of(memory).at_muster
    memory.said("c-0", MovesAnswer((), ()), ["g"])
    assert facts_of(memory).at_muster, "the pod does not lead it any more"


def test_move_is_that_of_the_pod_that_leads_now() -> None:
    memory = GroupMemory()
    status = MoveStatus("g", 0, "draining", "", 3)
    memory.said("c-1", MovesAnswer((status,), ()), ["g"])
    assert facts_of(memory) == GroupFacts()
    memory.said("c-0", MovesAnswer((status,), ()), ["g"])
    assert facts_of(memory).is_moving
    memory.forget(["c-1"], ["g"])
    assert not facts_of(memory).is_known, "the pod is away"


def test_problem_with_writing_to_kafka_is_that_of_the_pod_that_leads_now() -> None:
    memory = GroupMemory()
    wrong = RoutedGroup("g", 0, 1, at_muster=True, write_problem="it has members there")
    memory.said("c-1", MovesAnswer((), (wrong,)), ["g"])
    assert facts_of(memory).write_problem is None
    memory.said("c-0", MovesAnswer((), (wrong,)), ["g"])
    assert facts_of(memory).write_problem == "it has members there"
    memory.said("c-0", MovesAnswer((), (RoutedGroup("g", 0, 1, at_muster=True, unwritten_ms=90),)), ["g"])
    assert facts_of(memory).write_problem == ""
    memory.said("c-0", route(1, at_muster=True), ["g"])
    assert facts_of(memory).write_problem is None, "none are written"


def test_attempts_come_later_each_time_and_a_changed_declaration_at_once() -> None:
    memory = GroupMemory()
    begun = MoveAnswer((), MoveStatus("g", 0, "waiting", "", 0))
    memory.asked("g", 1, begun, 100.0)
    assert not facts_of(memory, 100.0 + AGAIN_S - 1).is_due
    assert facts_of(memory, 100.0 + AGAIN_S).is_due
    memory.asked("g", 1, begun, 200.0)
    assert not facts_of(memory, 200.0 + AGAIN_S).is_due
    assert facts_of(memory, 200.0 + 2 * AGAIN_S).is_due
    assert facts_of(memory, 200.0, generation=2).is_due
    memory.asked("g", 1, MoveAnswer(("a transaction is open",), None), 300.0)
    assert facts_of(memory, 300.0).obstacles == ("a transaction is open",)


# -- with pods, by the loop -------------------------------------------------------------------------------------------


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path, 1) as made:
        await made.store.apply(replace(cluster(1), spec=replace(cluster(1).spec, upstream=UPSTREAM)))
        yield made


async def status_of(town: World, name: str) -> str:
    found = next(each for each in (await town.records()).groups or () if each.metadata.name == name)
    ready = condition(found)
    return ready.reason if ready is not None else ""


async def until(town: World, name: str, wanted: Reason) -> None:
    state = {"now": ""}

    async def look() -> None:
        while state["now"] != wanted:
            state["now"] = await status_of(town, name)

    await look()


async def test_declared_group_is_moved_once_however_often_it_is_applied(town: World) -> None:
    pod = town.pods[0]
    async with town.operator():
        await town.until_ready()
        await town.store.apply(group("k-orders"))
        await until(town, "k-orders", Reason.AT_MUSTER)
        for _ in range(10):
            await town.store.apply(group("k-orders"))
        await town.store.delete(group("k-orders"))
        await town.store.apply(group("k-orders"))
        await until(town, "k-orders", Reason.AT_MUSTER)
    assert pod.moves.asked == ["k-orders"]
    async with town.operator():
        await town.store.apply(group("k-more", "Kafka"))
        await until(town, "k-more", Reason.AT_KAFKA)
        await until(town, "k-orders", Reason.AT_MUSTER)
    assert pod.moves.asked == ["k-orders"], "another operator asks no second time"


async def test_group_goes_back_when_the_declaration_says_so(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        for wanted, reached in (("Muster", Reason.AT_MUSTER), ("Kafka", Reason.AT_KAFKA), ("Muster", Reason.AT_MUSTER)):
            await town.store.apply(group("k-orders", wanted))
            await until(town, "k-orders", reached)
    assert town.pods[0].moves.asked == ["k-orders"] * 3


async def test_what_stands_in_the_way_is_told_and_a_changed_declaration_asks_at_once(town: World) -> None:
    pod = town.pods[0]
    pod.moves.obstacles = ("the mirror has not read all of Kafka's partition yet",)
    async with town.operator():
        await town.until_ready()
        await town.store.apply(group("k-orders"))
        await until(town, "k-orders", Reason.MOVE_REFUSED)
        await town.store.apply(group("k-orders", "Kafka"))
        await until(town, "k-orders", Reason.AT_KAFKA)
        pod.moves.obstacles = ()
        await town.store.apply(group("k-orders"))
        await until(town, "k-orders", Reason.AT_MUSTER)
    await eventually(lambda: len(pod.moves.asked) == 2)
