"""The way of a request to the shard of its key, the same for both coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.replica.early_requests import PATIENCE_MS, may_wait
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState

SubmitEarly = Callable[[int, Any, Answer], None]
"""(partition, request, its answer): no shard leads the partition here."""

_ASKED_STATES = (ShardState.ACTIVE, ShardState.LOADING)


class ImageView(Protocol):
    """`image`: None before the first one."""

    @property
    def image(self) -> MetadataImage | None: ...

    def when_known(self, then: Callable[[], None]) -> None:
        """Call `then` once, with the first image."""
        ...


class ShardRoutes:
    """`key`: the field of a request that decides its partition. `partition_of`: the partition of a key; None while the
    partitions are not known, or if there are none."""

    def __init__(
        self,
        key: str,
        partition_of: Callable[[str], int | None],
        image_view: ImageView,
        shards: Mapping[int, Shard],
        submit_early: SubmitEarly,
    ) -> None:
        self._key_of = attrgetter(key)
        self._partition_of = partition_of
        self._image_view = image_view
        self._shards = shards
        self._submit_early = submit_early
        self._before_image: list[tuple[Any, Answer]] = []
        image_view.when_known(self._end_wait)

    def route(self, request: Any, answer: Answer) -> None:
        """Hand the request to the shard of its key. Refuse it if this pod neither leads the partition nor is about
        to."""
        partition = self._partition_of(self._key_of(request))
        shard = self._shards.get(partition) if partition is not None else None
        if shard is not None:
            shard.submit(request, answer)
        elif partition is not None:
            self._submit_early(partition, request, answer)
        elif self._image_view.image is None and may_wait(request):
            self._wait_for_image(request, answer)
        else:
            answer.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _wait_for_image(self, request: Any, answer: Answer) -> None:
        """A pod that has just started may be elected, and clients be sent here, before an operator has told it which
        partition a group is in: the first image comes a moment later, and the request is routed then. The limits of the
        connections bound how many wait."""
        if not self._before_image:
            asyncio.get_running_loop().call_later(PATIENCE_MS / 1000, self._end_wait)
        self._before_image.append((request, answer))

    def _end_wait(self) -> None:
        waiting, self._before_image = self._before_image, []
        for request, answer in waiting:
            if self._image_view.image is None:
                answer.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                self.route(request, answer)

    def _spread(self, requests: Sequence[Any], gather: Gather) -> None:
        """Each request to its own shard."""
        gather.spread(lambda index: self.route(requests[index], gather.part(index, requests[index])))

    def _ask_all(self, request: Any, current: range, combine: Callable[[Sequence[Any]], None]) -> None:
        """Every shard of this pod that is active or loading, without those that a re-shard has replaced. One after the
        other: each has much to say."""
        shards = [s for number, s in self._shards.items() if s.state in _ASKED_STATES and number in current]
        gather = Gather(len(shards), combine)
        gather.spread(lambda index: shards[index].submit(request, gather.part(index, request)), window=1)


def is_loading(parts: Sequence[Any]) -> bool:
    """True if a shard is loading, which makes the whole answer an error, as in Kafka."""
    return any(part.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for part in parts)
