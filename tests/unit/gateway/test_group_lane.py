"""A group's requests while pods die, freeze and resign."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack

from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, gateway, plain

from muster_gateway import apis
from muster_gateway.counts import GroupCounts

HEARTBEAT_V0 = struct.pack(">h3sih1s", 3, b"m-1", 1, 1, b"x")
JOIN_V2 = struct.pack(">h3siih", 3, b"m-1", 1000, 1000, 0) + struct.pack(">h8si", 8, b"consumer", 0)
NO_ERROR, NOT_COORDINATOR, NOT_AVAILABLE = (struct.pack(">h", code) for code in (0, 16, 15))


async def well(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, NO_ERROR)


async def moved(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, NOT_COORDINATOR)


async def dead(key: int, version: int, correlation_id: int, frame: bytes) -> None:
    return None


class Pods:
    """A broker, two pods of which the first leads, a gateway and a client."""

    def __init__(self, park_ms: int = 5000) -> None:
        self.broker, self.pods = Server(0, well), [Server(0, well), Server(1, well)]
        self._park_ms = park_ms
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Pods:
        for each in (self.broker, *self.pods):
            await self._stack.enter_async_context(each)
        self.pods[0].peers, self.pods[1].peers = [self.pods[1]], [self.pods[0]]
        self.lead(0)
        front = gateway(self.broker, self.pods[0], park_ms=str(self._park_ms))
        under_test, port = await self._stack.enter_async_context(front)
        self.counts = under_test.muster.counts
        self.client = await Client.connect(port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.client.close()
        await self._stack.aclose()

    def lead(self, pod: int) -> None:
        for each in self.pods:
            each.leader = pod

    async def heartbeat(self, correlation_id: int = 1) -> bytes:
        self.client.send(apis.HEARTBEAT, 0, correlation_id, HEARTBEAT_V0)
        return await self.client.receive()


async def test_a_request_that_a_dying_pod_got_is_sent_again_to_the_next_leader() -> None:
    async with Pods() as site:
        assert await site.heartbeat() == plain(1, NO_ERROR)[4:]
        site.pods[0].answering = dead
        asyncio.get_running_loop().call_later(0.3, site.lead, 1)
        assert await site.heartbeat(2) == plain(2, NO_ERROR)[4:]
        assert site.pods[1].requests == [(apis.HEARTBEAT, 2)]


async def test_a_request_to_a_pod_that_resigned_is_sent_to_the_next_leader() -> None:
    async with Pods() as site:
        assert await site.heartbeat() == plain(1, NO_ERROR)[4:]
        site.pods[0].answering = moved
        asyncio.get_running_loop().call_later(0.1, site.lead, 1)
        assert await site.heartbeat(2) == plain(2, NO_ERROR)[4:]


async def test_a_frozen_pod_is_left_when_another_one_leads() -> None:
    frozen = asyncio.Event()

    async def freeze(key: int, version: int, correlation_id: int, frame: bytes) -> None:
        await frozen.wait()

    async with Pods() as site:
        assert await site.heartbeat() == plain(1, NO_ERROR)[4:]
        site.pods[0].answering = freeze
        asyncio.get_running_loop().call_later(0.3, site.lead, 1)
        assert await site.heartbeat(2) == plain(2, NO_ERROR)[4:]
        frozen.set()


async def test_a_slow_answer_of_the_leader_is_waited_for() -> None:
    async def slow(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        await asyncio.sleep(1.2)
        return plain(correlation_id, NO_ERROR)

    async with Pods(park_ms=100) as site:
        site.pods[0].answering = slow
        assert await site.heartbeat() == plain(1, NO_ERROR)[4:]
        assert site.pods[0].requests == [(apis.HEARTBEAT, 1)]


async def test_a_join_that_may_have_made_a_member_is_not_sent_twice() -> None:
    async with Pods() as site:
        site.pods[0].answering = dead
        site.client.send(apis.JOIN_GROUP, 2, 1, JOIN_V2)
        assert await site.client.receive() == b""  # the connection ends, as by the death of a broker
        assert len(site.pods[0].requests) == 1
        assert site.pods[1].requests == []


async def test_the_wait_for_a_leader_ends_with_kafkas_answer() -> None:
    async with Pods(park_ms=300) as site:
        site.pods[0].answering = dead
        assert await site.heartbeat() == plain(1, NOT_AVAILABLE)[4:]
        site.pods[0].answering = moved
        assert await site.heartbeat(2) == plain(2, NOT_COORDINATOR)[4:]
        site.pods[0].answering = well
        assert await site.heartbeat(3) == plain(3, NO_ERROR)[4:]


async def test_requests_that_wait_for_a_leader_and_those_that_are_given_up_are_counted() -> None:
    async with Pods() as site:
        assert await site.heartbeat() == plain(1, NO_ERROR)[4:]
        assert site.counts == GroupCounts(answered=1)
        site.pods[0].answering = dead
        site.client.send(apis.HEARTBEAT, 0, 2, HEARTBEAT_V0)
        while not site.counts.waiting:
            await asyncio.sleep(0.01)
        site.lead(1)
        assert await site.client.receive() == plain(2, NO_ERROR)[4:]
        assert site.counts == GroupCounts(answered=2, delayed=1)
        site.pods[1].answering = dead
        site.client.send(apis.JOIN_GROUP, 2, 3, JOIN_V2)
        assert await site.client.receive() == b""
        assert site.counts == GroupCounts(answered=2, delayed=1, given_up=1)


async def test_a_client_that_leaves_takes_its_waiting_request_with_it() -> None:
    async with Pods() as site:
        site.pods[0].answering = dead
        site.client.send(apis.HEARTBEAT, 0, 1, HEARTBEAT_V0)
        while not site.pods[0].requests:
            await asyncio.sleep(0.01)
        site.client.close()
        await asyncio.sleep(0.2)
        asked = len(site.pods[0].requests)
        site.pods[0].answering = well
        await asyncio.sleep(0.2)
        assert len(site.pods[0].requests) <= asked + 1


async def test_requests_of_one_client_are_carried_out_one_after_the_other() -> None:
    running = most = 0

    async def counted(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return plain(correlation_id, NO_ERROR)

    async with Pods() as site:
        site.pods[0].answering = counted
        for number in range(10):
            site.client.send(apis.HEARTBEAT, 0, number, HEARTBEAT_V0)
        answers = [await site.client.receive() for _ in range(10)]
        assert answers == [plain(number, NO_ERROR)[4:] for number in range(10)]
        assert most == 1


def test_the_requests_above_are_what_kio_writes() -> None:
    description = {"group_id": "m-1", "generation_id": 1, "member_id": "x"}
    written = frames.request(apis.HEARTBEAT, 0, description)
    assert written.endswith(HEARTBEAT_V0)
