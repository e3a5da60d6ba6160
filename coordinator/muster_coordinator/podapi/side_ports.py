"""The two ports beside the pod API: probes, which are plain and say nothing else, and metrics."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web

from muster_coordinator.podapi.control import PodControl

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProbeRoutes:
    """/healthz/live, /healthz/ready, /healthz/started."""

    def __init__(self, pod: PodControl) -> None:
        self._pod = pod

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz/{probe:live|ready|started}", self._health)]

    async def _health(self, request: web.Request) -> web.Response:
        probes = {"live": self._pod.live, "ready": self._pod.ready, "started": self._pod.started}
        good, line = probes[request.match_info["probe"]]()
        return web.Response(text=line + "\n", status=200 if good else 503)


class MetricsRoutes:
    """/metrics; `render` returns its text in Prometheus' exposition format."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._metrics)]

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def probe_app(pod: PodControl) -> web.Application:
    """Probes and nothing else: the kubelet has no certificate."""
    app = web.Application()
    app.router.add_routes(ProbeRoutes(pod).routes())
    return app


def metrics_app(render: Callable[[], bytes], token: Callable[[], bytes] | None) -> web.Application:
    """Metrics and nothing else. A caller shows a certificate, which the handshake has checked, or the bearer token that
    `token` returns; with neither TLS nor a token the port is open."""

    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        certificate = request.transport is not None and request.transport.get_extra_info("peercert")
        secured = request.secure or token is not None
        if secured and not certificate and not (token is not None and _bears(request, token())):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    app = web.Application(middlewares=[check])
    app.router.add_routes(MetricsRoutes(render).routes())
    return app


def _bears(request: web.Request, token: bytes) -> bool:
    """Compared in constant time. An empty token opens nothing."""
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and bool(token) and hmac.compare_digest(shown.strip().encode(), token)
