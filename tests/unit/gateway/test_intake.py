"""Requests of one client are taken in its turns."""

from __future__ import annotations

import asyncio
import struct

from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, gateway, plain

from muster_coordinator.listener.rotation import QUANTUM, TURN_UNITS, UNIT_BYTES, Rotation
from muster_gateway import apis
from muster_gateway.intake import Intake
from muster_gateway.requests import RequestHead
from muster_gateway.slots import framed

LIST_OFFSETS = 2  # passes
MANY = 500


class Taken:
    """Implements `RequestSink` and `rotation.Taking`: a client with `room` for requests in flight."""

    def __init__(self, rotation: Rotation, room: int = MANY) -> None:
        self.room = room
        self.taken = 0
        self.intake = Intake(self, self, rotation, 1 << 20, lambda: self.taken < self.room)

    def begin(self, head: RequestHead) -> None:
        self.taken += 1

    def forward(self, chunk: bytes | memoryview) -> None: ...

    def whole(self, head: RequestHead, frame: bytes) -> None:
        self.taken += 1
        self.intake.was_read(len(frame))

    def unknown_api_versions(self, correlation_id: int) -> None: ...

    def take_turn(self) -> None:
        self.intake.take(None)

    def abort(self) -> None: ...


def heartbeat(size: int = 0) -> bytes:
    return framed(struct.pack(">hhi", apis.HEARTBEAT, 3, 7) + b"\x00\x04user" + bytes(size))


async def test_client_has_a_few_requests_taken_in_a_turn() -> None:
    client = Taken(Rotation())
    client.intake.take(heartbeat() * MANY)
    assert client.taken == QUANTUM
    assert client.intake.waits
    while client.intake.waits:
        before = client.taken
        await asyncio.sleep(0)
        assert client.taken - before <= QUANTUM
    assert client.taken == MANY
    assert client.intake.held == 0


async def test_all_clients_together_have_a_bounded_number_taken_in_a_turn() -> None:
    rotation = Rotation()
    clients = [Taken(rotation) for _ in range(100)]
    for client in clients:
        client.intake.take(heartbeat() * 10)
    assert sum(client.taken for client in clients) == TURN_UNITS
    while any(client.intake.waits for client in clients):
        before = sum(client.taken for client in clients)
        await asyncio.sleep(0)
        assert sum(client.taken for client in clients) - before <= TURN_UNITS + 1
    assert sum(client.taken for client in clients) == 1000


async def test_large_requests_cost_more_of_a_turn() -> None:
    client = Taken(Rotation())
    client.intake.take(heartbeat(8 * UNIT_BYTES) * 10)
    assert client.taken == -(-TURN_UNITS // (1 + 8))


async def test_nothing_is_taken_while_there_is_no_room() -> None:
    client = Taken(Rotation(), room=3)
    client.intake.take(heartbeat() * 10)
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.taken == 3
    client.room = 10
    client.intake.wait()
    await asyncio.sleep(0)
    assert client.taken == 10


async def test_pipelined_requests_of_all_kinds_are_answered_in_their_order() -> None:
    async def answer(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        if key == apis.METADATA:
            empty = {"brokers": (), "cluster_id": "c", "controller_id": 0, "topics": ()}
            return framed(frames.answer(key, version, empty, correlation_id))
        return plain(correlation_id, struct.pack(">i", 0))

    async with Server(0, answer) as broker, Server(1, answer) as pod, gateway(broker, pod) as (served, port):
        client = await Client.connect(port)
        for number in range(0, 900, 3):
            client.send(LIST_OFFSETS, 1, number, b"")
            client.send(apis.METADATA, 1, number + 1, struct.pack(">i", -1))
            client.send(apis.DESCRIBE_GROUPS, 0, number + 2, struct.pack(">ih3s", 1, 3, b"m-1"))
        answers = [await client.receive() for _ in range(900)]
        assert [struct.unpack_from(">i", each)[0] for each in answers] == list(range(900))
        assert served.held_bytes == 0
        client.close()
