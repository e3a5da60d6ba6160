"""POST and DELETE /v1/marker-holds: see `podapi.cuts`."""

from __future__ import annotations

from aiohttp import web

from muster_coordinator.pod.marker_writer import MarkerWriter
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.cuts import MarkerHoldAnswer
from muster_coordinator.podapi.server import json_answer, number_of

_PATH = r"/v1/marker-holds/{name:[0-9a-f]{32}}"


def marker_hold_routes(markers: MarkerWriter) -> list[web.RouteDef]:
    hold = markers.hold

    async def begin(request: web.Request) -> web.Response:
        milliseconds = number_of(request, "forMs")
        if milliseconds < 1:
            raise RefusedCallError(400, "InvalidRequest", "forMs must be 1 or more")
        name = request.match_info["name"]
        if not hold.begin(name, milliseconds / 1000):
            raise RefusedCallError(409, "HeldAlready", "another hold is in force, or was just now: ask again later")
        if not await markers.settle(milliseconds / 1000):
            hold.end(name)
            raise RefusedCallError(503, "NotCommitted", "completions are not committed yet: ask again later")
        return json_answer(MarkerHoldAnswer(held=True))

    async def end(request: web.Request) -> web.Response:
        return json_answer(MarkerHoldAnswer(hold.end(request.match_info["name"])))

    return [web.post(_PATH, begin), web.delete(_PATH, end)]
