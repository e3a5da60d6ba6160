"""FindCoordinator of a group at Muster while no pod is known."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.pod import free_ports
from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, gateway

from muster_coordinator.errors import ErrorCode
from muster_gateway import apis
from muster_gateway.rewriting import Found, read_coordinators
from muster_gateway.slots import framed

VERSION = 2


async def refuse(*_: Any) -> bytes:
    raise AssertionError("nobody asks")


async def asked(port: int) -> Client:
    client = await Client.connect(port)
    client.writer.write(framed(frames.request(apis.FIND_COORDINATOR, VERSION, {"key": "m-1", "key_type": 0})))
    return client


async def found(client: Client) -> Found:
    _, (one,) = read_coordinators(VERSION, await client.receive())
    return one


async def test_client_that_asks_while_muster_starts_gets_its_answer_when_a_pod_is_known() -> None:
    pod = Server(7, refuse)
    pod.port = free_ports(1)[0]
    async with Server(0, refuse) as broker, gateway(broker, pod) as (under_test, port):
        client = await asked(port)
        answer = asyncio.create_task(found(client))
        done, _ = await asyncio.wait([answer], timeout=0.3)
        assert not done
        async with pod:
            assert (await answer).error_code == 0
            assert (await answer).node_id == under_test.settings.pod_node_id_base + 7
        client.close()


async def test_client_is_answered_in_time_when_muster_stays_away() -> None:
    pod = Server(7, refuse)
    pod.port = free_ports(1)[0]
    async with Server(0, refuse) as broker, gateway(broker, pod, park_ms="100") as (_, port):
        client = await asked(port)
        assert (await found(client)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        client.close()
