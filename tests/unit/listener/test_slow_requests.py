"""Requests that take long are told with who asked, on which connection, and where their records are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.support.spans import KeptSpans, attributes
from tests.unit.listener.clients import Transport, frame

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.audit import LONGEST_NAME
from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.slow_requests import TOLD, SlowRequests
from muster_coordinator.listener.state import ServerState
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from muster_coordinator.settings import ListenerSettings

LONGEST_MS = 200


class Clock:
    now_ms = 5000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms


class Watched:
    """One connection whose Heartbeats are held until the test answers them."""

    def __init__(self, spans: KeptSpans | None = None) -> None:
        self.clock = Clock()
        self.held: list[Any] = []
        self.slow = SlowRequests(LONGEST_MS, self.clock, self._places, spans)
        handlers = self.slow.watched({HeartbeatRequest: lambda _request, exchange: self.held.append(exchange)})
        self.connection = KafkaConnection(ServerState(ListenerSettings(), self.clock), handlers)
        self.transport = Transport()
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def _places(self, request: HeartbeatRequest) -> dict[str, Any]:
        return {"group": request.group_id, "partition": 7, "epoch": 3, "commit_point": 42, "followers": ["muster-1=40"]}

    async def asks(self, client_id: str = "billing-1") -> Any:
        self.connection.data_received(frame(client_id))
        while not self.held:
            await asyncio.sleep(0)  # the connection's turn
        return self.held.pop()


@pytest.fixture
def lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as logs:
        yield logs


async def test_slow_request_is_told_with_client_connection_and_place(lines: list[MutableMapping[str, Any]]) -> None:
    watched = Watched()
    exchange = await watched.asks()
    watched.clock.now_ms += LONGEST_MS
    exchange.answer(HeartbeatResponse(ErrorCode.NONE))
    await asyncio.sleep(0)
    assert watched.transport.written, "the client has its answer"
    assert lines == [
        {
            "event": "slow_request",
            "log_level": "warning",
            "api": "Heartbeat",
            "version": 0,
            "client_id": "billing-1",
            "connection": "127.0.0.1:1",
            "correlation_id": 1,
            "principal": "User:ANONYMOUS",
            "ms": LONGEST_MS,
            "group": "g",
            "partition": 7,
            "epoch": 3,
            "commit_point": 42,
            "followers": ["muster-1=40"],
        }
    ]


async def test_request_that_is_refused_late_is_told_too_and_a_fast_one_is_not(
    lines: list[MutableMapping[str, Any]],
) -> None:
    watched = Watched()
    exchange = await watched.asks()
    watched.clock.now_ms += LONGEST_MS - 1
    exchange.answer(HeartbeatResponse(ErrorCode.NONE))
    assert lines == []
    exchange = await watched.asks()
    watched.clock.now_ms += LONGEST_MS
    exchange.refuse(ErrorCode.NOT_COORDINATOR)
    assert [each["event"] for each in lines] == ["slow_request"]


async def test_slow_request_is_a_span_and_its_line_names_the_trace(lines: list[MutableMapping[str, Any]]) -> None:
    spans = KeptSpans()
    watched = Watched(spans)
    exchange = await watched.asks()
    watched.clock.now_ms += 300
    exchange.answer(HeartbeatResponse(ErrorCode.NONE))
    (span,) = spans.ended
    assert span.start_time is not None
    assert span.end_time is not None
    assert round((span.end_time - span.start_time) / 1e6) == 300
    assert attributes(span)["connection"] == "127.0.0.1:1"
    assert attributes(span)["followers"] == ("muster-1=40",)
    assert lines[0]["trace"] == f"{span.get_span_context().trace_id:032x}"


async def test_slow_pod_fills_no_disk(lines: list[MutableMapping[str, Any]]) -> None:
    watched = Watched()
    for _ in range(TOLD + 5):
        exchange = await watched.asks(client_id="n" * 3_000)
        watched.clock.now_ms += 1000
        exchange.answer(HeartbeatResponse(ErrorCode.NONE))
    assert len(lines) == TOLD + 5, "in as many seconds"
    assert len(lines[0]["client_id"]) == LONGEST_NAME
    lines.clear()
    held = [await watched.asks() for _ in range(TOLD + 5)]
    watched.clock.now_ms += 1000
    for exchange in held:
        exchange.answer(HeartbeatResponse(ErrorCode.NONE))
    assert len(lines) == TOLD
    exchange = await watched.asks()
    watched.clock.now_ms += 1000
    exchange.answer(HeartbeatResponse(ErrorCode.NONE))
    assert [each.get("left_out") for each in lines] == [None] * TOLD + [5]


def test_requests_that_wait_for_others_are_not_watched() -> None:
    def handler(_request: Any, _exchange: Any) -> None:
        raise AssertionError

    slow = SlowRequests(LONGEST_MS, Clock(), lambda _request: {}, None)
    watched = slow.watched({JoinGroupRequest: handler, HeartbeatRequest: handler})
    assert watched[JoinGroupRequest] is handler
    assert watched[HeartbeatRequest] is not handler
