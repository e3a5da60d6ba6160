"""The calls of a re-shard over HTTP: see `podapi.reshard`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec
from aiohttp import web

from muster_coordinator.pod.fencing_token import FencingTokens
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.models import FenceStatus
from muster_coordinator.podapi.reshard import (
    MAX_IMPORT_BYTES,
    FenceCall,
    FenceResult,
    FencesRequest,
    FencesResponse,
)
from muster_coordinator.podapi.server import body_of, json_answer, number_of
from muster_coordinator.records.control import Fence
from muster_coordinator.shard.fencing import FenceRefusedError, Fencing


def fence_routes(fencing: Fencing, tokens: FencingTokens) -> list[web.RouteDef]:
    api = _Api(fencing, tokens)
    return [
        web.post("/v1/fences", api.fences),
        web.post(r"/v1/imports/{partition:\d{1,9}}", api.take_in),
    ]


class _Api:
    def __init__(self, fencing: Fencing, tokens: FencingTokens) -> None:
        self._fencing = fencing
        self._tokens = tokens

    async def fences(self, request: web.Request) -> web.Response:
        asked = await body_of(request, FencesRequest)
        self._tokens.check(asked.fencing_token)
        return json_answer(FencesResponse(tuple(await asyncio.gather(*(self._fence(each) for each in asked.fences)))))

    async def _fence(self, call: FenceCall) -> FenceResult:
        if call.open:
            return await _result(call.partition, self._fencing.open(call.partition, call.reshard))
        closing = self._fencing.close(call.partition, call.reshard, importing=call.importing)
        return await _result(call.partition, closing)

    async def take_in(self, request: web.Request) -> web.Response:
        """Refuse with 400 what is no number, with 409 an older fencing token, with 413 too large a body. Refusals by
        the rules of a re-shard are in the body of a 200.
        """
        partition = int(request.match_info["partition"])
        reshard, position = number_of(request, "reshard"), number_of(request, "position")
        self._tokens.check(number_of(request, "token"))
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
