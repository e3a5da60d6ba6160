"""Answers of brokers that are rewritten are read in turns."""

from __future__ import annotations

import asyncio
import struct

from tests.unit.gateway import frames

from muster_coordinator.listener.rotation import TURN_UNITS, Rotation
from muster_gateway import apis
from muster_gateway.broker_connection import BrokerConnection
from muster_gateway.errors import UpstreamError
from muster_gateway.slots import Slot, framed

MANY = 200


class Waiting:
    """Implements `broker_connection.Client`: waits for answers that are rewritten, and counts those that were read."""

    def __init__(self, rotation: Rotation) -> None:
        self.read = 0
        self.broker = BrokerConnection(self, lambda number: None, 1 << 20, rotation)
        for _ in range(MANY):
            self.broker.expect(Slot(frames.head(apis.METADATA, 1), self._edit))

    def _edit(self, slot: Slot, frame: bytes) -> None:
        self.read += 1

    def is_next(self, slot: Slot) -> bool:
        return True

    def pass_on(self, chunk: bytes | memoryview, last: bool) -> None: ...

    def broker_slow(self, slow: bool) -> None: ...

    def broker_failed(self, error: UpstreamError) -> None:
        raise error

    def broker_lost(self, waiting: int) -> None: ...


async def test_a_bounded_number_of_answers_is_rewritten_in_one_turn() -> None:
    rotation = Rotation()
    clients = [Waiting(rotation) for _ in range(3)]
    answer = framed(struct.pack(">i", frames.head(apis.METADATA, 1).correlation_id) + bytes(40))

    def read() -> int:
        return sum(client.read for client in clients)

    for client in clients:
        client.broker.data_received(answer * MANY)
    assert read() == TURN_UNITS
    while read() < MANY * len(clients):
        before = read()
        await asyncio.sleep(0)
        assert 0 < read() - before <= TURN_UNITS + 1
    assert all(client.broker.held == 0 for client in clients)
