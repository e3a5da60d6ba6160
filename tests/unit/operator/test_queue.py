"""The queue: serial per key, each key once, with a rest in between, and not faster than its rate."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.podapi.fake_server import eventually

from muster_operator.clock import Clock
from muster_operator.queue import BURST, LONGEST_REST_S, REST_S, RESTS, KeyQueue
from muster_operator.store.port import ClusterKey

A, B = ClusterKey("ns", "a"), ClusterKey("ns", "b")


def frozen_queue() -> KeyQueue:
    return KeyQueue(Clock(monotonic=lambda: 0.0))


async def is_ready(queue: KeyQueue) -> bool:
    """Whether the next key comes at once. It is taken."""
    try:
        async with asyncio.timeout(0):
            await queue.get()
    except TimeoutError:
        return False
    return True


async def test_key_added_twice_comes_once() -> None:
    queue = frozen_queue()
    queue.add(A)
    queue.add(B)
    queue.add(A)
    assert [await queue.get(), await queue.get()] == [A, B]
    assert repr(queue) == "KeyQueue(waiting=0, working=2)"


async def test_key_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    queue = frozen_queue()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert repr(queue) == "KeyQueue(waiting=0, working=1)"
    queue.done(A)
    assert await queue.get() == A
    queue.done(A)
    assert repr(queue) == "KeyQueue(waiting=0, working=0)"


async def test_get_waits_for_a_key() -> None:
    queue = frozen_queue()
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getting.done()
    queue.add(A)
    assert await getting == A


async def test_key_that_feeds_itself_is_slowed_down_and_others_are_not() -> None:
    queue = frozen_queue()
    for _ in range(int(BURST)):
        queue.add(A, urgent=True)
        queue.done(await queue.get())
    queue.add(A, urgent=True)
    queue.add(B)
    assert await queue.get() == B
    assert "waiting=1" in repr(queue)
    assert await queue.get() == A  # once its time has come


async def test_key_rests_after_its_turn_and_comes_at_once_when_it_has_rested() -> None:
    now = 0.0
    queue = KeyQueue(Clock(monotonic=lambda: now))
    queue.add(A)
    assert await is_ready(queue)
    queue.add(A)
    now = 1.0
    queue.done(A)
    queue.add(B)
    assert await queue.get() == B
    assert await queue.get() == A  # once it has rested
    queue.done(A)
    now += REST_S
    queue.add(A)
    assert await is_ready(queue)


@pytest.mark.parametrize(
    ("took_s", "rest_s"), [(REST_S / RESTS / 2, REST_S), (REST_S, REST_S * RESTS), (60.0, LONGEST_REST_S)]
)
async def test_rest_is_longer_after_a_reconcile_that_took_longer(took_s: float, rest_s: float) -> None:
    now = 1.0
    queue = KeyQueue(Clock(monotonic=lambda: now))
    queue.add(A)
    assert await is_ready(queue)
    now += took_s
    queue.done(A)
    assert queue._rests_until[A] - now == pytest.approx(rest_s)
    now += rest_s * 0.99
    queue.add(A)
    assert not await is_ready(queue)
    queue.close()


async def test_what_is_urgent_does_not_rest_whenever_it_comes() -> None:
    queue = frozen_queue()
    queue.add(A)
    assert await is_ready(queue)
    queue.add(A, urgent=True)
    queue.add(A)
    queue.done(A)
    assert await is_ready(queue), "it came while the key was worked on"
    queue.add(A)
    queue.done(A)
    assert not await is_ready(queue)
    queue.add(A, urgent=True)
    assert await is_ready(queue), "it came while the key rested"
    queue.done(A)
    queue.add(A, urgent=True)
    assert await is_ready(queue), "it came first"
    assert not queue._held


async def test_later_is_brought_forward_and_never_put_off() -> None:
    queue = frozen_queue()
    queue.add_later(A, 1000.0)
    queue.add_later(A, 0.0)
    queue.add_later(A, 1000.0)
    assert await queue.get() == A
    queue.close()


async def test_later_key_that_is_due_while_worked_on_comes_again() -> None:
    queue = frozen_queue()
    queue.add(A)
    await queue.get()
    queue.add_later(A, 0.0)
    await eventually(lambda: not queue._timers)
    queue.done(A)
    assert await queue.get() == A
