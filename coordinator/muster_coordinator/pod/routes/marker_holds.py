"""POST and DELETE /v1/marker-holds: see `podapi.cuts`."""

from __future__ import annotations

from aiohttp import web

from muster_coordinator.pod.marker_hold import MarkerHold
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.cuts import MarkerHoldAnswer
from muster_coordinator.podapi.server import json_answer, number_of

_PATH = r"/v1/marker-holds/{name:[0-9a-f]{32}}"


def marker_hold_routes(hold: MarkerHold) -> list[web.RouteDef]:
    async def begin(request: web.Request) -> web.Response:
        milliseconds = number_of(request, "forMs")
        if milliseconds < 1:
            raise RefusedCallError(400, "InvalidRequest", "forMs must be 1 or more")
        if not hold.begin(request.match_info["name"], milliseconds / 1000):
            raise RefusedCallError(409, "HeldAlready", "another hold is in force, or was just now: ask again later")
        return json_answer(MarkerHoldAnswer(held=True))

    async def end(request: web.Request) -> web.Response:
        return json_answer(MarkerHoldAnswer(hold.end(request.match_info["name"])))

    return [web.post(_PATH, begin), web.delete(_PATH, end)]
