"""OffsetDelete of many partitions, some at a time: others have their turn between two parts.

Each part is an operation of its own. Tombstones need not come together, and a client that is answered with an error
asks again for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.groups import OffsetDeleteRequest, OffsetDeleteResponse
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.shard.ports import Answer

_UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_Topics = tuple[tuple[str, tuple[int, ...]], ...]
_Codes = tuple[tuple[int, int], ...]


def is_large(request: OffsetDeleteRequest) -> bool:
    count = len(request.topics)
    for _, partitions in request.topics:
        count += len(partitions)
    return count > SLICE_ENTRIES


class OffsetDeletion:
    """Implements `shard.ports.Answer` for each part of a request. `route` hands a part to the shard of the group."""

    def __init__(
        self, request: OffsetDeleteRequest, route: Callable[[OffsetDeleteRequest, Answer], None], answer: Answer
    ) -> None:
        self._request = request
        self._parts = _parts(request.topics)
        self._route = route
        self._answer = answer
        self._unknown: dict[str, _Codes] = {}
        self._others: dict[str, _Codes] = {}

    def go_on(self) -> None:
        """Ask for the next part, or answer."""
        topics = next(self._parts, None)
        if topics is not None:
            self._route(replace(self._request, topics=topics), self)
            return
        found = self._unknown  # these come first, and each topic is there once, as in the answer to one part
        for topic, codes in self._others.items():
            found[topic] = found.get(topic, ()) + codes
        self._answer.answer(OffsetDeleteResponse(ErrorCode.NONE, tuple(found.items())))

    def answer(self, response: OffsetDeleteResponse) -> None:
        if response.error_code:
            self._answer.answer(response)
            return
        for topic, codes in response.topics:
            unknown = tuple([each for each in codes if each[1] == _UNKNOWN])
            if unknown:
                self._unknown[topic] = self._unknown.get(topic, ()) + unknown
            if len(unknown) < len(codes):
                others = tuple([each for each in codes if each[1] != _UNKNOWN])
                self._others[topic] = self._others.get(topic, ()) + others
        self.go_on()

    def refuse(self, code: ErrorCode) -> None:
        self._answer.refuse(code)


def _parts(topics: _Topics) -> Iterator[_Topics]:
    """The topics in their order, SLICE_ENTRIES of them and their partitions at a time."""
    part: list[tuple[str, tuple[int, ...]]] = []
    room = SLICE_ENTRIES
    for topic, partitions in topics:
        start = 0
        while True:
            some = partitions[start : start + room]
            part.append((topic, some))
            start += len(some)
            room -= len(some) + 1
            if room <= 0:
                yield tuple(part)
                part, room = [], SLICE_ENTRIES
            if start >= len(partitions):
                break
    if part:
        yield tuple(part)
