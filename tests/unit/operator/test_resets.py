"""Resets that ConsumerGroups declare: once for every id, whatever is applied and whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import World, cluster, world
from tests.unit.operator.test_groups import HERE, KNOWN, UPSTREAM, condition, group, leader, seen, written

from muster_coordinator.podapi.moves import MoveStatus
from muster_coordinator.podapi.resets import (
    PlanAnswer,
    PlannedOffset,
    PlanRequest,
    ResetAnswer,
    ResetRequest,
    WantedOffset,
)
from muster_operator.api.conditions import Condition, ConditionType, Reason
from muster_operator.api.consumer_group import GroupReset, PastReset, ResetOffset, ResetStatus
from muster_operator.api.models import ConsumerGroup
from muster_operator.kube.events import is_normal, noteworthy
from muster_operator.plan.actions import AskResets
from muster_operator.plan.group_facts import AGAIN_S
from muster_operator.plan.observation import CallKind, Observation
from muster_operator.plan.planner import plan
from muster_operator.plan.reset_facts import ResetFacts, ResetMemory
from muster_operator.plan.resets import PAST_MAX, key_of, plan_request, reset_request

OFFSETS = (PlannedOffset("t", 0, 100, 90), PlannedOffset("t", 1, -1, 0))
RECORDED = (ResetOffset("t", 0, 90, 100), ResetOffset("t", 1, 0))


def with_reset(declared: ConsumerGroup, id_: str = "one", by: int = -10, **more: Any) -> ConsumerGroup:
    given = {"id": id_, "to": "shiftBy", "shiftBy": by, **more}
    return replace(declared, spec=replace(declared.spec, reset=msgspec.convert(given, GroupReset)))


def recorded(declared: ConsumerGroup, phase: Any, id_: str = "one") -> ConsumerGroup:
    return replace(
        declared, status=replace(declared.status, reset=ResetStatus(id_, phase, "2026-01-01T00:00:00Z", RECORDED))
    )


SUBJECT = with_reset(group("k-orders"))


def looked(subject: ConsumerGroup, said: ResetFacts | None = None, **more: Any) -> Observation:
    """`said`: by pods, of its reset."""
    key = key_of(subject)
    known = {key: said} if said is not None and key is not None else {}
    return with_fields(seen(subject, **{"facts": HERE, **more}), reset_facts=known)


def asked(observation: Observation) -> list[tuple[str, str]]:
    """The pods that are asked, and the groups."""
    found = [each for each in plan(observation, 0.0) if isinstance(each, AskResets)]
    return [(each.pod, group.spec.group) for each in found for group in each.groups]


def told(observation: Observation) -> Condition:
    found = condition(written(observation)["k-orders"], ConditionType.OFFSETS_RESET)
    assert found is not None
    return found


# -- step by step -----------------------------------------------------------------------------------------------------


def test_plan_is_in_the_status_before_a_pod_is_asked_to_write() -> None:
    assert asked(looked(SUBJECT)) == [("c-0", "k-orders")]
    assert (told(looked(SUBJECT)).status, told(looked(SUBJECT)).reason) == ("False", Reason.RESET_WAITS)
    planned = looked(SUBJECT, ResetFacts(OFFSETS))
    assert asked(planned) == []
    status = written(planned)["k-orders"].status
    assert status.reset is not None
    assert (status.reset.id, status.reset.phase, status.reset.offsets) == ("one", "Planned", RECORDED)
    assert asked(looked(replace(SUBJECT, status=status), ResetFacts())) == [("c-0", "k-orders")]


@pytest.mark.parametrize(
    ("outcome", "phase", "status", "reason"),
    [("Written", "Done", "True", Reason.RESET_DONE), ("Changed", "Superseded", "False", Reason.RESET_SUPERSEDED)],
)
def test_end_of_a_reset_is_told_and_nothing_is_asked_any_more(
    outcome: Any, phase: str, status: str, reason: Reason
) -> None:
    said = ResetFacts(outcome=ResetAnswer(outcome))
    over = looked(recorded(SUBJECT, "Planned"), said)
    assert asked(over) == []
    assert (told(over).status, told(over).reason) == (status, reason)
    after = written(over)["k-orders"]
    assert after.status.reset is not None
    assert (after.status.reset.phase, after.status.reset.offsets) == (phase, RECORDED)
    assert asked(looked(after)) == []
    assert asked(looked(after, ResetFacts())) == []
    assert written(looked(after, said))["k-orders"] is after


def test_what_a_pod_says_later_changes_nothing_of_a_reset_that_is_over() -> None:
    subject = recorded(SUBJECT, "Done")
    after = written(looked(subject, ResetFacts(OFFSETS, ResetAnswer("Changed"), is_due=False)))["k-orders"]
    assert after.status.reset == subject.status.reset


@pytest.mark.parametrize(
    ("observation", "why"),
    [
        (looked(SUBJECT, facts=KNOWN), "not at Muster"),
        (looked(SUBJECT, facts=with_fields(HERE, move=MoveStatus("k-orders", 0, "draining", "", 1))), "is moving"),
        (looked(SUBJECT, pods=(leader(active=False),)), "no pod leads"),
        (looked(SUBJECT, ResetFacts(obstacle="the group has members", is_due=False)), "the group has members"),
        (looked(SUBJECT, busy=frozenset({(CallKind.RESET, "c-0")})), "a pod is asked"),
    ],
    ids=["at Kafka", "moves", "no leader", "obstacle", "is being asked"],
)
def test_what_a_reset_waits_for_is_told_and_nobody_is_asked(observation: Observation, why: str) -> None:
    assert asked(observation) == []
    assert told(observation).reason == Reason.RESET_WAITS
    assert why in told(observation).message


def test_something_that_stands_in_the_way_of_what_is_planned_is_told() -> None:
    subject = recorded(SUBJECT, "Planned")
    assert "it has members" in told(looked(subject, ResetFacts(obstacle="it has members", is_due=False))).message
    assert asked(looked(subject, ResetFacts(obstacle="it has members"))) == [("c-0", "k-orders")]


def test_every_id_counts_once() -> None:
    second = recorded(with_reset(group("k-orders"), "two"), "Done")
    after = written(looked(second, ResetFacts(OFFSETS)))["k-orders"].status
    assert after.past_resets == (PastReset("one", "Done", "2026-01-01T00:00:00Z"),)
    assert after.reset is not None
    assert (after.reset.id, after.reset.phase) == ("two", "Planned")
    back = looked(replace(SUBJECT, status=after), ResetFacts(OFFSETS))
    assert asked(back) == []
    assert (told(back).status, told(back).reason) == ("True", Reason.RESET_PAST)
    assert written(back)["k-orders"].status.reset == after.reset


def test_no_id_is_forgotten_for_want_of_room() -> None:
    past = tuple(PastReset(str(number), "Done", "2026-01-01T00:00:00Z") for number in range(PAST_MAX))
    full = replace(recorded(SUBJECT, "Done", "last"), status=replace(SUBJECT.status, past_resets=past))
    assert asked(looked(full)) == []
    assert "no room" in told(looked(full)).message
    last = recorded(full, "Planned")
    assert asked(looked(replace(last, status=replace(last.status, past_resets=past)))) == [("c-0", "k-orders")]


def test_reset_that_is_not_declared_any_more_is_told_no_more_and_stays_in_the_status() -> None:
    done = written(looked(recorded(SUBJECT, "Planned"), ResetFacts(outcome=ResetAnswer("Written"))))["k-orders"]
    without = replace(done, spec=replace(done.spec, reset=None))
    assert asked(looked(without)) == []
    after = written(looked(without))["k-orders"]
    assert condition(after, ConditionType.OFFSETS_RESET) is None
    assert after.status.reset == done.status.reset


def test_of_two_resources_of_one_group_the_older_has_its_reset() -> None:
    newer = with_reset(group("apple", created="2026-01-02T00:00:00Z", of="k-orders"))
    observation = seen(SUBJECT, newer, facts=HERE)
    assert asked(observation) == [("c-0", "k-orders")]
    assert condition(written(observation)["apple"], ConditionType.OFFSETS_RESET) is None


@pytest.mark.parametrize(
    ("declared", "request_"),
    [
        ({"to": "earliest"}, PlanRequest("k-orders", "earliest")),
        ({"to": "latest", "topics": ["t", "u"]}, PlanRequest("k-orders", "latest", 0, ("t", "u"))),
        ({"to": "offset", "offset": 7}, PlanRequest("k-orders", "offset", 7)),
        (
            {"to": "offsets", "offsets": [{"topic": "t", "partition": 1, "offset": 7}]},
            PlanRequest("k-orders", "offsets", offsets=(WantedOffset("t", 1, 7),)),
        ),
        ({"to": "earliest", "members": "Park"}, PlanRequest("k-orders", "earliest", park=True)),
        ({"to": "shiftBy", "shiftBy": -7}, PlanRequest("k-orders", "shiftBy", -7)),
        ({"to": "datetime", "datetime": "1970-01-01T00:00:01.5Z"}, PlanRequest("k-orders", "datetime", 1_500)),
    ],
)
def test_pods_are_asked_for_what_is_declared(declared: dict[str, Any], request_: PlanRequest) -> None:
    reset = msgspec.convert({"id": "one", **declared}, GroupReset)
    assert plan_request(replace(SUBJECT, spec=replace(SUBJECT.spec, reset=reset))) == request_


@pytest.mark.parametrize("members", ["Wait", "Park"])
def test_what_the_status_has_is_what_pods_are_to_carry_out(members: str) -> None:
    reset = msgspec.convert({"id": "one", "to": "earliest", "members": members}, GroupReset)
    subject = recorded(replace(SUBJECT, spec=replace(SUBJECT.spec, reset=reset)), "Planned")
    assert reset_request(subject) == ResetRequest("k-orders", OFFSETS, members == "Park")


def test_events_tell_of_resets() -> None:
    def of(status: Any, reason: Reason) -> tuple[Condition, ...]:
        return (Condition(ConditionType.OFFSETS_RESET, status, reason),)

    waits, done = of("False", Reason.RESET_WAITS), of("True", Reason.RESET_DONE)
    lost = of("False", Reason.RESET_SUPERSEDED)
    assert noteworthy((), waits) == waits
    assert noteworthy(waits, waits) == ()
    assert noteworthy(waits, done) == done
    assert [is_normal(each) for (each,) in (waits, done, lost)] == [True, True, False]


# -- what is remembered -----------------------------------------------------------------------------------------------

KEY = ("uid", "one")


def test_plan_that_is_not_recorded_in_time_is_made_anew() -> None:
    memory = ResetMemory()
    memory.planned(KEY, PlanAnswer((), OFFSETS), 100.0)
    assert memory.view([KEY], 100.0 + AGAIN_S - 1)[KEY] == ResetFacts(OFFSETS)
    assert memory.view([KEY], 100.0 + AGAIN_S)[KEY] == ResetFacts()
    assert memory.view([], 100.0) == {}
    assert memory.view([KEY], 100.0) == {}, "it is forgotten with its object"


def test_obstacles_are_asked_about_again_after_a_while() -> None:
    memory = ResetMemory()
    memory.planned(KEY, PlanAnswer(("it has members", "and more")), 0.0)
    assert memory.view([KEY], 1.0)[KEY] == ResetFacts(obstacle="it has members; and more", is_due=False)
    memory.carried_out(KEY, ResetAnswer("Refused", "it has members"), 20.0)
    assert memory.view([KEY], 20.0 + AGAIN_S)[KEY] == ResetFacts(obstacle="it has members")
    memory.carried_out(KEY, ResetAnswer("Written"), 40.0)
    assert memory.view([KEY], 41.0)[KEY].outcome == ResetAnswer("Written")
    memory.failed(KEY, "it has no such call", 50.0)
    assert memory.view([KEY], 51.0)[KEY].obstacle == "it has no such call"


# -- with pods, by the loop -------------------------------------------------------------------------------------------

DEADLINE_S = 60


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path, 1) as made:
        upstream = replace(UPSTREAM, served_groups=("k-",), movable_groups=())
        await made.store.apply(replace(cluster(1), spec=replace(cluster(1).spec, upstream=upstream)))
        made.pods[0].resets.offsets["k-orders"] = 100
        yield made


async def status_of(town: World) -> ConsumerGroup:
    return next(each for each in (await town.records()).groups or ())


async def until(town: World, holds: Callable[[ConsumerGroup], bool]) -> ConsumerGroup:
    async with asyncio.timeout(DEADLINE_S):
        while not holds(found := await status_of(town)):
            await asyncio.sleep(0.005)
    return found


def in_phase(phase: str, id_: str = "one") -> Callable[[ConsumerGroup], bool]:
    return lambda each: (
        each.status.reset is not None
        and (each.status.reset.id, each.status.reset.phase)
        == (
            id_,
            phase,
        )
    )


async def test_manifest_that_is_applied_a_hundred_times_resets_once(town: World) -> None:
    pod = town.pods[0]
    for _ in range(2):
        async with town.operator():
            await town.until_ready()
            for _ in range(50):
                await town.store.apply(SUBJECT)
                await asyncio.sleep(0)
            await until(town, in_phase("Done"))
            pod.resets.offsets["k-orders"] = 95  # consumers go on
            await town.store.apply(SUBJECT)
    assert (pod.resets.writes, pod.resets.offsets["k-orders"]) == (1, 95)
    async with town.operator():
        await town.store.apply(with_reset(SUBJECT, "two", -5))
        found = await until(town, in_phase("Done", "two"))
    assert (pod.resets.writes, pod.resets.offsets["k-orders"]) == (2, 90)
    assert [each.id for each in found.status.past_resets] == ["one"]


async def test_operator_that_dies_before_it_records_the_end_is_followed_by_one_that_shifts_no_second_time(
    town: World,
) -> None:
    pod = town.pods[0]
    pod.resets.deaf = True
    async with town.operator():
        await town.until_ready()
        await town.store.apply(SUBJECT)
        async with asyncio.timeout(DEADLINE_S):
            while not pod.resets.writes:
                await asyncio.sleep(0.005)
    assert in_phase("Planned")(await status_of(town))
    pod.resets.deaf = False
    async with town.operator():
        await until(town, in_phase("Done"))
    assert (pod.resets.writes, pod.resets.offsets["k-orders"]) == (1, 90)


async def test_consumers_that_went_on_meanwhile_keep_what_they_have_committed(town: World) -> None:
    pod = town.pods[0]
    pod.resets.deaf = True
    async with town.operator():
        await town.until_ready()
        await town.store.apply(SUBJECT)
        async with asyncio.timeout(DEADLINE_S):
            while not pod.resets.writes:
                await asyncio.sleep(0.005)
    pod.resets.deaf = False
    pod.resets.offsets["k-orders"] = 93
    async with town.operator():
        await until(town, in_phase("Superseded"))
    assert (pod.resets.writes, pod.resets.offsets["k-orders"]) == (1, 93)


async def test_reset_of_a_group_with_members_comes_when_they_are_gone(
    town: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_operator.plan.reset_facts.AGAIN_S", 0.05)
    monkeypatch.setattr("muster_operator.steps.resets.TELL_EVERY_S", 0.05)
    pod = town.pods[0]
    pod.resets.obstacle = "the group has members"

    def waits(each: ConsumerGroup) -> bool:
        found = condition(each, ConditionType.OFFSETS_RESET)
        return found is not None and "has members" in found.message

    async with town.operator():
        await town.until_ready()
        await town.store.apply(SUBJECT)
        await until(town, waits)
        pod.resets.obstacle = ""
        await until(town, in_phase("Done"))
    assert pod.resets.offsets["k-orders"] == 90
