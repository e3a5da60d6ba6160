"""The calls of a re-shard over HTTP: what is refused as a whole is refused like any other call of the pod."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from tests.unit.podapi.fake_pod import FakePod

from muster_coordinator.pod.routes.fences import fence_routes
from muster_coordinator.podapi.reshard import MAX_IMPORT_BYTES
from muster_coordinator.podapi.server import build_app
from muster_coordinator.shard.fencing import Fencing


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:
    pod = FakePod("pod-0", 0)
    app = build_app(pod, lambda: b"")
    app.router.add_routes(fence_routes(Fencing({}, lambda partition: None), pod.tokens))
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        *((b'{"', "MalformedJson"), (b"\xff", "MalformedJson"), (b"{}", "InvalidRequest")),
        *((b"[" * 100_000, "InvalidRequest"), (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "MalformedJson")),
    ],
)
async def test_bad_body_has_the_reason_that_other_calls_give(client: TestClient, body: bytes, reason: str) -> None:
    for path in ("/v1/fences", "/v1/elections"):
        async with client.post(path, data=body) as response:
            assert (response.status, (await response.json())["reason"]) == (400, reason), path


async def test_import_needs_numbers_and_takes_no_more_than_its_limit(client: TestClient) -> None:
    async with client.post("/v1/imports/0?reshard=1&position=0", data=b"") as response:
        assert (response.status, (await response.json())["message"]) == (400, "token must be a number")
    async with client.post("/v1/imports/0?token=1&reshard=1&position=x", data=b"") as response:
        assert (response.status, (await response.json())["reason"]) == (400, "InvalidRequest")
    async with client.post("/v1/imports/0?token=1&reshard=1&position=0", data=bytes(MAX_IMPORT_BYTES + 1)) as response:
        assert (response.status, (await response.json())["reason"]) == (413, "TooLarge")
    async with client.post("/v1/imports/0?token=1&reshard=1&position=0", data=b"") as response:
        assert (response.status, (await response.json())["partition"]) == (200, 0), "its rules are in the answer"


@pytest.mark.parametrize("path", ["/v1/fences", "/v1/imports/0?token=4&reshard=1&position=0"])
async def test_calls_of_an_operator_that_was_replaced_are_refused(client: TestClient, path: str) -> None:
    older, current = b'{"fencingToken":4,"fences":[]}', b'{"fencingToken":5,"fences":[]}'
    async with client.post("/v1/fences", data=current) as response:
        assert response.status == 200
    async with client.post(path, data=older) as response:
        assert (response.status, (await response.json())["reason"]) == (409, "StaleToken")
    async with client.post(path.replace("token=4", "token=5"), data=current) as response:
        assert response.status == 200
