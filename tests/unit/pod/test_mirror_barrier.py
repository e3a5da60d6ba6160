"""Offsets of a transaction wait for the markers that were written before they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.barrier import WAITING_MAX, Barrier
from muster_coordinator.pod.mirroring.connection import UpstreamError

TIMEOUT_S = 5.0


class Upstream:
    """Answers questions when the test says so."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.questions: list[asyncio.Future[int]] = []
        self.position = 0
        self.passed: list[str] = []
        self.refused: list[ErrorCode] = []
        self.barrier = Barrier(self._ask, lambda _: self.position, timeout_s)

    async def _ask(self, partition: int) -> int:
        question: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.questions.append(question)
        return await question

    async def commit(self, name: str) -> None:
        self.barrier.after_markers(1, self._passes(name), self.refused.append)
        await settle()

    def _passes(self, name: str) -> Callable[[], None]:
        return lambda: self.passed.append(name)

    async def answer(self, end: int) -> None:
        next(question for question in self.questions if not question.done()).set_result(end)
        await settle()

    async def read_up_to(self, offset: int) -> None:
        self.position = offset
        self.barrier.advanced(1)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_commit_passes_when_the_mirror_has_read_up_to_the_end_of_then() -> None:
    upstream = Upstream()
    await upstream.commit("a")
    await upstream.answer(10)
    await upstream.read_up_to(9)
    assert upstream.passed == []
    await upstream.read_up_to(10)
    assert upstream.passed == ["a"]


async def test_a_mirror_that_is_at_the_end_holds_nothing_up() -> None:
    upstream = Upstream()
    upstream.position = 10
    await upstream.commit("a")
    await upstream.answer(10)
    assert upstream.passed == ["a"]


async def test_the_end_is_asked_for_after_a_commit_came_never_before() -> None:
    """The answer on its way may have been given before a marker that the later commit has to wait for."""
    upstream = Upstream()
    await upstream.commit("a")
    await upstream.commit("b")
    await upstream.commit("c")
    assert len(upstream.questions) == 1
    upstream.position = 10
    await upstream.answer(10)
    assert upstream.passed == ["a"]
    assert len(upstream.questions) == 2
    await upstream.answer(11)
    assert upstream.passed == ["a"]
    await upstream.read_up_to(11)
    assert upstream.passed == ["a", "b", "c"]


async def test_an_upstream_that_cannot_be_asked_lets_clients_try_again() -> None:
    upstream = Upstream()
    await upstream.commit("a")
    upstream.questions[0].set_exception(UpstreamError("it is away"))
    await settle()
    assert upstream.refused == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    upstream.position = 3
    await upstream.commit("b")
    await upstream.answer(3)
    assert upstream.passed == ["b"]


async def test_a_commit_that_waits_too_long_is_refused_and_passes_no_more() -> None:
    upstream = Upstream(timeout_s=0.0)
    await upstream.commit("a")
    await upstream.answer(10)
    upstream.barrier.expire()
    assert upstream.refused == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    await upstream.read_up_to(10)
    assert upstream.passed == []


async def test_only_so_many_wait() -> None:
    upstream = Upstream()
    for _ in range(WAITING_MAX):
        upstream.barrier.after_markers(1, lambda: None, upstream.refused.append)
    assert upstream.refused == []
    await upstream.commit("one more")
    assert upstream.refused == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    upstream.barrier.stop()
