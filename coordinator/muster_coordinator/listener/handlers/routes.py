"""The way of a request to the shard of its key, the same for both coordinators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState

SubmitEarly = Callable[[int, Any, Answer], None]
"""(partition, request, its answer): no shard leads the partition here."""

_ASKED_STATES = (ShardState.ACTIVE, ShardState.LOADING)


class ShardRoutes:
    """`key`: the field of a request that decides its partition. `partition_of`: the partition of a key; None while the
    partitions are not known."""

    def __init__(
        self,
        key: str,
        partition_of: Callable[[str], int | None],
        shards: Mapping[int, Shard],
        submit_early: SubmitEarly,
    ) -> None:
        self._key_of = attrgetter(key)
        self._partition_of = partition_of
        self._shards = shards
        self._submit_early = submit_early

    def route(self, request: Any, answer: Answer) -> None:
        """Hand the request to the shard of its key. Refuse it if this pod neither leads the partition nor is about
        to."""
        partition = self._partition_of(self._key_of(request))
        shard = self._shards.get(partition) if partition is not None else None
        if shard is not None:
            shard.submit(request, answer)
        elif partition is None:
            answer.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._submit_early(partition, request, answer)

    def _spread(self, requests: Sequence[Any], gather: Gather) -> None:
        """Each request to its own shard."""
        for index, request in enumerate(requests):
            self.route(request, gather.part(index, request))

    def _ask_all(self, request: Any, current: range, combine: Callable[[Sequence[Any]], None]) -> None:
        """Every shard of this pod that is active or loading, without those that a re-shard has replaced."""
        shards = [s for number, s in self._shards.items() if s.state in _ASKED_STATES and number in current]
        gather = Gather(len(shards), combine)
        for index, shard in enumerate(shards):
            shard.submit(request, gather.part(index, request))


def is_loading(parts: Sequence[Any]) -> bool:
    """Whether a shard is loading: that makes the whole answer an error, as in Kafka."""
    return any(part.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for part in parts)
