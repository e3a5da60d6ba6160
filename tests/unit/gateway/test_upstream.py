"""What the gateway asks the Kafka cluster itself."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.gateway.servers import Server, gateway

from muster_gateway import upstream


@pytest.mark.parametrize(("newest", "asked"), [(4, [4]), (3, [4, 3])])
async def test_versions_are_asked_for_as_the_newest_clients_do_and_of_an_older_broker_as_it_can(
    newest: int, asked: list[int]
) -> None:
    """Before version 4 a broker shows no feature whose lowest level is 0, such as transaction.version."""
    async with Server() as broker:
        broker.api_versions_max = newest
        async with gateway(broker) as (under_test, _):
            assert broker.api_versions == asked
            assert under_test.upstream.announced.versions


async def test_a_broker_that_takes_connections_and_answers_nothing_is_not_reachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "ANSWER_S", 0.1)
    monkeypatch.setattr(upstream, "REFRESH_S", 0.1)
    async with Server() as broker, gateway(broker) as (under_test, _), asyncio.timeout(60):
        broker.hangs = True
        while not under_test.upstream.failing:
            await asyncio.sleep(0.01)
        seen = broker.accepted
        while broker.accepted < seen + 3:
            assert under_test.upstream.failing
            await asyncio.sleep(0)
        broker.hangs = False
        while under_test.upstream.failing:
            await asyncio.sleep(0.01)
