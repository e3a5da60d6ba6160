"""Which brokers clients are told of, and at which ports."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.pod import free_ports

from muster_gateway.gateway import Gateway
from muster_gateway.nodes import Nodes, Role
from muster_gateway.rewriting import Node
from muster_gateway.settings import GatewaySettings, parse_settings


def settings(**values: object) -> GatewaySettings:
    named = {name.replace("_", "."): str(value) for name, value in values.items()}
    return parse_settings({"upstream.bootstrap.servers": "127.0.0.1:1", "advertised.host": "gateway", **named})


class Ports:
    def __init__(self) -> None:
        self.opened: list[tuple[int, int]] = []

    async def listen(self, role: Role, port: int) -> int:
        self.opened.append((role.number, port))
        return port


def brokers(*numbers: int) -> list[Node]:
    return [Node(number, f"kafka-{number}", 9092) for number in numbers]


@pytest.mark.parametrize(
    ("values", "numbers", "told"),
    [
        ({}, (0, 2), {0: 9100, 2: 9102}),
        ({"broker.first.id": 1001}, (1001, 1003), {1001: 9100, 1003: 9102}),
        ({"broker.first.id": 1, "broker.ids": 2}, (0, 1, 2, 3), {1: 9100, 2: 9101}),
        ({}, (0, 70_000), {0: 9100}),
    ],
    ids=["from 0 on", "another first id", "ids with a port", "port above all"],
)
async def test_brokers_have_the_ports_of_their_ids_and_one_without_a_port_is_not_shown(
    values: dict[str, Any], numbers: tuple[int, ...], told: dict[int, int]
) -> None:
    ports = Ports()
    nodes = Nodes(settings(**values), ports.listen)
    for _ in range(2):  # it is asked again and again
        await nodes.tell_brokers(brokers(*numbers))
    assert {each.node_id: each.port for each in nodes.shown(brokers(*numbers))} == told
    assert {each.host for each in nodes.shown(brokers(*numbers))} == {"gateway"}
    assert ports.opened == list(told.items())


async def connects(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def test_port_for_probes_opens_when_brokers_are_known_also_while_muster_is_away() -> None:
    port, bootstrap, nobody = free_ports(3)
    gateway = Gateway(
        settings(
            **{
                "ready.port": port,
                "bootstrap.port": bootstrap,
                "listen.host": "127.0.0.1",
                "muster.bootstrap.servers": f"127.0.0.1:{nobody}",
                "muster.groups": "*",
            }
        )
    )
    await gateway.start()
    ready = asyncio.create_task(gateway.ready())
    try:
        assert not await connects(port), "no broker is known"
        gateway.upstream._first.set()
        await asyncio.wait_for(ready, 30)
        assert await connects(port)
    finally:
        await gateway.stop()
    assert not await connects(port)
