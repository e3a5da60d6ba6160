"""A fake pod behind the real server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from tests.unit.podapi.fake_pod import FakePod

from muster_coordinator.podapi.moves import MoveRequest
from muster_coordinator.podapi.resets import PlanRequest, ResetRequest
from muster_coordinator.podapi.server import body_of, build_app, json_answer
from muster_coordinator.podapi.users import AccessRequest

__all__ = ["Server", "eventually", "serve", "start"]


@dataclass
class Server:
    """A running server; `stop` closes the listener and every connection, as the death of the process would."""

    runner: web.AppRunner
    address: str

    async def stop(self) -> None:
        await self.runner.cleanup()


async def start(pod: FakePod, address: str = "127.0.0.1:0") -> Server:
    host, port = address.rsplit(":", 1)
    app = build_app(pod, lambda: b"muster_up 1\n")

    async def give(request: web.Request) -> web.Response:
        return json_answer(pod.give_access(await body_of(request, AccessRequest)))

    async def move(request: web.Request) -> web.Response:
        return json_answer(pod.moves.move(await body_of(request, MoveRequest)))

    async def moves(_request: web.Request) -> web.Response:
        return json_answer(pod.moves.told())

    async def plan_reset(request: web.Request) -> web.Response:
        return json_answer(pod.resets.plan(await body_of(request, PlanRequest)))

    async def reset(request: web.Request) -> web.Response:
        answer = pod.resets.reset(await body_of(request, ResetRequest))
        if answer is None:
            raise web.HTTPServiceUnavailable
        return json_answer(answer)

    app.router.add_put("/v1/access", give)
    app.router.add_post("/v1/resets/plan", plan_reset)
    app.router.add_post("/v1/resets", reset)
    app.router.add_post("/v1/moves", move)
    app.router.add_get("/v1/moves", moves)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, int(port), reuse_address=True)
    await site.start()
    bound = runner.addresses[0]
    return Server(runner, f"{bound[0]}:{bound[1]}")


@asynccontextmanager
async def serve(pod: FakePod, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = await start(pod, address)
    try:
        yield server.address
    finally:
        await server.stop()


async def eventually(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until `condition()` is true. Turns the loop, and fails with a time limit that only a hang reaches."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)
