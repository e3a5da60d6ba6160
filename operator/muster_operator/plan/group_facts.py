"""Facts about groups that can move, as pods tell them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster_coordinator.podapi.moves import MoveAnswer, MovesAnswer, MoveStatus

MOVED, GIVEN_UP = "moved", "given up"
"""Steps at which a move is over."""
AGAIN_S = 15.0
"""The time from a move that was refused or given up to the next attempt, in seconds; twice as long after each move that
was begun, because each fence makes clients wait."""
DOUBLINGS = 5
"""Eight minutes pass from one attempt to the next then."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """`is_known`: the pod that leads its partition has told of its groups. `at_muster`: the group's route leads here.
    `move`: that of the group which is under way at its leader or ended there last. `obstacles`: what stood in the way
    when the leader was asked last. `is_due`: it may be asked again. `write_problem`: why Kafka does not get the offsets
    of a group that is here ("": it gets them; None: none are written, or it is not known)."""

    is_known: bool = False
    at_muster: bool = False
    move: MoveStatus | None = None
    obstacles: tuple[str, ...] = ()
    is_due: bool = True
    write_problem: str | None = None

    @property
    def is_moving(self) -> bool:
        return self.move is not None and self.move.step not in (MOVED, GIVEN_UP)


@dataclass(slots=True)
class _Attempts:
    generation: int
    number: int = 0
    due_s: float = 0.0
    obstacles: tuple[str, ...] = ()


class GroupMemory:
    """The memory of the groups of one cluster. All of it can be lost: pods say it again. Times are monotonic
    (seconds)."""

    def __init__(self) -> None:
        self._routes: dict[str, tuple[int, bool]] = {}
        """Epoch and side: the highest epoch counts, also if another pod said it later."""
        self._moves: dict[str, dict[str, MoveStatus]] = {}
        """The last move that each pod shows of each group."""
        self._problems: dict[str, dict[str, str]] = {}
        """The reason, by pod and group, why Kafka does not get offsets; "": it gets them."""
        self._attempts: dict[str, _Attempts] = {}

    def said(self, pod: str, answer: MovesAnswer, declared: Iterable[str]) -> None:
        """The pod has told of its moves and of the groups whose partitions it leads."""
        wanted = frozenset(declared)
        self._moves[pod] = {each.group: each for each in answer.moves if each.group in wanted}
        self._problems[pod] = {
            each.group: each.write_problem
            for each in answer.routes
            if each.at_muster and (each.write_problem or each.unwritten_ms >= 0)
        }
        for route in answer.routes:
            if route.group in wanted and route.epoch > self._routes.get(route.group, (-1, False))[0]:
                self._routes[route.group] = (route.epoch, route.at_muster)

    def asked(self, group: str, generation: int, answer: MoveAnswer, now_s: float) -> None:
        """The leader of the group was asked to move it."""
        attempts = self._attempts.get(group)
        if attempts is None or attempts.generation != generation:
            attempts = self._attempts[group] = _Attempts(generation)
        attempts.obstacles = answer.obstacles
        if answer.move is not None:
            attempts.number += 1
        attempts.due_s = now_s + AGAIN_S * 2.0 ** min(max(attempts.number - 1, 0), DOUBLINGS)

    def forget(self, pods: Iterable[str], groups: Iterable[str]) -> None:
        """All but these."""
        there, declared = frozenset(pods), frozenset(groups)
        self._moves = {pod: moves for pod, moves in self._moves.items() if pod in there}
        self._problems = {pod: problems for pod, problems in self._problems.items() if pod in there}
        self._routes = {group: route for group, route in self._routes.items() if group in declared}
        self._attempts = {group: each for group, each in self._attempts.items() if group in declared}

    def view(self, generations: Mapping[str, int], leaders: Mapping[str, str], now_s: float) -> dict[str, GroupFacts]:
        """The facts known of these groups. `generations`: of the object that declares each. `leaders`: the pods that
        lead their partitions, as far as there are any."""
        return {group: self._facts(group, each, leaders.get(group, ""), now_s) for group, each in generations.items()}

    def _facts(self, group: str, generation: int, leader: str, now_s: float) -> GroupFacts:
        attempts = self._attempts.get(group)
        if attempts is None or attempts.generation != generation:
            attempts = _Attempts(generation)
        _, at_muster = self._routes.get(group, (-1, False))
        move = self._moves.get(leader, {}).get(group)
        problem = self._problems.get(leader, {}).get(group)
        is_due = now_s >= attempts.due_s
        return GroupFacts(leader in self._moves, at_muster, move, attempts.obstacles, is_due, problem)
