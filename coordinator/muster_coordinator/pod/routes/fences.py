"""The calls of a re-shard over HTTP: see ``podapi.reshard``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec
from aiohttp import web

from muster_coordinator.podapi.models import FenceStatus
from muster_coordinator.podapi.reshard import (
    MAX_IMPORT_BYTES,
    FenceCall,
    FenceResult,
    FencesRequest,
    FencesResponse,
)
from muster_coordinator.podapi.server import RefusedCallError, body_of, json_answer
from muster_coordinator.records.control import Fence
from muster_coordinator.shard.fencing import FenceRefusedError, Fencing

__all__ = ["fence_routes"]


def fence_routes(fencing: Fencing) -> list[web.RouteDef]:
    api = _Api(fencing)
    return [
        web.post("/v1/fences", api.fences),
        web.post(r"/v1/imports/{partition:\d{1,9}}", api.take_in),
    ]


class _Api:
    def __init__(self, fencing: Fencing) -> None:
        self._fencing = fencing

    async def fences(self, request: web.Request) -> web.Response:
        asked = await body_of(request, FencesRequest)
        return json_answer(FencesResponse(tuple(await asyncio.gather(*(self._fence(each) for each in asked.fences)))))

    async def _fence(self, call: FenceCall) -> FenceResult:
        if call.open:
            return await _result(call.partition, self._fencing.open(call.partition, call.reshard))
        closing = self._fencing.close(call.partition, call.reshard, importing=call.importing)
        return await _result(call.partition, closing)

    async def take_in(self, request: web.Request) -> web.Response:
        """400 for what is no number, 413 for too much; what the re-shard's rules say is in the body of a 200."""
        partition = int(request.match_info["partition"])
        try:
            reshard, position = int(request.query["reshard"]), int(request.query["position"])
        except (KeyError, ValueError):
            raise RefusedCallError(400, "InvalidRequest", "reshard and position must be numbers") from None
        data = await request.read()
        if len(data) > MAX_IMPORT_BYTES:
            raise RefusedCallError(413, "TooLarge", f"the body is larger than {MAX_IMPORT_BYTES} bytes")
        last = "last" in request.query
        return json_answer(
            await _result(partition, self._fencing.take_in(partition, reshard, position, data, last=last))
        )


async def _result(partition: int, call: Awaitable[Fence]) -> FenceResult:
    try:
        fence = await call
    except FenceRefusedError as refused:
        return FenceResult(partition, None, refused.reason, str(refused))
    return FenceResult(partition, FenceStatus(*msgspec.structs.astuple(fence)))
