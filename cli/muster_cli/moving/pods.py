"""Asks the pods of a cluster for moves: the one that leads a group's partition moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from muster_cli.errors import CliError
from muster_coordinator.podapi.client import PodApiError, PodRefusedError
from muster_coordinator.podapi.moves import MoveAnswer, MoveRequest, MovesAnswer, MoveStatus, RoutedGroup

MOVED, GIVEN_UP = "moved", "given up"
"""Steps at which a move is over."""


class Pod(Protocol):
    """`podapi.client.PodClient`, as far as it is needed."""

    async def move(self, request: MoveRequest) -> MoveAnswer: ...

    async def moves(self) -> MovesAnswer: ...


class NobodyLeadsError(Exception):
    """No pod that answers leads the group's partition now; the message has what they said."""


class Pods:
    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods

    async def move(self, group: str, *, back: bool, dry_run: bool) -> MoveAnswer:
        """Raises NobodyLeadsError; CliError where nothing can move."""
        said: list[str] = []
        for pod in self._pods:
            try:
                return await pod.move(MoveRequest(group, dry_run, back))
            except PodRefusedError as error:
                if error.status == 404:
                    raise CliError(error.message) from None
                if error.status != 409:
                    raise CliError(str(error)) from None
                said.append(error.message)
            except PodApiError as error:
                said.append(str(error))
        raise NobodyLeadsError("; ".join(said) or "no pod runs")

    async def moves(self) -> tuple[tuple[MoveStatus, ...], tuple[RoutedGroup, ...]]:
        """Returns what all pods say that answer. Raises CliError where nothing can move, or none answers."""
        answers = await asyncio.gather(*(pod.moves() for pod in self._pods), return_exceptions=True)
        given = [answer for answer in answers if isinstance(answer, MovesAnswer)]
        if not given:
            refused = [each for each in answers if isinstance(each, PodRefusedError)]
            problems = [each.message for each in refused] or [str(each) for each in answers]
            raise CliError(problems[0] if problems else "no pod runs")
        moves = tuple([move for answer in given for move in answer.moves])
        return moves, tuple([route for answer in given for route in answer.routes])
