"""The two ports beside the pod API: probes, which are plain and say nothing else, and metrics."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from muster_coordinator.podapi.control import PodControl

RENDERING_SHARE = 1 / 25
"""Most of a processor that goes into the text of metrics, however often it is asked for."""

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
    """/metrics; `render` returns its text in Prometheus' exposition format.

    Questions are answered one after the other, with a text that is made after the question came: all who ask at the
    same time share it. Making it takes milliseconds of the event loop that serves clients, so it rests in between,
    and so do answers, for the time that one text takes.
    """

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._turn = asyncio.Lock()
        self._answer_at = self._render_at = self._took = 0.0
        self._text, self._made_at = b"", float("-inf")

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._metrics)]

    async def _metrics(self, request: web.Request) -> web.Response:
        text = await self._text_since(time.monotonic())
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _text_since(self, asked_at: float) -> bytes:
        async with self._turn:
            await _until(self._answer_at)
            if self._made_at < asked_at:
                await _until(self._render_at)
                self._made_at, begun = time.monotonic(), time.thread_time()
                self._text = self._render()
                self._took = time.thread_time() - begun
                self._render_at = time.monotonic() + self._took / RENDERING_SHARE
            self._answer_at = time.monotonic() + self._took
            return self._text


async def _until(moment: float) -> None:
    """Returns at once when `moment`, of the monotonic clock, has passed."""
    if (rest := moment - time.monotonic()) > 0:
        await asyncio.sleep(rest)


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
