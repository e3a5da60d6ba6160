"""The API server: the status of each partition, with compare-and-swap.

Faults: reads that show the past (a watch that lags), 410 (the watch must begin anew), 429, writes that lose (409), that
fail, that time out and were done, and outages of everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.simulation.world import World

from muster_coordinator.replication.sets import Sets

__all__ = ["Api", "Record", "Store"]


@dataclass(frozen=True)
class Record:
    """The status of an OffsetsPartition."""

    epoch: int
    leader: str  # pod
    sets: Sets
    opened: bool = False
    allow_loss: bool = False  # set by a person; elections pass it on until one of them succeeds
    version: int = 0


class Api:
    """What all partitions share. ``lag_ms``: how late each operator's watch is."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.down_until = -1
        self.lag_ms: dict[str, int] = {}

    def lag(self, operator: str) -> None:
        """Its watch shows the past for a while."""
        random = self.world.random
        self.lag_ms[operator] = random.randint(100, 2_000)
        self.world.at(random.randint(200, 3_000), lambda: self._catch_up(operator))

    def _catch_up(self, operator: str) -> None:
        self.lag_ms.pop(operator, None)

    def refuses(self) -> bool:
        world = self.world
        return world.now_ms < self.down_until or (world.faults and world.random.random() < world.options.api_errors)


class Store:
    """Of one partition."""

    def __init__(self, api: Api, record: Record) -> None:
        self.record = record
        self._api = api
        self._past: list[tuple[int, Record]] = [(0, record)]

    def read(self, operator: str) -> Record | None:
        """None: not now."""
        if self._api.refuses():
            return None
        lag_ms = self._api.lag_ms.get(operator, 0)
        if not lag_ms:
            return self.record
        if self._api.refuses():  # 410: from a list on everything is fresh
            del self._api.lag_ms[operator]
            return None
        until = self._api.world.now_ms - lag_ms
        return next((record for at_ms, record in reversed(self._past) if at_ms <= until), self._past[0][1])

    def swap(self, expected: Record, value: Record) -> bool:
        """False: somebody else wrote (409), or it failed, or nobody knows."""
        if expected.version != self.record.version or self._api.refuses():
            return False
        self.record = replace(value, version=self.record.version + 1)
        self._past.append((self._api.world.now_ms, self.record))
        return not self._api.refuses()

    def allow_loss(self) -> bool:
        """A person's word."""
        return not self.record.allow_loss and self.swap(self.record, replace(self.record, allow_loss=True))
