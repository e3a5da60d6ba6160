"""`muster-operator` as a process against an API server that has no objects: it leads, and ends in order on a signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.pod import free_ports

pytestmark = pytest.mark.integration

RESOURCES = {
    "/api/v1": ["pods", "services", "namespaces"],
    "/apis/apps/v1": ["statefulsets"],
    "/apis/muster.dev/v1alpha1": ["coordinatorclusters", "offsetstopics", "offsetspartitions"],
}
EMPTY_LIST = {"items": [], "metadata": {"resourceVersion": "1"}}


class ApiServer:
    """The discovery, the empty lists and watches, and the one Lease that the operator asks for."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.changed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            await asyncio.Event().wait()
        if "/leases" in request.path:
            return await self._lease(request)
        if request.path in RESOURCES:
            verbs = ["list", "watch", "get"]
            found = [{"name": n, "kind": n, "namespaced": True, "verbs": verbs} for n in RESOURCES[request.path]]
            return web.json_response({"resources": found})
        if request.path == "/apis":
            groups = [path.split("/")[2:] for path in RESOURCES if path.startswith("/apis/")]
            versions = [{"name": group, "preferredVersion": {"version": version}} for group, version in groups]
            return web.json_response({"groups": versions})
        return web.json_response({"versions": ["v1"]} if request.path == "/api" else EMPTY_LIST)

    async def _lease(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response(self.lease or {"message": "not found"}, status=200 if self.lease else 404)
        self.lease = await request.json()
        self.lease["metadata"]["resourceVersion"] = "1"
        self.changed.set()
        return web.json_response(self.lease)

    async def held_by(self, holder: str) -> None:
        while self.lease is None or self.lease["spec"]["holderIdentity"] != holder:
            self.changed.clear()
            await self.changed.wait()


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    server, app = ApiServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = runner.addresses[0]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{address[1]}"}}],
        "users": [{"name": "it", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield server
    await runner.cleanup()


async def test_operator_takes_the_lease_and_releases_it_on_sigterm(server: ApiServer) -> None:
    environment = {
        **os.environ,
        "MUSTER_OPERATOR_POD": "operator",
        "MUSTER_OPERATOR_IMAGE": "image",
        "MUSTER_OPERATOR_HEALTH_PORT": str(free_ports(1)[0]),
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster_operator", stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        await asyncio.wait_for(server.held_by("operator"), 60)
        child.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(child.communicate(), 60)
    finally:
        if child.returncode is None:
            child.kill()
    assert (child.returncode, server.lease and server.lease["spec"]["holderIdentity"]) == (0, "")
    assert [json.loads(line)["event"] for line in output.splitlines()][-1] == "stopping"
