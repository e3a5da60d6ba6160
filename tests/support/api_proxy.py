"""A proxy before a real API server, which counts the requests of the programs that use its kubeconfig."""

from __future__ import annotations

import base64
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from tests.simulation.operating.objects import Target
from tests.support.kube import kubectl

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OUR_OWN = frozenset({"connection", "transfer-encoding", "content-encoding", "content-length", "host", "authorization"})


class ApiProxy:
    """`requests`: how many there were, by verb (as the rules of a Role have them) and plural."""

    def __init__(self, server: str, token: str, session: aiohttp.ClientSession) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self._server = server
        self._token = token
        self._session = session

    @property
    def writes(self) -> dict[tuple[str, str], int]:
        """Those that are not about Leases."""
        return {
            (verb, plural): count
            for (verb, plural), count in self.requests.items()
            if verb in _WRITES.values() and plural != "leases"
        }

    def table(self) -> str:
        """A text for people: a line for each verb and plural."""
        return "\n".join(f"{verb:7} {plural:28} {count}" for (verb, plural), count in sorted(self.requests.items()))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self._count(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OUR_OWN}
        headers["Authorization"] = f"Bearer {self._token}"
        body = await request.read()
        async with self._session.request(
            request.method, self._server + request.raw_path, headers=headers, data=body or None
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OUR_OWN}
            stream = web.StreamResponse(status=answer.status, headers=kept)
            try:
                await stream.prepare(request)
                async for chunk in answer.content.iter_any():
                    await stream.write(chunk)
                await stream.write_eof()
            except ConnectionError:
                pass  # it was killed, or watches no longer
            return stream

    def _count(self, request: web.Request) -> None:
        if request.path.count("/") <= (2 if request.path.startswith("/api/") else 3):
            return  # what there is, and in which versions
        target = Target.of(request.path)
        verb = _WRITES.get(request.method, "get" if target.name else "list")
        self.requests["watch" if "watch" in request.query else verb, target.plural] += 1


@asynccontextmanager
async def api_proxy(directory: Path) -> AsyncIterator[tuple[ApiProxy, Path]]:
    """A running one, and the kubeconfig for it, which is written to the directory."""
    view: Any = yaml.safe_load(kubectl("config", "view", "--minify", "--raw", "-o", "yaml").stdout)
    cluster = view["clusters"][0]["cluster"]
    authority = (
        base64.b64decode(cluster["certificate-authority-data"])
        if "certificate-authority-data" in cluster
        else Path(cluster["certificate-authority"]).read_bytes()
    )
    context = ssl.create_default_context(cadata=authority.decode())
    token = view["users"][0]["user"]["token"]
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as session:
        proxy, app = ApiProxy(cluster["server"], token, session), web.Application(client_max_size=10**8)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(_config(f"http://127.0.0.1:{runner.addresses[0][1]}")))
        try:
            yield proxy, kubeconfig
        finally:
            await runner.cleanup()


def _config(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {"token": "t"}}],
    }
