"""When a turn comes: at once for few clients; for many, when most of those have come again, or after REST_S."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from muster_coordinator.pod import turns as module
from muster_coordinator.pod.turns import MAY_LACK, Turns
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.tuning.pacing import Urgency

pytestmark = pytest.mark.interpreted  # doubles of shards and of the journal writer


class Writer:
    """In place of JournalWriter: while `is_writing`, a write is on its way and the next one follows it."""

    def __init__(self) -> None:
        self.is_writing = False
        self.submitted = 0
        self.ended = 0

    def submit(self) -> int:
        self.submitted += 1
        return self.ended + 1 + self.is_writing


class InTurn:
    """Replicas that stage something at the end of a turn."""

    def __init__(self, stage: Callable[[], None]) -> None:
        self.end_turn = stage


class Shard:
    def __init__(self) -> None:
        self.drained = 0

    def drain(self, now_ms: int, monotonic_ms: int) -> None:
        self.drained += 1


class Pod:
    def __init__(self, rests: bool = True) -> None:
        self.writer = Writer()
        self.turns = Turns(cast(Any, self.writer), SystemClock(), ShardMetrics(), rests)

    def write_ends(self) -> None:
        """The write on its way is durable; a write that was submitted meanwhile begins."""
        self.writer.ended += 1
        self.turns.write_ended()

    async def turn_of(self, count: int) -> list[Shard]:
        """`count` shards get work, and the loop goes round once."""
        shards = [Shard() for _ in range(count)]
        for shard in shards:
            self.turns.drain_soon(cast(Any, shard))
        await asyncio.sleep(0)
        return shards


@pytest.fixture
def rest_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST_S", 1e6)


@pytest.mark.usefixtures("rest_without_end")
async def test_few_clients_never_wait_for_one_another() -> None:
    pod = Pod()
    for count in (MAY_LACK - 1, 1, 2, 1):
        assert all(shard.drained for shard in await pod.turn_of(count))


@pytest.mark.usefixtures("rest_without_end")
async def test_turn_comes_at_once_when_most_have_come_again() -> None:
    pod = Pod()
    await pod.turn_of(20)
    first = await pod.turn_of(1)
    assert not first[0].drained
    await pod.turn_of(20 - 20 // MAY_LACK - 2)
    assert not first[0].drained
    await pod.turn_of(1)
    assert first[0].drained
    assert pod.writer.submitted == 2


@pytest.mark.usefixtures("rest_without_end")
async def test_pod_that_does_not_sync_never_waits() -> None:
    pod = Pod(rests=False)
    for count in (20, 1, 1):
        assert all(shard.drained for shard in await pod.turn_of(count))


@pytest.mark.usefixtures("rest_without_end")
async def test_one_timer_at_a_time_and_none_after_a_turn_that_came_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noted(*args: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*args))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    pod = Pod()
    await pod.turn_of(20)
    await pod.turn_of(1)
    await pod.turn_of(1)
    assert [timer.cancelled() for timer in timers] == [False]
    await pod.turn_of(18)
    assert [timer.cancelled() for timer in timers] == [True]


@pytest.mark.usefixtures("rest_without_end")
async def test_what_is_staged_alone_waits_too_and_leaves_with_the_next_turn() -> None:
    pod = Pod()
    await pod.turn_of(20)
    pod.turns.write(Urgency.COMMIT)
    await asyncio.sleep(0)
    assert pod.writer.submitted == 1
    await pod.turn_of(20)
    assert pod.writer.submitted == 2


@pytest.mark.usefixtures("rest_without_end")
async def test_what_an_election_waits_for_is_written_without_a_turn() -> None:
    pod = Pod()
    await pod.turn_of(20)
    (shard,) = await pod.turn_of(1)
    pod.turns.write(Urgency.ELECTION)
    assert (pod.writer.submitted, shard.drained) == (2, 0)


async def test_what_is_staged_at_the_end_of_a_turn_goes_with_its_write() -> None:
    pod = Pod()
    pod.turns.end_turn_of(InTurn(lambda: pod.turns.write(Urgency.ELECTION)))
    await pod.turn_of(1)
    assert pod.writer.submitted == 1


async def test_rest_ends_though_nobody_else_comes_and_who_stays_away_is_soon_forgotten() -> None:
    pod = Pod()
    await pod.turn_of(20)
    for _ in range(30):
        shard = (await pod.turn_of(1))[0]
        async with asyncio.timeout(30):
            while not shard.drained:
                await asyncio.sleep(0)
    pod.turns.drain_soon(cast(Any, shard))
    await asyncio.sleep(0)
    assert shard.drained == 2


@pytest.mark.usefixtures("rest_without_end")
async def test_nothing_is_drained_while_the_write_of_a_turn_is_on_its_way() -> None:
    pod = Pod()
    await pod.turn_of(20)
    pod.writer.is_writing = True
    shards = await pod.turn_of(20)
    assert not any(shard.drained for shard in shards)
    pod.writer.is_writing = False
    pod.write_ends()
    await asyncio.sleep(0)
    assert all(shard.drained for shard in shards)


@pytest.mark.usefixtures("rest_without_end")
async def test_writes_for_elections_one_behind_the_other_hold_no_turn() -> None:
    pod = Pod()
    pod.writer.is_writing = True
    pod.turns.write(Urgency.ELECTION)
    shards = await pod.turn_of(20)
    assert all(shard.drained for shard in shards)


@pytest.mark.usefixtures("rest_without_end")
async def test_turn_waits_for_the_write_of_the_last_one_behind_that_for_an_election() -> None:
    pod = Pod()
    pod.writer.is_writing = True
    await pod.turn_of(20)
    pod.write_ends()  # that for the election; the turn's follows
    shards = await pod.turn_of(20)
    assert not any(shard.drained for shard in shards)
    pod.write_ends()  # and another one for an election follows
    await asyncio.sleep(0)
    assert all(shard.drained for shard in shards)
