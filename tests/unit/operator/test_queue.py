"""The queue: serial per key, each key once, with a rest after each turn."""

from __future__ import annotations

import asyncio

from tests.unit.podapi.fake_server import eventually

from muster_operator.queue import REST_S, KeyQueue
from muster_operator.store.port import ClusterKey

A, B = ClusterKey("ns", "a"), ClusterKey("ns", "b")


async def is_ready(queue: KeyQueue) -> bool:
    """Whether the next key comes at once. It is taken."""
    try:
        async with asyncio.timeout(0):
            await queue.get()
    except TimeoutError:
        return False
    return True


async def test_key_added_twice_comes_once() -> None:
    queue = KeyQueue()
    queue.add(A)
    queue.add(B)
    queue.add(A)
    assert [await queue.get(), await queue.get()] == [A, B]
    assert repr(queue) == "KeyQueue(waiting=0, working=2)"


async def test_key_added_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    queue = KeyQueue()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert repr(queue) == "KeyQueue(waiting=0, working=1)"
    queue.done(A)
    assert await queue.get() == A
    queue.done(A)
    await eventually(lambda: repr(queue) == "KeyQueue(waiting=0, working=0)")


async def test_get_waits_for_a_key() -> None:
    queue = KeyQueue()
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getting.done()
    queue.add(A)
    assert await getting == A


async def test_key_that_feeds_itself_is_slowed_down_and_others_are_not() -> None:
    queue, loop = KeyQueue(), asyncio.get_running_loop()
    queue.add(A)
    began = loop.time()
    for _ in range(3):
        assert await queue.get() == A
        queue.add(A)
        queue.done(A)
    queue.add(B)
    assert await is_ready(queue), "B does not rest"
    assert await queue.get() == A
    assert loop.time() - began >= 3 * REST_S * 0.99


async def test_key_rests_after_its_turn_and_comes_at_once_when_it_has_rested() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert await is_ready(queue)
    queue.done(A)
    queue.add(A)
    assert not await is_ready(queue)
    assert await queue.get() == A
    queue.done(A)
    await eventually(lambda: not queue._working)
    queue.add(A)
    assert await is_ready(queue)


async def test_closed_queue_has_no_timer_left() -> None:
    queue = KeyQueue()
    queue.add_later(A, 0.0)
    queue.add(B)
    queue.done(await queue.get())
    queue.close()
    await asyncio.sleep(2 * REST_S)
    assert repr(queue) == "KeyQueue(waiting=0, working=1)"


async def test_later_is_brought_forward_and_never_put_off() -> None:
    queue = KeyQueue()
    queue.add_later(A, 1000.0)
    queue.add_later(A, 0.0)
    queue.add_later(A, 1000.0)
    assert await queue.get() == A
    queue.close()


async def test_later_key_that_is_due_while_worked_on_comes_again() -> None:
    queue = KeyQueue()
    queue.add(A)
    await queue.get()
    queue.add_later(A, 0.0)
    await eventually(lambda: not queue._later)
    queue.done(A)
    assert await queue.get() == A
