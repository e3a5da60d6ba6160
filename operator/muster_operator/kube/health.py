"""The operator's own HTTP endpoint: probes and metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST


def build_app(ready: Callable[[], bool], metrics: Callable[[], bytes]) -> web.Application:
    """/healthz/live answers while the event loop turns; /healthz/ready once the caches are filled (standby too)."""

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def is_ready(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ok")
        return web.Response(status=503, text="the objects are not listed yet: is the API server reachable?")

    async def render(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz/live", live)
    app.router.add_get("/healthz/ready", is_ready)
    app.router.add_get("/metrics", render)
    return app
