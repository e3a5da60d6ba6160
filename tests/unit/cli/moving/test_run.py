"""`muster groups move` follows a move to its end, whichever pod leads, and says what became of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster_cli.errors import CliError
from muster_cli.main import cli
from muster_cli.moving import run
from muster_cli.moving.pods import Pods
from muster_cli.moving.run import GroupOutcome, Outcome, move_group
from muster_coordinator.podapi.client import PodRefusedError, PodUnreachableError
from muster_coordinator.podapi.moves import MoveAnswer, MoveRequest, MovesAnswer, MoveStatus, RoutedGroup

GROUP = "orders"


class Pod:
    """Leads the group's partition or not. `steps`: what it says of the move, look by look; the last one stays."""

    def __init__(self, *steps: str, leads: bool = True, obstacles: tuple[str, ...] = (), reason: str = "") -> None:
        self.leads = leads
        self.alive = True
        self.at_muster: bool | None = None
        """None: it has no route."""
        self.asked: list[MoveRequest] = []
        self._steps = list(steps)
        self._step, self._back = "", False
        self._obstacles = obstacles
        self._reason = reason

    def _status(self) -> MoveStatus:
        return MoveStatus(GROUP, 0, self._step, self._reason if self._step == "given up" else "", 230, self._back)

    async def move(self, request: MoveRequest) -> MoveAnswer:
        if not self.alive:
            raise PodUnreachableError("it is away")
        if not self.leads:
            raise PodRefusedError(409, "NotLeader", "this pod does not lead partition 0")
        self.asked.append(request)
        if self._obstacles or request.dry_run:
            return MoveAnswer(self._obstacles, None)
        self._step, self._back = "waiting", request.back
        return MoveAnswer((), self._status())

    async def moves(self) -> MovesAnswer:
        if not self.alive:
            raise PodUnreachableError("it is away")
        if self._step and self._steps:
            self._step = self._steps.pop(0)
            self.alive = self._step != "dies"
        if self._step == "moved":
            self.at_muster = not self._back
        moves = (self._status(),) if self._step else ()
        shows = self.at_muster is not None and self.leads
        return MovesAnswer(moves, (RoutedGroup(GROUP, 0, 1, bool(self.at_muster)),) if shows else ())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOOK_S", 0.001)


def moved(*pods: Any, back: bool = False, dry_run: bool = False, timeout_s: float = 5.0) -> GroupOutcome:
    return asyncio.run(move_group(Pods(pods), GROUP, back=back, dry_run=dry_run, timeout_s=timeout_s))


def test_the_leader_moves_it() -> None:
    other, leader = Pod(leads=False), Pod("waiting", "draining", "deciding", "moved")
    assert moved(other, leader) == GroupOutcome(GROUP, Outcome.MOVED, fenced_ms=230)
    assert leader.asked == [MoveRequest(GROUP)]


def test_group_that_is_there_is_passed_over() -> None:
    leader = Pod()
    leader.at_muster = True
    assert moved(leader).outcome is Outcome.ALREADY
    leader.at_muster = False
    assert moved(leader, back=True).outcome is Outcome.ALREADY_BACK
    assert leader.asked == []


def test_the_leader_moves_it_back() -> None:
    leader = Pod("waiting", "writing", "moved")
    leader.at_muster = True
    assert moved(leader, back=True) == GroupOutcome(GROUP, Outcome.MOVED_BACK, fenced_ms=230)
    assert leader.asked == [MoveRequest(GROUP, back=True)]
    leader = Pod("writing", "given up", reason="it rebalances")
    leader.at_muster = True
    assert moved(leader, back=True) == GroupOutcome(GROUP, Outcome.STAYS_AT_MUSTER, ("it rebalances",), 230)


def test_what_stands_in_the_way_is_said() -> None:
    assert moved(Pod(obstacles=("a", "b"))) == GroupOutcome(GROUP, Outcome.STAYS, ("a", "b"))
    assert moved(Pod(obstacles=("a",)), dry_run=True) == GroupOutcome(GROUP, Outcome.STAYS, ("a",))
    assert moved(Pod(), dry_run=True) == GroupOutcome(GROUP, Outcome.READY)


def test_move_that_was_given_up_says_why() -> None:
    leader = Pod("draining", "given up", reason="it took too long: draining")
    assert moved(leader) == GroupOutcome(GROUP, Outcome.STAYS, ("it took too long: draining",), 230)


@pytest.mark.parametrize("routed", [True, False])
def test_leader_that_dies_is_followed_by_one_that_knows(routed: bool) -> None:
    class Next(Pod):
        async def moves(self) -> MovesAnswer:
            self.leads = not leader.alive
            return await super().moves()

    leader, later = Pod("draining", "dies"), Next(leads=False)
    later.at_muster = routed or None
    outcome = moved(leader, later)
    assert outcome.outcome is (Outcome.MOVED if routed else Outcome.STAYS)
    assert leader.asked


def test_time_is_bounded() -> None:
    outcome = moved(Pod("draining"), timeout_s=0.05)
    assert outcome.outcome is Outcome.UNKNOWN
    assert moved(Pod(leads=False), timeout_s=0.05).outcome is Outcome.UNKNOWN


def test_nothing_movable_is_an_error() -> None:
    class Nothing(Pod):
        async def moves(self) -> MovesAnswer:
            raise PodRefusedError(404, "NothingMovable", "muster.upstream.movable.groups is empty")

    with pytest.raises(CliError, match=r"muster\.upstream\.movable\.groups is empty"):
        moved(Nothing())


@pytest.mark.parametrize("command", [("groups", "move", "g"), ("groups", "moves")])
def test_nothing_runs(command: tuple[str, ...], tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, [*command, "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "nothing runs on" in result.output
