"""What clients feel: the codes in every response, and how long requests take."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.listener.clients import Transport, frame
from tests.unit.wire.response_examples import RESPONSES

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.state import ServerState
from muster_coordinator.requests.error_codes import error_codes
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.shard.metrics import BOUNDS_MS
from muster_coordinator.wire.apis import APIS

HEARTBEAT = 12


def codes_in(described: Any) -> set[int]:
    """Those other than NONE in what the schemas of Kafka make a response of."""
    if isinstance(described, list):
        return {code for each in described for code in codes_in(each)}
    if not isinstance(described, dict):
        return set()
    below = {code for each in described.values() for code in codes_in(each)}
    return below | ({int(described["error_code"])} - {0} if "error_code" in described else set())


WITH_NAMES = ((8, 9), (9, 9), (28, 5))
"""The last versions of OffsetCommit, OffsetFetch and TxnOffsetCommit that name topics."""


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
@pytest.mark.parametrize(("key", "version"), [*((api.key, api.max_version) for api in APIS.values()), *WITH_NAMES])
def test_codes_of_every_response_are_found(key: int, version: int, data: st.DataObject) -> None:
    draw, describe = RESPONSES[key]
    response = data.draw(draw(version))
    assert set(error_codes(response)) == codes_in(describe(response, version))


class Clock:
    now_s = 5.0

    def monotonic_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class Asked:
    """A connection whose Heartbeats wait until the test answers them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.held: list[Any] = []
        self.state = ServerState(ListenerSettings(), self.clock)
        handlers = {HeartbeatRequest: lambda _request, exchange: self.held.append(exchange)}
        self.connection = KafkaConnection(self.state, handlers)
        self.connection.connection_made(cast(asyncio.Transport, Transport()))

    async def asks(self, count: int) -> None:
        self.connection.data_received(frame() * count)
        while len(self.held) < count:
            await asyncio.sleep(0)  # the connection's turn

    def took(self) -> list[tuple[float, int]]:
        """(bound in ms, requests that took no longer, but longer than the bound before)."""
        counts = self.state.counts.times[HEARTBEAT].counts
        return [(bound, count) for bound, count in zip(BOUNDS_MS, counts, strict=False) if count]


async def test_request_takes_from_its_last_byte_to_its_answer() -> None:
    asked = Asked()
    whole = frame()
    asked.connection.data_received(whole[:-1])
    asked.clock.now_s += 60
    asked.connection.data_received(whole[-1:])
    while not asked.held:
        await asyncio.sleep(0)
    asked.clock.now_s += 0.02
    asked.held[0].answer(HeartbeatResponse(ErrorCode.NONE))
    assert asked.took() == [(25.0, 1)]
    assert asked.state.counts.times[HEARTBEAT].sum_ms == pytest.approx(20)
    assert not asked.state.counts.errors


async def test_answer_that_waits_for_an_earlier_one_takes_until_it_leaves() -> None:
    asked = Asked()
    await asked.asks(2)
    asked.held[1].refuse(ErrorCode.REBALANCE_IN_PROGRESS)
    assert asked.took() == []
    asked.clock.now_s += 0.2
    asked.held[0].answer(HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    assert asked.took() == [(250.0, 2)]
    assert asked.state.counts.errors == {
        (HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS): 1,
        (HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID): 1,
    }
