"""What the gateway asks the Kafka cluster itself."""

from __future__ import annotations

import pytest
from tests.unit.gateway.servers import Server, gateway


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
