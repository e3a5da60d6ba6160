"""The checker finds what it is there for: in made-up histories, and in a run against a coordinator that forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.chaos.checker import Kind, check, counts
from tests.chaos.double import ForgetfulCoordinator
from tests.chaos.history import OFFSETS_PER_GROUP, Abandoned, Fetch, GroupHistory, History
from tests.chaos.load import Load

FIRST = OFFSETS_PER_GROUP
GROUPS = 5


def history(fetches: list[Fetch], acknowledged: int = 10, abandoned: tuple[Abandoned, ...] = ()) -> History:
    """A group that commits once a second from second 0 on, acknowledged by pod 0 half a second later."""
    group = GroupHistory(name="g", first_offset=FIRST, last_sent=FIRST + acknowledged - 1, abandoned=list(abandoned))
    for number in range(acknowledged):
        group.offsets.append(FIRST + number)
        group.sent.append(float(number))
        group.acked.append(number + 0.5)
        group.pods.append(0)
    group.fetches = fetches
    return History(["a:1", "b:2"], [group], 0.01)


def fetch(offset: int, at: float = 100.0, *, final: bool = True, last_sent: int = FIRST + 9, pod: int = 0) -> Fetch:
    return Fetch(at, at + 0.1, offset, pod, last_sent, final)


def kinds(seen: History) -> list[Kind]:
    return [finding.kind for finding in check(seen)]


def test_last_acknowledged_offset_in_the_final_fetch_is_no_finding() -> None:
    assert kinds(history([fetch(FIRST + 9)])) == []


def test_unanswered_commit_that_took_effect_is_no_finding() -> None:
    assert kinds(history([fetch(FIRST + 10, last_sent=FIRST + 10)])) == []


def test_final_fetch_below_the_last_acknowledged_offset_counts_each_commit_above_it() -> None:
    seen = history([fetch(FIRST + 6)])
    assert counts(check(seen))["lost"] == 3
    [finding] = check(seen)
    assert finding.kind is Kind.LOST
    assert f"fetched {FIRST + 6} from a:1 at 100.100" in finding.text
    assert f"{FIRST + 9} was acknowledged by a:1 at 9.500" in finding.text


def test_no_offset_in_the_final_fetch_loses_every_acknowledged_commit() -> None:
    assert counts(check(history([fetch(-1)])))["lost"] == 10


def test_fetch_below_an_acknowledged_offset_during_the_run_is_reverted() -> None:
    seen = history([fetch(FIRST + 2, at=5.0, final=False), fetch(FIRST + 9)])
    assert kinds(seen) == [Kind.REVERTED]


def test_fetch_below_an_earlier_fetch_of_an_unanswered_commit_is_reverted() -> None:
    unanswered = fetch(FIRST + 10, at=50.0, final=False, last_sent=FIRST + 10)
    assert kinds(history([unanswered, fetch(FIRST + 9, last_sent=FIRST + 10)])) == [Kind.LOST]


def test_offset_above_the_last_sent_one_is_invented() -> None:
    assert kinds(history([fetch(FIRST + 10)])) == [Kind.INVENTED]


def test_offset_of_another_group_is_invented() -> None:
    assert kinds(history([fetch(5)])) == [Kind.INVENTED]


def test_group_without_a_final_fetch_is_unread() -> None:
    assert kinds(history([fetch(FIRST + 9, final=False)])) == [Kind.UNREAD]


def test_given_up_commit_may_take_effect_late_while_its_pod_leads_only() -> None:
    late = fetch(FIRST + 3, pod=0)
    assert kinds(history([late], abandoned=(Abandoned(FIRST + 3, 0, 3.2),))) == [Kind.LATE]
    elsewhere = history([fetch(FIRST + 3, pod=1)], abandoned=(Abandoned(FIRST + 3, 1, 3.2),))
    assert kinds(elsewhere) == [Kind.LATE]
    deposed = history([fetch(FIRST + 3, pod=0)], abandoned=(Abandoned(FIRST + 3, 1, 3.2),))
    assert kinds(deposed) == [Kind.LOST]


async def run(coordinator: ForgetfulCoordinator, during: Callable[[Load], bool]) -> History:
    """A load until the condition, asked again and again, holds."""
    load = Load([f"127.0.0.1:{coordinator.port}"], GROUPS, 0.001)
    stop, ready = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(60):
        running = asyncio.create_task(load.run(stop, ready))
        await ready.wait()
        while not during(load):
            await asyncio.sleep(0.01)
        stop.set()
        return await running


def acknowledged(load: Load) -> int:
    return min(group.acknowledged for group in load.groups)


async def test_coordinator_that_keeps_everything_gives_no_finding() -> None:
    async with ForgetfulCoordinator() as coordinator:
        seen = await run(coordinator, lambda load: acknowledged(load) >= 120)
    assert check(seen) == []
    assert all(len(group.fetches) >= 3 for group in seen.groups)


async def test_coordinator_that_answers_before_it_stores_loses_commits_in_its_crash() -> None:
    async with ForgetfulCoordinator() as coordinator:

        def crash_after_answers(load: Load) -> bool:
            if acknowledged(load) < 30:
                coordinator.keep()
            if acknowledged(load) < 60:
                return False
            for group in load.groups:
                group.stop()
            coordinator.crash()
            return True

        seen = await run(coordinator, crash_after_answers)
    found = counts(check(seen))
    assert found["lost"] >= GROUPS
    assert found["invented"] == 0


async def test_coordinator_that_goes_back_and_on_again_is_caught_during_the_run() -> None:
    async with ForgetfulCoordinator() as coordinator:
        answered: dict[str, int] = {}

        def sometimes_old(group: str, offset: int) -> int:
            answered[group] = answered.get(group, 0) + 1
            return offset - 10 if answered[group] == 2 else offset

        coordinator.answer_fetch = sometimes_old
        seen = await run(coordinator, lambda load: acknowledged(load) >= 120)
    assert {finding.kind for finding in check(seen)} == {Kind.REVERTED}


async def test_coordinator_that_mixes_up_groups_invents_offsets() -> None:
    async with ForgetfulCoordinator() as coordinator:
        coordinator.answer_fetch = lambda _group, _offset: coordinator.committed["chaos-0"]
        seen = await run(coordinator, lambda load: acknowledged(load) >= 60)
    assert Kind.INVENTED in {finding.kind for finding in check(seen)}
