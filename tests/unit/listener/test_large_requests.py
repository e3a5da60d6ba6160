"""A connection whose large request is being decoded, and what may happen to it meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.listener.clients import Clients, describe_groups, frame

from muster_coordinator.requests.cluster import DescribeGroupsRequest, DescribeGroupsResponse
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse

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
