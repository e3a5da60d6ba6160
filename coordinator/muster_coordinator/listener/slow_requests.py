"""Tells requests that took long: by a line of the log, and by a span where there is a collector (docs/traces.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.answer_in_place import AnswerInPlace
from muster_coordinator.listener.audit import LONGEST_NAME
from muster_coordinator.listener.exchange import ClientAnswer, Exchange
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests.cluster import FetchRequest
from muster_coordinator.requests.groups import JoinGroupRequest, SyncGroupRequest
from muster_coordinator.shard.ports import Clock
from muster_coordinator.tracing.ports import Attribute, Spans

logger = structlog.get_logger(__name__)

Places = Callable[[Any], Mapping[str, "Attribute"]]
"""The place of the records of a request, as this pod and its followers have them when it is answered."""

WAIT_FOR_OTHERS = (JoinGroupRequest, SyncGroupRequest, FetchRequest)
"""Requests that wait for other members of the group, or for records, for as long as they ask for."""


TOLD = 20
"""Requests of one second that are told: where all are slow, a pod has thousands."""


class SlowRequests:
    """`longest_ms`: what takes so long, from its turn on the connection to its answer, is told, but for all above TOLD
    in one second: the next line says how many (`left_out`)."""

    def __init__(self, longest_ms: int, clock: Clock, places: Places, spans: Spans | None) -> None:
        self._longest_ms = longest_ms
        self._clock = clock
        self._places = places
        self._spans = spans
        self._second = 0
        self._told = 0
        self._left_out = 0

    def watched(self, handlers: Mapping[type, Handler]) -> dict[type, Handler]:
        """The handlers of a listener, with a look at the clock before and after each request."""
        return {
            kind: handler if issubclass(kind, WAIT_FOR_OTHERS) else self._watching(handler)
            for kind, handler in handlers.items()
        }

    def _watching(self, handler: Handler) -> Handler:
        def watch(request: Any, exchange: ClientAnswer) -> None:
            handler(request, WatchedAnswer(self, exchange, request, self._clock.monotonic_ms()))

        return watch

    def answered(self, exchange: ClientAnswer, request: Any, began_ms: int) -> None:
        took_ms = self._clock.monotonic_ms() - began_ms
        if took_ms >= self._longest_ms and self._has_room():
            self._tell(exchange, request, took_ms)

    def _has_room(self) -> bool:
        second = self._clock.monotonic_ms() // 1000
        if second != self._second:
            self._second, self._told = second, 0
        self._told += 1
        if self._told > TOLD:
            self._left_out += 1
        return self._told <= TOLD

    def _tell(self, exchange: ClientAnswer, request: Any, took_ms: int) -> None:
        assert isinstance(exchange, Exchange)  # `watched` is around everything else
        connection = exchange.connection
        known: dict[str, Attribute] = {
            "api": exchange.api.name,
            "version": exchange.version,
            "client_id": connection.client_id or "",
            "connection": connection.peer,
            "correlation_id": exchange.correlation_id,
            "principal": connection.identity.principal,
            "ms": took_ms,
            **self._places(request),
        }
        known = {name: each[:LONGEST_NAME] if isinstance(each, str) else each for name, each in known.items()}
        left_out, self._left_out = self._left_out, 0
        if left_out:
            known["left_out"] = left_out
        if self._spans is not None:
            now_s = self._clock.wall_ms() / 1000
            span = self._spans.begin("request", start_s=now_s - took_ms / 1000, attributes=known)
            span.end(now_s)
            known["trace"] = span.trace_id
        logger.warning("slow_request", **known)


class WatchedAnswer(AnswerInPlace):
    """The answer to a request that is timed."""

    __slots__ = ("_began_ms", "_slow")

    def __init__(self, slow: SlowRequests, exchange: ClientAnswer, request: Any, began_ms: int) -> None:
        super().__init__(exchange, request)
        self._slow = slow
        self._began_ms = began_ms

    def answer(self, response: Any) -> None:
        self._exchange.answer(response)
        self._slow.answered(self._exchange, self._request, self._began_ms)

    def refuse(self, code: ErrorCode) -> None:
        self._exchange.refuse(code)
        self._slow.answered(self._exchange, self._request, self._began_ms)
