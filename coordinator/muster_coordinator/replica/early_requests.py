"""Requests for a partition whose replica here is being elected. They wait for the first record of its epoch, run
behind it, and are answered with it: a client that is refused comes back after its backoff, 100 ms with Kafka's own.

Kafka answers NOT_COORDINATOR until the load begins, and then COORDINATOR_LOAD_IN_PROGRESS (GroupCoordinatorService). So
does a pod here once an election takes long, because much has to be fetched or loaded.
"""

from __future__ import annotations

from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.shard.answers import Answer
from muster_coordinator.shard.shard import Shard

__all__ = ["PATIENCE_MS", "EarlyRequests"]

PATIENCE_MS = 1_000
"""Most elections end in a fraction of this; clients wait for an answer for 30 s or so before they give up."""


class EarlyRequests:
    """Of one replica. As many as the connections of a pod may have under way."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, Answer]] = []
        self._since_ms = 0  # the first of them

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: Any, answer: Answer, now_ms: int) -> None:
        if not self._waiting:
            self._since_ms = now_ms
        self._waiting.append((request, answer))

    def settle(self, shard: Shard | None, *, electing: bool, now_ms: int) -> None:
        """After an event of the replica: those that wait for nothing any more go on, in order, or are refused."""
        if shard is not None:  # it takes them, or is loading, and says so
            for request, answer in self._taken():
                shard.submit(request, answer)
        elif not electing:
            self.refuse(ErrorCode.NOT_COORDINATOR)
        elif now_ms - self._since_ms >= PATIENCE_MS:
            self.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def refuse(self, code: ErrorCode) -> None:
        for _, answer in self._taken():
            answer.refuse(code)

    def _taken(self) -> list[tuple[Any, Answer]]:
        waiting, self._waiting = self._waiting, []
        return waiting
