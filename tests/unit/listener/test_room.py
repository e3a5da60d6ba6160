"""Descriptors that a listener keeps back: for files, other pods and the pod API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.peers import until

from muster_coordinator.listener import listener as module
from muster_coordinator.listener.listener import KafkaListeners
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.security.identity import Identity
from muster_coordinator.security.quotas import NO_QUOTAS, Quotas
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.tuning.descriptors import DescriptorShares, descriptor_shares, lowest_free_descriptor


class Anybody:
    def look(self) -> bool:
        return False

    def knows(self, identity: Identity) -> bool:
        return True

    def quotas_of(self, principal: str) -> Quotas:
        return NO_QUOTAS


@asynccontextmanager
async def listening(shares: DescriptorShares) -> AsyncIterator[tuple[KafkaListeners, int]]:
    listeners = KafkaListeners(ListenerSettings(), SystemClock(), Anybody(), shares)
    port = await listeners.listen("127.0.0.1", 0, {})
    try:
        yield listeners, port
    finally:
        await listeners.stop()


def shares(clients: int, inner: int) -> DescriptorShares:
    limit = descriptor_shares().limit
    return DescriptorShares(limit, clients, inner, limit)


async def test_connection_above_the_share_of_clients_is_closed_and_counted() -> None:
    clients = lowest_free_descriptor(descriptor_shares().limit) + 20
    async with listening(shares(clients, clients + 1000)) as (listeners, port):
        state = listeners.state
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        await until(lambda: len(state.connections) + state.connection_errors["no_descriptors"] == 20)
        assert 5 < state.connection_errors["no_descriptors"] < 20
        assert await ends[-1][0].read() == b"", "it is closed, not left hanging"
        for _, writer in ends[:5]:
            assert not writer.transport.is_closing()
        for _, writer in ends:
            writer.transport.abort()
        await until(lambda: not state.connections)
        _, again = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(state.connections) == 1)
        again.transport.abort()


async def test_silent_clients_go_when_files_use_what_is_kept_back_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOUSEKEEPING_MS", 20)
    in_use: list[int] = []
    monkeypatch.setattr(module, "lowest_free_descriptor", lambda limit: in_use.pop() if in_use else 0)
    async with listening(shares(1 << 20, 1000)) as (listeners, port):
        state = listeners.state
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        await until(lambda: len(state.connections) == 6)
        ordered: list[Any] = sorted(state.connections, key=id)
        for number, connection in enumerate(ordered):
            connection.last_active_ms = state.now_ms + number
        in_use.append(1000 + 3)
        await until(lambda: len(state.connections) == 2)
        assert state.connections == set(ordered[4:])
        assert state.connection_errors["no_descriptors"] == 4
        for _, writer in ends:
            writer.transport.abort()
