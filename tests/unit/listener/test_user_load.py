"""What one user takes of a pod: a bucket of requests, and room for requests in flight that its connections share."""

from __future__ import annotations

import asyncio

import pytest

from muster_coordinator.listener.user_load import BURST_WINDOWS, UserLoad
from muster_coordinator.security.quotas import NO_QUOTAS, Quotas

PLENTY = 1000


class Connection:
    """Has so many requests that wait, and takes as many as there is room for."""

    def __init__(self, load: UserLoad, waiting: int) -> None:
        self._load = load
        self.waiting = waiting

    def take_turn(self) -> None:
        while self.waiting and not self._load.is_full():
            self.waiting -= 1
            self._load.in_flight += 1
        if self.waiting:
            self._load.wait(self)


def at(load: UserLoad, now_ms: int, number: int = 1) -> list[int]:
    """The rests (ms) of so many requests at that time."""
    return [load.throttle_ms(lambda: now_ms) for _ in range(number)]


def test_user_without_a_rate_never_rests() -> None:
    assert set(at(UserLoad(NO_QUOTAS, PLENTY, 0), 0, 10_000)) == {0}


def test_request_above_the_burst_rests_until_the_rate_has_room_for_it() -> None:
    load = UserLoad(Quotas(request_rate=100), PLENTY, 0)
    assert set(at(load, 0, 100 * BURST_WINDOWS)) == {0}
    assert at(load, 0, 3) == [10, 20, 30]
    assert at(load, 30) == [10]
    assert at(load, 1040, 101) == [0] * 100 + [10]


def test_rate_that_changes_counts_at_once_and_gives_no_second_burst() -> None:
    load = UserLoad(NO_QUOTAS, PLENTY, 0)
    load.use(Quotas(request_rate=10), 1000)
    assert at(load, 1000, 10 * BURST_WINDOWS + 1) == [0] * 10 * BURST_WINDOWS + [100]
    load.use(Quotas(request_rate=1000), 1000)
    assert at(load, 1000) == [2]
    load.use(Quotas(request_rate=1000, connections=3), 1000)
    assert at(load, 1000) == [3]
    load.use(NO_QUOTAS, 1000)
    assert at(load, 1000) == [0]


def test_user_that_left_is_remembered_until_it_has_its_whole_burst_again() -> None:
    load = UserLoad(Quotas(request_rate=10), PLENTY, 0)
    load.connections = 1
    assert not load.is_at_rest(0)
    load.connections = 0
    assert load.is_at_rest(0)
    at(load, 0, 10 * BURST_WINDOWS + 10)
    assert not load.is_at_rest(BURST_WINDOWS * 1000)
    assert load.is_at_rest(BURST_WINDOWS * 1000 + 1000)
    assert UserLoad(NO_QUOTAS, PLENTY, 0).is_at_rest(0)


async def test_room_goes_to_the_connection_that_has_waited_longest() -> None:
    load = UserLoad(NO_QUOTAS, 3, 0)
    load.in_flight = 3
    first, second, third = Connection(load, 2), Connection(load, 2), Connection(load, 1)
    for each in (first, second, third):
        load.wait(each)
    load.forget(third)
    load.left(1)
    await asyncio.sleep(0)
    assert (first.waiting, second.waiting, load.in_flight) == (1, 2, 3)
    load.left(2)
    await asyncio.sleep(0)
    assert (first.waiting, second.waiting, third.waiting, load.in_flight) == (1, 0, 1, 3)


@pytest.mark.parametrize("number", [0, 1])
async def test_nobody_is_woken_while_there_is_no_room(number: int) -> None:
    load = UserLoad(NO_QUOTAS, 2, 0)
    load.in_flight = 2 + number
    waiting = Connection(load, 1)
    load.wait(waiting)
    load.left(number)
    await asyncio.sleep(0)
    assert waiting.waiting == 1
