"""Turns of loads: elections first, then the smallest log, one slice in each turn of the event loop, rests in
between."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from muster_coordinator.replica import load_turns as module
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.tuning.pacing import Rest, Urgency

LIMIT_S = 20.0


async def load(turns: LoadTurns, order: list[str], name: str, slices: int, urgency: Urgency) -> None:
    for left in range(slices, 0, -1):
        await turns.next_slice(urgency, left)
        order.append(name)


@pytest.mark.parametrize("urgency", [Urgency.ELECTION, Urgency.BACKGROUND])
async def test_smallest_log_is_loaded_first_and_one_slice_runs_per_turn_of_the_loop(urgency: Urgency) -> None:
    turns = LoadTurns(monotonic)
    order: list[str] = []
    at: list[int] = []
    turn_of_loop = 0
    names = {"large": 9, "small": 2, "middle": 5}
    loads = [asyncio.ensure_future(load(turns, order, name, size, urgency)) for name, size in names.items()]
    async with asyncio.timeout(LIMIT_S):
        while not all(each.done() for each in loads):
            await asyncio.sleep(0)
            turn_of_loop += 1
            at += [turn_of_loop] * (len(order) - len(at))
    assert order == ["small"] * 2 + ["middle"] * 5 + ["large"] * 9
    assert len(set(at)) == len(at), "never two slices in one turn"


async def test_load_of_an_election_goes_before_a_smaller_one_in_the_background() -> None:
    turns = LoadTurns(monotonic)
    order: list[str] = []
    await asyncio.gather(
        load(turns, order, "background", 1, Urgency.BACKGROUND), load(turns, order, "election", 3, Urgency.ELECTION)
    )
    assert order == ["election"] * 3 + ["background"]


@pytest.mark.parametrize(
    ("urgency", "rest_bytes", "rested"),
    [
        (Urgency.ELECTION, module.SHORT_BYTES, False),
        (Urgency.ELECTION, module.SHORT_BYTES + 1, True),
        (Urgency.BACKGROUND, 1, True),
    ],
)
async def test_load_rests_unless_an_election_waits_for_little(
    monkeypatch: pytest.MonkeyPatch, urgency: Urgency, rest_bytes: int, rested: bool
) -> None:
    now = 0.0
    rests: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda delay, *call: rests.append(delay) or call_later(0, *call))
    turns = LoadTurns(lambda: now)
    for _ in range(3):
        await turns.next_slice(urgency, rest_bytes)
        now += 0.002  # the slice
    assert rests == pytest.approx([module.REST.after(0.002)] * 2 if rested else [])


async def test_election_ends_the_rest_of_a_load_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST", Rest(1e-12, longest_s=3600.0))
    turns = LoadTurns(monotonic)
    order: list[str] = []
    background = asyncio.ensure_future(load(turns, order, "background", 3, Urgency.BACKGROUND))
    async with asyncio.timeout(LIMIT_S):
        while turns._resting is None:
            await asyncio.sleep(0)
        await load(turns, order, "election", 2, Urgency.ELECTION)
    background.cancel()
    assert order == ["background", "election", "election"]


async def test_load_that_is_given_up_does_not_hold_up_the_others() -> None:
    turns = LoadTurns(monotonic)
    given_up = asyncio.ensure_future(turns.next_slice(Urgency.ELECTION, 1))
    waiting = asyncio.ensure_future(turns.next_slice(Urgency.ELECTION, 2))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(LIMIT_S):
        await waiting
