"""POST /v1/resets/plan, POST /v1/resets."""

from __future__ import annotations

from aiohttp import web

from muster_coordinator.pod.resets import NotLedError, Resets
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.resets import PlanRequest, ResetRequest
from muster_coordinator.podapi.server import body_of, json_answer


def reset_routes(resets: Resets) -> list[web.RouteDef]:
    async def plan(request: web.Request) -> web.Response:
        asked = await body_of(request, PlanRequest)
        try:
            return json_answer(await resets.plan(asked))
        except NotLedError as error:
            raise _not_leader(error) from None

    async def reset(request: web.Request) -> web.Response:
        asked = await body_of(request, ResetRequest)
        try:
            return json_answer(await resets.reset(asked))
        except NotLedError as error:
            raise _not_leader(error) from None

    return [web.post("/v1/resets/plan", plan), web.post("/v1/resets", reset)]


def _not_leader(error: NotLedError) -> RefusedCallError:
    return RefusedCallError(409, "NotLeader", str(error))
