"""Moves groups one after the other, to Muster or back, follows each to its end, and prints what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum

import click
import msgspec
from rich.console import Console
from rich.table import Table

from muster_cli.local.data_dir import DataDir
from muster_cli.local.live_pods import live_pods
from muster_cli.moving.pods import GIVEN_UP, NobodyLeadsError, Pods
from muster_coordinator.podapi.moves import MoveAnswer, MoveStatus, RoutedGroup

LOOK_S = 0.1


class Outcome(StrEnum):
    MOVED = "moved"
    MOVED_BACK = "moved back to Kafka"
    ALREADY = "already at Muster"
    ALREADY_BACK = "already at Kafka"
    READY = "nothing stands in the way"
    STAYS = "stays at Kafka"
    STAYS_AT_MUSTER = "stays at Muster"
    UNKNOWN = "not known"


GOOD = (Outcome.MOVED, Outcome.MOVED_BACK, Outcome.ALREADY, Outcome.ALREADY_BACK, Outcome.READY)


class GroupOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """A group as `--json` prints it. `reasons`: why it is not there. `fenced_ms`: how long it waited."""

    group: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    fenced_ms: int = 0


class MovesReport(msgspec.Struct, frozen=True, rename="camel"):
    """The object that `muster groups moves --json` prints. Its names stay compatible."""

    moves: tuple[MoveStatus, ...]
    routes: tuple[RoutedGroup, ...]


def run_move(
    data: DataDir, groups: Sequence[str], *, back: bool, dry_run: bool, timeout_s: float, as_json: bool
) -> int:
    """Returns the exit code. Raises CliError."""

    async def run() -> list[GroupOutcome]:
        async with _pods(data) as pods:
            outcomes = []
            for group in groups:
                outcomes.append(await move_group(pods, group, back=back, dry_run=dry_run, timeout_s=timeout_s))
                if not as_json:
                    say_outcome(outcomes[-1])
            return outcomes

    try:
        outcomes = asyncio.run(run())
    except KeyboardInterrupt:
        click.echo("interrupted: a move that was begun goes on; see `muster groups moves`", err=True)
        return 130
    if as_json:
        click.echo(msgspec.json.encode({"groups": outcomes}))
    return 0 if all(each.outcome in GOOD for each in outcomes) else 1


def run_moves(data: DataDir, *, as_json: bool) -> None:
    """Raises CliError."""

    async def run() -> MovesReport:
        async with _pods(data) as pods:
            return MovesReport(*await pods.moves())

    report = asyncio.run(run())
    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    columns = ("group", "partition", "now", "fenced ms", "not at Kafka yet", "reason")
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for move in report.moves:
        table.add_row(move.group, str(move.partition), move.step, str(move.fenced_ms), "", move.reason)
    for route in report.routes:
        side = "at Muster" if route.at_muster else "at Kafka"
        now = f"{side}, route {route.epoch}"
        table.add_row(route.group, str(route.partition), now, "", _unwritten(route), route.write_problem)
    Console(highlight=False).print(table)


def _unwritten(route: RoutedGroup) -> str:
    """The offsets that are committed at Muster, and would be lost with all pods."""
    if not route.at_muster:
        return ""
    if route.unwritten_ms < 0:
        return "not known"
    return f"the last {route.unwritten_ms / 1000:.1f} s" if route.unwritten_ms else "nothing"


@asynccontextmanager
async def _pods(data: DataDir) -> AsyncIterator[Pods]:
    async with live_pods(data) as pods:
        yield Pods(pods)


async def move_group(pods: Pods, group: str, *, back: bool, dry_run: bool, timeout_s: float) -> GroupOutcome:
    """Ask for the move, and follow it. Raises CliError."""
    move = _Following(pods, group, back)
    try:
        async with asyncio.timeout(timeout_s):
            if await move.is_there():
                return move.outcome(Outcome.ALREADY)
            return await move.moved(dry_run)
    except TimeoutError:
        said = f"not decided within {timeout_s:.0f} s; see `muster groups moves`"
        return GroupOutcome(group, Outcome.UNKNOWN, (said,))


_OF_BACK = {
    Outcome.MOVED: Outcome.MOVED_BACK,
    Outcome.ALREADY: Outcome.ALREADY_BACK,
    Outcome.STAYS: Outcome.STAYS_AT_MUSTER,
}


def named(outcome: Outcome, *, back: bool) -> Outcome:
    """The outcome of a move to Muster as it is called of this move."""
    return _OF_BACK.get(outcome, outcome) if back else outcome


class _Following:
    """One group's move, `back` or to Muster."""

    def __init__(self, pods: Pods, group: str, back: bool) -> None:
        self._pods = pods
        self._group = group
        self._back = back

    def outcome(self, outcome: Outcome, reasons: tuple[str, ...] = (), fenced_ms: int = 0) -> GroupOutcome:
        return GroupOutcome(self._group, named(outcome, back=self._back), reasons, fenced_ms)

    async def is_there(self) -> bool:
        _, routes = await self._pods.moves()
        return self._is_there(routes)

    def _is_there(self, routes: Sequence[RoutedGroup]) -> bool:
        """A group without a route is not known to have been at Muster: the pod that leads it says so."""
        return any(each.group == self._group and each.at_muster != self._back for each in routes)

    async def moved(self, dry_run: bool) -> GroupOutcome:
        answer = await self._asked(dry_run=dry_run)
        if answer.obstacles:
            return self.outcome(Outcome.STAYS, answer.obstacles)
        if answer.move is None:
            return self.outcome(Outcome.READY)
        while True:
            moves, routes = await self._pods.moves()
            of_group = [each for each in moves if each.group == self._group and each.back == self._back]
            latest = of_group[-1] if of_group else None
            fenced_ms = latest.fenced_ms if latest is not None else 0
            if self._is_there(routes):
                return self.outcome(Outcome.MOVED, fenced_ms=fenced_ms)
            if latest is not None and latest.step == GIVEN_UP:
                return self.outcome(Outcome.STAYS, (latest.reason,), fenced_ms)
            if latest is None:
                await self._asked(dry_run=True)  # there is a leader again, and it knows the route or not
                if await self.is_there():
                    return self.outcome(Outcome.MOVED)
                return self.outcome(Outcome.STAYS, ("the pod that was moving it has ended: move it again",))
            await asyncio.sleep(LOOK_S)

    async def _asked(self, *, dry_run: bool) -> MoveAnswer:
        while True:
            try:
                return await self._pods.move(self._group, back=self._back, dry_run=dry_run)
            except NobodyLeadsError:
                await asyncio.sleep(LOOK_S)


def say_outcome(outcome: GroupOutcome) -> None:
    waited = f", its requests waited {outcome.fenced_ms} ms" if outcome.fenced_ms else ""
    click.echo(f"{outcome.group}: {outcome.outcome}{waited}")
    for reason in outcome.reasons:
        click.echo(f"  {reason}")
