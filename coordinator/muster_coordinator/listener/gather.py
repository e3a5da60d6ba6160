"""One request whose parts several shards answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.shard.ports import Answer


class Gather:
    """Collects the answers of several shards to one request and passes them on together, in the order of the parts.

    `combine` gets the list of responses; a part that is refused contributes its refusal.
    """

    def __init__(self, count: int, combine: Callable[[Sequence[Any]], None]) -> None:
        self._responses: list[Any] = [None] * count
        self._missing = count
        self._combine = combine
        if count == 0:
            combine(())

    def part(self, index: int, request: Any) -> Answer:
        return _Part(self, index, request)

    def complete(self, index: int, response: Any) -> None:
        self._responses[index] = response
        self._missing -= 1
        if self._missing == 0:
            self._combine(self._responses)


class _Part:
    __slots__ = ("_gather", "_index", "_request")

    def __init__(self, gather: Gather, index: int, request: Any) -> None:
        self._gather = gather
        self._index = index
        self._request = request

    def answer(self, response: Any) -> None:
        self._gather.complete(self._index, response)

    def refuse(self, code: ErrorCode) -> None:
        self._gather.complete(self._index, refusal(self._request, code))
