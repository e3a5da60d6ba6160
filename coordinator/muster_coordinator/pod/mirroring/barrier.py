"""Holds back offsets of a transaction until the mirror has all markers that were written before they came.

A marker names a producer and no group, and one that comes late would end the next transaction of its producer. Kafka
writes all markers of a transaction before it lets the next one begin. So they lie in front of the end that the
upstream partition has once a TxnOffsetCommit is here, and the commit waits until the mirror has read up to there.
Source: TransactionCoordinator (CONCURRENT_TRANSACTIONS while a transaction is in PrepareCommit or PrepareAbort).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.connection import UpstreamError

WAITING_MAX = 10_000
"""Commits of one partition that wait; one more is refused, and its client tries again."""


@dataclass(frozen=True)
class _Waiting:
    go_on: Callable[[], None]
    refuse: Callable[[ErrorCode], None]
    deadline_s: float  # of the event loop's clock


_Ends: TypeAlias = list[tuple[int, _Waiting]]


@dataclass
class _Partition:
    """`new`: those for which nobody has asked for the end yet. `ends`: those whose end is known and not reached."""

    new: list[_Waiting] = field(default_factory=list)
    ends: _Ends = field(default_factory=list)
    asking: asyncio.Task[None] | None = None


class Barrier:
    """`end_of`: asks the upstream for the end of a partition, and raises UpstreamError. `position_of`: how far its
    mirror here has read, -1 if there is none. `timeout_s`: longest wait of a commit."""

    def __init__(
        self, end_of: Callable[[int], Awaitable[int]], position_of: Callable[[int], int], timeout_s: float
    ) -> None:
        self._end_of = end_of
        self._position_of = position_of
        self._timeout_s = timeout_s
        self._partitions: dict[int, _Partition] = {}

    def after_markers(self, partition: int, go_on: Callable[[], None], refuse: Callable[[ErrorCode], None]) -> None:
        """Call `go_on` when the mirror of the upstream partition has read what it holds now. Call `refuse` with a code
        after which clients ask the same pod again, if that takes too long or the upstream cannot be asked."""
        waiting = self._partitions.setdefault(partition, _Partition())
        if len(waiting.new) + len(waiting.ends) >= WAITING_MAX:
            refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        loop = asyncio.get_running_loop()
        waiting.new.append(_Waiting(go_on, refuse, loop.time() + self._timeout_s))
        if waiting.asking is None:
            waiting.asking = loop.create_task(self._ask(partition, waiting))

    def advanced(self, partition: int) -> None:
        """The mirror of the partition has read more."""
        waiting = self._partitions.get(partition)
        if waiting is not None and waiting.ends:
            self._release(partition, waiting)

    def expire(self) -> None:
        """Refuse those that have waited too long. To be called again and again."""
        now_s = asyncio.get_running_loop().time()
        for waiting in self._partitions.values():
            overdue = [each for _, each in waiting.ends if each.deadline_s <= now_s]
            waiting.ends = [(end, each) for end, each in waiting.ends if each.deadline_s > now_s]
            _refuse(overdue)

    def stop(self) -> None:
        for waiting in self._partitions.values():
            if waiting.asking is not None:
                waiting.asking.cancel()

    async def _ask(self, partition: int, waiting: _Partition) -> None:
        """One question for all that have come before it; who comes meanwhile needs the next one."""
        try:
            while waiting.new:
                asked_for, waiting.new = waiting.new, []
                try:
                    end = await self._end_of(partition)
                except UpstreamError:
                    _refuse(asked_for)
                    continue
                waiting.ends += [(end, each) for each in asked_for]
                self._release(partition, waiting)
        finally:
            waiting.asking = None

    def _release(self, partition: int, waiting: _Partition) -> None:
        position = self._position_of(partition)
        reached = [each for end, each in waiting.ends if end <= position]
        waiting.ends = [(end, each) for end, each in waiting.ends if end > position]
        for each in reached:
            each.go_on()


def _refuse(all_of: list[_Waiting]) -> None:
    for each in all_of:
        each.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
