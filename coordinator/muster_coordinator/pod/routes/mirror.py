"""GET /v1/mirror."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from muster_coordinator.podapi.mirror import MirrorAnswer


def mirror_routes(status: Callable[[], MirrorAnswer]) -> list[web.RouteDef]:
    async def show(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(status()), content_type="application/json")

    return [web.get("/v1/mirror", show)]
