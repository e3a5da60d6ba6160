"""PUT /v1/access over HTTP: see `podapi.users`."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from muster_coordinator.pod.fencing_token import FencingTokens
from muster_coordinator.pod.given_access import GivenAccess
from muster_coordinator.podapi.server import body_of, json_answer
from muster_coordinator.podapi.users import AccessAnswer, AccessRequest


def access_routes(given: GivenAccess, tokens: FencingTokens, in_force: Callable[[], None]) -> list[web.RouteDef]:
    """`in_force` is called when other users and ACLs are. A pod that has files of its own has no such route."""

    async def put(request: web.Request) -> web.Response:
        asked = await body_of(request, AccessRequest)
        tokens.check(asked.token)
        return json_answer(AccessAnswer(await given.take(asked.access, in_force)))

    return [web.put("/v1/access", put)]
