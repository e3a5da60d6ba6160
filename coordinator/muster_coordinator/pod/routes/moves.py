"""POST /v1/leases, POST and GET /v1/moves."""

from __future__ import annotations

from aiohttp import web

from muster_coordinator.pod.mirroring.moving.moves import Moves, NothingMovableError, NotLeaderError
from muster_coordinator.podapi.access import LEASES
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.leases import LeasesRequest
from muster_coordinator.podapi.moves import MoveRequest
from muster_coordinator.podapi.server import body_of, json_answer


def move_routes(moves: Moves | None) -> list[web.RouteDef]:
    """None: the pod has no upstream."""
    api = _Api(moves)
    return [web.post(LEASES, api.leases), web.post("/v1/moves", api.move), web.get("/v1/moves", api.show)]


class _Api:
    def __init__(self, moves: Moves | None) -> None:
        self._given = moves

    @property
    def _moves(self) -> Moves:
        if self._given is None:
            raise _nothing("this cluster has no upstream, so no group can move")
        return self._given

    async def leases(self, request: web.Request) -> web.Response:
        asked = await body_of(request, LeasesRequest)
        return json_answer(await self._moves.leases(asked))

    async def move(self, request: web.Request) -> web.Response:
        asked = await body_of(request, MoveRequest)
        try:
            return json_answer(await self._moves.move(asked))
        except NothingMovableError as error:
            raise _nothing(str(error)) from None
        except NotLeaderError as error:
            raise RefusedCallError(409, "NotLeader", str(error)) from None

    async def show(self, _request: web.Request) -> web.Response:
        return json_answer(self._moves.status())


def _nothing(message: str) -> RefusedCallError:
    return RefusedCallError(404, "NothingMovable", message)
