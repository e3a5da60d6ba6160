"""One request of a connection and the place of its answer: answers leave a connection in the order of its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.shard.ports import Answer
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.framing import encode_response_frame

if TYPE_CHECKING:
    from muster_coordinator.listener.connection import KafkaConnection


class Exchange:
    """Implements `shard.ports.Answer`. One object per request: the only one that the hot path makes."""

    __slots__ = ("api", "connection", "correlation_id", "frame", "request", "size", "version")

    def __init__(
        self, connection: KafkaConnection, api: Api, version: int, correlation_id: int, request: Any, size: int
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.size = size  # of the request's frame
        self.frame: bytes | None = None  # the answer, while earlier requests of the connection are not answered

    def answer(self, response: Any) -> None:
        version = self.version
        api = self.api
        self.connection.complete(
            self, encode_response_frame(api, version, self.correlation_id, api.encode_response(version, response))
        )

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self.request, code))


class Gather:
    """Collects the answers of several shards for one request and passes them on together, in the order of the parts.

    ``combine`` gets the list of responses; a part that is refused contributes its refusal.
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
