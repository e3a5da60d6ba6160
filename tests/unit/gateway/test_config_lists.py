"""ListConfigResources through the gateway: one list of both sides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, framed, gateway
from tests.unit.gateway.test_rewriting import read

from muster_gateway import apis


def configured(*resources: tuple[int, str], error_code: int = 0) -> dict[str, Any]:
    """Answer to ListConfigResources v1."""
    listed = [{"resource_type": kind, "resource_name": name} for kind, name in resources]
    return {"error_code": error_code, "config_resources": listed}


@pytest.mark.parametrize("through", ["bootstrap", "pod"])
async def test_groups_with_configs_are_listed_by_who_serves_them(through: str) -> None:
    async def of_kafka(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        rows = configured((2, "m-1"), (32, "m-1"), (32, "k-1"))
        frame = frames.answer(apis.LIST_CONFIG_RESOURCES, 1, rows, correlation_id)
        throttled = frame[:5] + (7).to_bytes(4, "big") + frame[9:]  # behind correlation id and tagged fields
        return framed(throttled)

    async def of_muster(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        rows = configured((32, "k-2"), (32, "m-2"))
        return framed(frames.answer(apis.LIST_CONFIG_RESOURCES, 1, rows, correlation_id))

    expected = {(): [(2, "m-1"), (32, "k-1"), (32, "m-2")], (32, 2): [(2, "m-1"), (32, "k-1"), (32, "m-2")]}
    passed = [(2, "m-1"), (32, "m-1"), (32, "k-1")]
    async with Server(0, of_kafka) as broker, Server(1, of_muster) as pod, gateway(broker, pod) as (under_test, port):
        client = await Client.connect(under_test.nodes.shown_pod(1).port if through == "pod" else port)
        for types in ((), (32, 2), (2,)):
            asked = frames.request(apis.LIST_CONFIG_RESOURCES, 1, {"resource_types": types})
            client.writer.write(framed(asked))
            answer = read(apis.LIST_CONFIG_RESOURCES, 1, await client.receive())
            listed = [(int(each.resource_type), each.resource_name) for each in answer.config_resources]
            assert listed == expected.get(types, passed)
            assert (int(answer.error_code), answer.throttle_time) == (0, timedelta(milliseconds=7))
        client.close()


@pytest.mark.parametrize(("at_kafka", "at_muster", "shown"), [(31, 0, 31), (0, 31, 31)])
async def test_list_of_configs_that_one_side_refuses_is_refused(at_kafka: int, at_muster: int, shown: int) -> None:
    def refusing(code: int) -> Any:
        async def answer(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
            rows = configured(error_code=code)
            return framed(frames.answer(apis.LIST_CONFIG_RESOURCES, 1, rows, correlation_id))

        return answer

    async with (
        Server(0, refusing(at_kafka)) as broker,
        Server(1, refusing(at_muster)) as pod,
        gateway(broker, pod) as (_, port),
    ):
        client = await Client.connect(port)
        client.writer.write(framed(frames.request(apis.LIST_CONFIG_RESOURCES, 1, {"resource_types": ()})))
        answer = read(apis.LIST_CONFIG_RESOURCES, 1, await client.receive())
        assert (int(answer.error_code), answer.config_resources) == (shown, ())
        assert [key for key, _ in pod.requests].count(apis.LIST_CONFIG_RESOURCES) == (0 if at_kafka else 1)
        client.close()
