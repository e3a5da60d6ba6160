"""A connection whose large request is being decoded or answered, and what may happen to it meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance.requests import build
from tests.support.kafka import encode_request
from tests.unit.listener.clients import Clients, describe_groups, frame

from muster_coordinator.requests.cluster import (
    Coordinator,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse
from muster_coordinator.wire import k10_find_coordinator
from muster_coordinator.wire.framing import encode_response_frame

GROUPS = 20_000
A_FEW_SLICES = 1500
"""Groups of a request that leaves room in the turn in which it comes."""


class Served:
    """A connection of its own, and what its client asked for, in the order in which it was carried out."""

    def __init__(self) -> None:
        self.clients = Clients(1)
        (self.connection,) = self.clients.connections
        (self.transport,) = self.clients.transports
        self.carried_out: list[type] = []
        self.handlers: dict[type, Any] = {
            DescribeGroupsRequest: self._take(DescribeGroupsResponse(())),
            HeartbeatRequest: self._take(HeartbeatResponse(0)),
        }
        self.connection.serve(self.handlers)

    def _take(self, response: object) -> Any:
        def take(request: object, exchange: Any) -> None:
            self.carried_out.append(type(request))
            exchange.answer(response)

        return take

    async def until_answered(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.carried_out) < count or self.connection.answers.pending:
                await asyncio.sleep(0)


async def test_the_order_of_requests_is_kept() -> None:
    served = Served()
    served.connection.data_received(frame() + describe_groups(A_FEW_SLICES) + frame())
    assert served.carried_out == [HeartbeatRequest]
    await served.until_answered(3)
    assert served.carried_out == [HeartbeatRequest, DescribeGroupsRequest, HeartbeatRequest]


async def test_it_counts_as_memory_until_it_is_answered() -> None:
    served = Served()
    served.connection.data_received(describe_groups(GROUPS))
    assert served.connection.held_bytes >= 6 * GROUPS
    await served.until_answered(1)
    served.connection.count()
    assert served.connection.held_bytes == 0


async def test_a_connection_that_decodes_is_not_idle() -> None:
    served = Served()
    served.connection.data_received(describe_groups(GROUPS))
    assert not served.connection.is_idle
    await served.until_answered(1)
    assert served.connection.is_idle


async def test_a_client_that_sends_no_more_gets_its_answer() -> None:
    served = Served()
    held: list[Any] = []
    served.handlers[HeartbeatRequest] = lambda _, exchange: held.append(exchange)
    served.connection.data_received(frame() + describe_groups(GROUPS))
    assert served.connection.eof_received()
    held[0].answer(HeartbeatResponse(0))
    assert not served.transport.is_closed
    async with asyncio.timeout(30):
        while not served.transport.is_closed:
            await asyncio.sleep(0)
    assert served.carried_out == [DescribeGroupsRequest]
    assert served.transport.written


async def test_nothing_is_carried_out_for_a_client_that_is_gone() -> None:
    served = Served()
    served.connection.data_received(describe_groups(GROUPS))
    served.connection.connection_lost(None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not served.carried_out
    assert served.connection._decoding is None
    assert served.clients.state.held_bytes == 0


async def test_a_request_that_ends_too_early_costs_its_connection() -> None:
    served = Served()
    whole = describe_groups(GROUPS)
    early = whole[:-1]
    served.connection.data_received((len(early) - 4).to_bytes(4, "big") + early[4:] + frame())
    async with asyncio.timeout(30):
        while not served.transport.is_closed:
            await asyncio.sleep(0)
    assert not served.carried_out
    assert served.clients.state.connection_errors["malformed_request"] == 1


def find_coordinators() -> tuple[bytes, FindCoordinatorResponse]:
    """A FindCoordinator v4 of many groups, and its answer."""
    keys = [f"group-{number}" for number in range(GROUPS)]
    found = FindCoordinatorResponse(tuple([Coordinator(key, error_code=15) for key in keys]))
    return encode_request(build("find_coordinator", 4, {"coordinator_keys": keys}), 1), found


async def test_others_are_served_while_the_answer_to_a_large_request_is_made() -> None:
    clients, exchanges = Clients(2), list[Any]()
    large, other = clients.connections
    transport, _ = clients.transports
    request, response = find_coordinators()
    large.serve({FindCoordinatorRequest: lambda _, exchange: exchanges.append(exchange)})
    large.data_received(request)
    async with asyncio.timeout(30):
        while not exchanges:
            await asyncio.sleep(0)
        exchanges[0].answer(response)
        for number in range(1, 4):
            other.data_received(frame())
            while clients.carried_out[other] < number:
                await asyncio.sleep(0)
        assert large.answers.large is not None, "it is not made yet"
        while large.answers.pending:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    api = k10_find_coordinator.API
    assert transport.written == encode_response_frame(api, 4, 1, api.encode_response(4, response))
    assert clients.state.counts.errors[api.key, 15] == GROUPS
    assert large.is_idle


async def test_an_answer_that_is_being_made_is_forgotten_with_its_client() -> None:
    served, exchanges = Served(), list[Any]()
    request, response = find_coordinators()
    served.connection.serve({FindCoordinatorRequest: lambda _, exchange: exchanges.append(exchange)})
    served.connection.data_received(request)
    async with asyncio.timeout(30):
        while not exchanges:
            await asyncio.sleep(0)
    exchanges[0].answer(response)
    served.connection.connection_lost(None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not served.transport.written
    assert served.connection.answers.large is None
    assert served.clients.state.held_bytes == 0
