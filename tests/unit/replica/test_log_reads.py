"""Who reads a log for other replicas, and when: elections and small lacks at once, the rest one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.replica import log_reads as module
from muster_coordinator.replica.log_reads import CATCH_UP, LITTLE_BYTES, LogReads
from muster_coordinator.replication.effects import ReadLog
from muster_coordinator.replication.messages import Batch
from muster_coordinator.tuning.pacing import Urgency

MUCH = LITTLE_BYTES + 1


class Reader:
    def __init__(self, error: Exception | None, in_memory: bool) -> None:
        self.in_memory = in_memory
        self._error = error

    def run(self) -> tuple[int, list[tuple[int, int, int, bytes]]]:
        if self._error is not None:
            raise self._error
        return 3, [(2, 3, 1, b"batch")]


class Replica:
    """A replica and its log. `lacks_bytes`: what is to be read."""

    def __init__(self, name: str, lacks_bytes: int, error: Exception | None = None, in_memory: bool = False) -> None:
        self.name = name
        self.is_open = True
        self.log = self
        self._lacks_bytes = lacks_bytes
        self._reader = Reader(error, in_memory)

    def bytes_from(self, offset: int) -> int:
        return self._lacks_bytes

    def read_range(self, start: int, bytes_max: int) -> Reader:
        if not self.is_open:
            raise AssertionError("the log is closed")
        return self._reader


class Pod:
    """`under_way`: reads that wait for the disk, each with the future that ends it."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self.reads = LogReads(self, now_s)
        self.under_way: list[asyncio.Future[None]] = []
        self.done: list[str] = []
        self.errors: list[Exception | None] = []
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(coroutine))
        return self.tasks[-1]

    async def blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.under_way.append(disk)
        await disk
        return function(*arguments)

    def read(self, replica: Replica, urgency: Urgency = Urgency.BACKGROUND) -> None:
        def done(end: int, batches: list[Batch], error: Exception | None) -> None:
            self.done.append(replica.name)
            self.errors.append(error)
            if error is None:
                assert (end, batches) == (3, [Batch(2, 3, 1, b"batch")])

        self.reads.read(cast(Any, replica), ReadLog(1, 2, 1 << 20, urgency), done)

    async def disk_answers(self) -> None:
        """Every read that waits now."""
        waiting, self.under_way = self.under_way, []
        for disk in waiting:
            disk.set_result(None)
        await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each rest was to be, in seconds; none lasts."""
    asked: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            asked.append(seconds)
        await real(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return asked


async def test_those_that_lack_much_are_read_one_after_the_other(rests: list[float]) -> None:
    pod = Pod()
    for name, lacks in (("a", 3 * MUCH), ("b", 2 * MUCH), ("c", MUCH), ("d", 2 * MUCH)):
        pod.read(Replica(name, lacks))
    await turns()
    for count in range(1, 5):
        assert len(pod.under_way) == 1
        await pod.disk_answers()
        assert len(pod.done) == count
    assert pod.done == ["a", "b", "c", "d"]
    assert not pod.under_way
    pod.read(Replica("later", MUCH))
    await turns()
    await pod.disk_answers()
    assert pod.done[-1] == "later"


async def test_each_is_followed_by_a_rest_that_is_bounded(rests: list[float]) -> None:
    now = iter([10.0, 10.001, 20.0, 20.5])
    pod = Pod(lambda: next(now))
    pod.read(Replica("quick", MUCH))
    pod.read(Replica("slow", MUCH))
    await turns()
    await pod.disk_answers()
    await pod.disk_answers()
    assert rests == [pytest.approx(CATCH_UP.after(0.001)), CATCH_UP.longest_s]


@pytest.mark.parametrize(("lacks", "urgency"), [(LITTLE_BYTES, Urgency.BACKGROUND), (10 * MUCH, Urgency.ELECTION)])
async def test_what_is_little_or_waited_for_by_an_election_passes_by(lacks: int, urgency: Urgency) -> None:
    pod = Pod()
    pod.read(Replica("behind", MUCH))
    pod.read(Replica("also behind", MUCH))
    pod.read(Replica("first", lacks), urgency)
    await turns()
    assert len(pod.under_way) == 2  # one of those behind, and the first
    pod.read(Replica("in memory", lacks, in_memory=True), urgency)
    assert pod.done == ["in memory"]
    await pod.disk_answers()
    assert sorted(pod.done) == ["behind", "first", "in memory"]


@pytest.mark.parametrize("error", [OSError("gone"), DamagedLogError(Path("log"), 0, "no batch here")])
async def test_a_read_that_fails_says_so_and_the_next_one_comes(error: Exception, rests: list[float]) -> None:
    pod = Pod()
    pod.read(Replica("bad", MUCH, error))
    pod.read(Replica("good", MUCH))
    await turns()
    await pod.disk_answers()
    await pod.disk_answers()
    assert pod.done == ["bad", "good"]
    assert pod.errors == [error, None]


async def test_a_log_that_was_closed_meanwhile_is_passed_over(rests: list[float]) -> None:
    pod = Pod()
    pod.read(Replica("first", MUCH))
    closed = Replica("closed", MUCH)
    pod.read(closed)
    pod.read(Replica("last", MUCH))
    closed.is_open = False
    await turns()
    await pod.disk_answers()
    await pod.disk_answers()
    assert pod.done == ["first", "last"]


async def test_a_defect_in_one_read_does_not_end_all_later_ones(rests: list[float]) -> None:
    pod = Pod()
    pod.read(Replica("bad", MUCH, RuntimeError("a defect")))
    await turns()
    await pod.disk_answers()
    assert [isinstance(task.exception(), RuntimeError) for task in pod.tasks] == [True]
    pod.read(Replica("good", MUCH))
    await turns()
    await pod.disk_answers()
    assert pod.done == ["good"]
