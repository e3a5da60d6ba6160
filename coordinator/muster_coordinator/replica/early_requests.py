"""Requests for a partition whose replica here is being elected. They run right after the first record of the epoch, and
are answered when that is committed: a client that is refused tries again only after its backoff, 100 ms in Kafka's own.

OffsetFetch waits as well while the replica hears no leader: the image may have sent the client here before the call to
the election came, and librdkafka raises NOT_COORDINATOR from `committed()`. A write does not wait then. Its client may
have given it up when it runs, and offsets that are written for a transaction which has ended since never leave it.

Kafka answers NOT_COORDINATOR until the load begins, and then COORDINATOR_LOAD_IN_PROGRESS (GroupCoordinatorService). A
pod here does the same when another replica leads, when nobody does for long, and when an election takes long because
much has to be fetched or loaded.
"""

from __future__ import annotations

from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.groups import OffsetFetchRequest
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard

PATIENCE_MS = 1_000
"""Requests wait this long for a leader, or for the first image, and the callers of an election for its end. Most
elections end in a fraction of it, and clients wait for an answer for about 30 s before they give up."""


def may_wait(request: Any) -> bool:
    """True if `request` may wait for a leader, or for the first image, while no election has begun."""
    return isinstance(request, OffsetFetchRequest)


class EarlyRequests:
    """The early requests of one replica. The limits of the connections bound their number."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, Answer]] = []
        self._since_ms = 0  # the first of them

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: Any, answer: Answer, now_ms: int) -> None:
        if not self._waiting:
            self._since_ms = now_ms
        self._waiting.append((request, answer))

    def settle(self, shard: Shard | None, *, electing: bool, led_elsewhere: bool, now_ms: int) -> None:
        """Settles requests after an event of the replica: submits them to `shard`, in order, or refuses them, if their
        wait is over. `electing`: the replica here is. `led_elsewhere`: it hears a leader."""
        if shard is not None:  # it runs them, or refuses them while it loads
            for request, answer in self._taken():
                shard.submit(request, answer)
        elif (led_elsewhere and not electing) or now_ms - self._since_ms >= PATIENCE_MS:
            self.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if electing else ErrorCode.NOT_COORDINATOR)
        elif not electing:  # it has failed, or never began
            self._refuse_writes()

    def _refuse_writes(self) -> None:
        for request, answer in self._taken():
            if may_wait(request):
                self._waiting.append((request, answer))
            else:
                answer.refuse(ErrorCode.NOT_COORDINATOR)

    def refuse(self, code: ErrorCode) -> None:
        for _, answer in self._taken():
            answer.refuse(code)

    def _taken(self) -> list[tuple[Any, Answer]]:
        waiting, self._waiting = self._waiting, []
        return waiting
