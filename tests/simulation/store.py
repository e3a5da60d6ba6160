"""Where nominators record of each partition who leads, with compare-and-swap.

Faults: reads that show the past (a watch that lags), 410 (the watch must begin anew), 429, writes that lose (409), that
fail, that time out and were done, and outages of everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tests.simulation.injected import Injected
from tests.simulation.world import World

from muster_coordinator.replication.sets import Sets

__all__ = ["Api", "Record", "Recorded", "Store"]

T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    """What was recorded of one partition before a pod was called."""

    epoch: int
    leader: str  # pod
    sets: Sets
    opened: bool = False
    allow_loss: bool = False  # set by a person; elections pass it on until one of them succeeds
    version: int = 0


class Recorded(Protocol):
    """What whoever calls elections has recorded of one partition."""

    @property
    def record(self) -> Record: ...

    def allow_loss(self) -> bool:
        """A person's word."""
        ...


class Api:
    """What all partitions share. `lag_ms`: how late the watch of an operator is. `writer`: the last one that wrote."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.down_until = -1
        self.lag_ms: dict[str, int] = {}
        self.writer = ""

    def lag(self, operator: str) -> None:
        """Its watch shows the past for a while."""
        random = self.world.random
        self.lag_ms[operator] = random.randint(100, 2_000)
        self.world.at(random.randint(200, 3_000), lambda: self._catch_up(operator))

    def _catch_up(self, operator: str) -> None:
        self.lag_ms.pop(operator, None)

    def refuses(self, how: Injected = Injected.THROTTLED) -> bool:
        world = self.world
        if world.now_ms < self.down_until:
            how = Injected.OUTAGE
        elif not world.faults or world.random.random() >= world.options.api_errors:
            return False
        world.injected[how] += 1
        return True

    def seen(self, operator: str, past: Sequence[tuple[int, T]]) -> T | None:
        """Of (time, value), what the operator's watch shows; None: not now."""
        if self.refuses():
            return None
        if operator in self.lag_ms and self.refuses(Injected.WATCH_GONE):  # from a list on everything is fresh
            del self.lag_ms[operator]
            return None
        until = self.world.now_ms - self.lag_ms.get(operator, 0)
        found = next((value for at_ms, value in reversed(past) if at_ms <= until), past[0][1])
        if found is not past[-1][1]:
            self.world.injected[Injected.STALE_READ] += 1
        return found

    def may_write(self, seen_version: int, version: int) -> bool:
        """Whether a write reaches the object that was seen: else another writer was faster (409), or it failed."""
        if seen_version != version:
            self.world.injected[Injected.CONFLICT] += 1
            return False
        return not self.refuses()

    def wrote(self, operator: str) -> bool:
        """A write was done. False: its answer is lost."""
        if operator and self.writer not in ("", operator):
            self.world.injected[Injected.TWO_OPERATORS] += 1
        self.writer = operator or self.writer
        return not self.refuses(Injected.WRITE_UNKNOWN)


class Store:
    """The record of one partition."""

    def __init__(self, api: Api, record: Record) -> None:
        self.record = record
        self._api = api
        self._past: list[tuple[int, Record]] = [(0, record)]

    def read(self, operator: str) -> Record | None:
        """None: not now."""
        return self._api.seen(operator, self._past)

    def swap(self, expected: Record, value: Record, operator: str = "") -> bool:
        """False: another writer was faster (409), or it failed, or its answer was lost."""
        if not self._api.may_write(expected.version, self.record.version):
            return False
        self.record = replace(value, version=self.record.version + 1)
        self._past.append((self._api.world.now_ms, self.record))
        return self._api.wrote(operator)

    def allow_loss(self) -> bool:
        """A person's word."""
        return not self.record.allow_loss and self.swap(self.record, replace(self.record, allow_loss=True))
