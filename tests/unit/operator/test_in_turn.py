"""Turns one behind the other, none of which keeps the next one waiting for long."""

from __future__ import annotations

import asyncio

import pytest

from muster_operator.pods.in_turn import InTurn

FOREVER_S = 3600.0


class Turns:
    """Turns that last until they are told to end."""

    def __init__(self, at_most_s: float) -> None:
        self.in_turn = InTurn(at_most_s)
        self.begun: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, count: int) -> None:
        self.tasks += [asyncio.create_task(self._take(number)) for number in range(count)]

    async def _take(self, number: int) -> None:
        self.ends[number] = asyncio.Event()
        async with self.in_turn.turn():
            self.begun.append(number)
            await self.ends[number].wait()

    async def settle(self) -> list[int]:
        """What has begun when nobody has anything left to do."""
        for _ in range(10):
            await asyncio.sleep(0)
        return self.begun


async def test_turn_begins_when_the_one_before_is_over() -> None:
    turns = Turns(FOREVER_S)
    turns.ask(3)
    assert await turns.settle() == [0]
    turns.ends[0].set()
    assert await turns.settle() == [0, 1]
    turns.ends[1].set()
    turns.ends[2].set()
    assert await turns.settle() == [0, 1, 2]
    await asyncio.gather(*turns.tasks)


async def test_turn_that_lasts_keeps_the_next_one_waiting_for_a_limited_time() -> None:
    turns = Turns(0.001)
    turns.ask(3)
    async with asyncio.timeout(60):
        while turns.begun != [0, 1, 2]:
            await asyncio.sleep(0.001)
    for each in turns.ends.values():
        each.set()
    await asyncio.gather(*turns.tasks)


async def test_turn_that_failed_or_was_never_taken_holds_nobody_up() -> None:
    turns = Turns(FOREVER_S)
    turns.ask(3)
    assert await turns.settle() == [0]
    turns.tasks[1].cancel()
    assert await turns.settle() == [0, 2], "a turn that is given up is over"
    turns.tasks[0].cancel()
    turns.ends[2].set()
    results = await asyncio.gather(*turns.tasks, return_exceptions=True)
    assert [type(each) for each in results] == [asyncio.CancelledError, asyncio.CancelledError, type(None)]


async def test_turn_after_all_others_begins_at_once() -> None:
    in_turn = InTurn(FOREVER_S)
    with pytest.raises(ValueError, match="lost"):
        async with in_turn.turn():
            raise ValueError("lost")
    async with asyncio.timeout(60), in_turn.turn():
        pass
