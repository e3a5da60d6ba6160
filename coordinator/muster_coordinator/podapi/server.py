"""HTTP side of the pod API: routes, decoding, and the watch stream around a `PodControl`.

Results of single partitions are in the body of a 200. The answer to a call that is refused as a whole has a `Problem`
for a body: 400 (the message names the field), 409 (an older fencing token or metadata image), 413 (too large), 421
(meant for another pod), 403 (the caller's certificate does not allow it, `podapi.access`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from muster_coordinator.podapi.access import LEASES, caller_of, require_role
from muster_coordinator.podapi.control import PodControl, RefusedCallError
from muster_coordinator.podapi.fields import ADDRESSEE_HEADER, Request
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.podapi.models import (
    ElectionsRequest,
    HeartbeatEvent,
    RemovalsRequest,
    ReplicasRequest,
    ResignationsRequest,
    WatchEvent,
)
from muster_coordinator.podapi.side_ports import MetricsRoutes, ProbeRoutes

HEARTBEAT_INTERVAL_S = 0.2
"""Longest silence of a watch stream, in seconds."""

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Room for a metadata image of 10,000 topics and for a call about 1,000 partitions."""

logger = structlog.get_logger(__name__)

_R = TypeVar("_R", bound=Request)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_encode = msgspec.json.Encoder().encode


def build_app(pod: PodControl, metrics: Callable[[], bytes]) -> web.Application:
    """The application of one pod. `metrics` returns the text of /metrics (Prometheus' exposition format)."""
    api = _Api(pod)
    app = web.Application(middlewares=[api.check], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/replicas", api.replicas)
    app.router.add_post("/v1/removals", api.removals)
    app.router.add_post("/v1/elections", api.elections)
    app.router.add_post("/v1/resignations", api.resignations)
    app.router.add_get("/v1/partitions", api.partitions)
    app.router.add_get("/v1/status", api.status)
    app.router.add_get("/v1/watch", api.watch)
    app.router.add_put("/v1/metadata", api.metadata)
    app.router.add_post("/v1/drain", api.drain)
    app.router.add_routes([*ProbeRoutes(pod).routes(), *MetricsRoutes(metrics).routes()])
    app.on_shutdown.append(api.end_streams)
    return app


class _Api:
    def __init__(self, pod: PodControl) -> None:
        self._pod = pod
        self._streams: set[asyncio.Task[None]] = set()

    @web.middleware
    async def check(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        caller = caller_of(request)
        try:
            require_role(caller, request.method, request.path, request.query)
            addressee = request.headers.get(ADDRESSEE_HEADER)
            if addressee is not None and addressee != (name := self._pod.status().pod):
                raise RefusedCallError(421, "WrongPod", f"this is pod {name!r}, not {addressee!r}")
            response = await handler(request)
        except RefusedCallError as refused:
            response = json_answer(refused.problem, refused.code)
        often = request.method == "GET" or request.path == LEASES
        if caller is not None and (not often or response.status == 403):
            logger.info(
                "control_call",
                method=request.method,
                path=request.path,
                by=caller.uri,
                host=request.remote,
                status=response.status,
            )
        return response

    async def replicas(self, request: web.Request) -> web.Response:
        return json_answer(await self._pod.create_replicas(await body_of(request, ReplicasRequest)))

    async def removals(self, request: web.Request) -> web.Response:
        return json_answer(await self._pod.remove_replicas(await body_of(request, RemovalsRequest)))

    async def elections(self, request: web.Request) -> web.Response:
        return json_answer(await self._pod.elect(await body_of(request, ElectionsRequest)))

    async def resignations(self, request: web.Request) -> web.Response:
        return json_answer(await self._pod.resign(await body_of(request, ResignationsRequest)))

    async def partitions(self, request: web.Request) -> web.Response:
        return json_answer({"partitions": self._pod.partitions()})

    async def status(self, request: web.Request) -> web.Response:
        return json_answer(self._pod.status())

    async def metadata(self, request: web.Request) -> web.Response:
        return json_answer(self._pod.update_metadata(await body_of(request, MetadataImage)))

    async def drain(self, request: web.Request) -> web.Response:
        await self._pod.drain(number_of(request, "token") if "token" in request.query else None)
        return json_answer(self._pod.status())

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        # The stream has a task of its own, so that a shutdown can end it and still finish the response.
        stream = asyncio.create_task(self._stream(response, by_operator="operator" in request.query))
        self._streams.add(stream)
        try:
            await stream
        except (ConnectionError, asyncio.CancelledError):
            if not stream.done():
                stream.cancel()
                raise
        finally:
            self._streams.discard(stream)
        return response

    async def _stream(self, response: web.StreamResponse, *, by_operator: bool) -> None:
        events = self._pod.subscribe()
        following = asyncio.ensure_future(anext(events))
        try:
            while True:
                await asyncio.wait({following}, timeout=HEARTBEAT_INTERVAL_S)
                batch: list[WatchEvent] = []
                while following.done():  # one write for all events of this moment, as in a failover
                    batch.append(following.result())
                    following = asyncio.ensure_future(anext(events))
                    await asyncio.sleep(0)
                if not batch:
                    batch.append(HeartbeatEvent(now=time.time_ns() // 1_000_000))
                await response.write(b"".join(_encode(event) + b"\n" for event in batch))
                if by_operator:
                    self._pod.operator_heard()
        except StopAsyncIteration:
            pass  # the pod closes its streams
        finally:
            following.cancel()
            await asyncio.wait({following})
            await events.aclose()

    async def end_streams(self, app: web.Application) -> None:
        for stream in self._streams:
            stream.cancel()


async def body_of(request: web.Request, kind: type[_R]) -> _R:
    """The decoded body. Other modules with routes use it too. Raises RefusedCallError, which `check` answers."""
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.ValidationError as error:
        raise RefusedCallError(400, "InvalidRequest", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedCallError(400, "MalformedJson", str(error)) from error
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusedCallError(413, "TooLarge", f"the body is larger than {MAX_BODY_BYTES} bytes") from error


def number_of(request: web.Request, name: str) -> int:
    """A number of the query. Raises RefusedCallError (400) if it is missing or no number."""
    try:
        return int(request.query[name])
    except (KeyError, ValueError):
        raise RefusedCallError(400, "InvalidRequest", f"{name} must be a number") from None


def json_answer(answer: object, status: int = 200) -> web.Response:
    """`answer` as JSON. Other modules with routes use it too."""
    return web.Response(body=_encode(answer), status=status, content_type="application/json")
