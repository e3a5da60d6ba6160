"""Looks at clusters once or again and again, and prints what is seen."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from muster_cli.oncall.bundle import collect, write
from muster_cli.oncall.doctor import diagnose
from muster_cli.oncall.explain import Kind, find
from muster_cli.oncall.explain import explain as explained
from muster_cli.oncall.facts import read_facts
from muster_cli.oncall.options import Where
from muster_cli.oncall.screen import diagnosis, explanation, screen
from muster_cli.oncall.seen import Reader, Unreachable
from muster_cli.oncall.status import StatusReport, build_status

HEALTHY, NEEDS_PERSON, UNREACHABLE = 0, 1, 2
"""Exit codes."""
WIDTH = 140
"""Columns of what is written to a file or another program."""


def console() -> Console:
    """The console for tables: as wide as the terminal, or `WIDTH`."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)


async def run_status(where: Where, cluster: str, interval: float | None, *, as_json: bool) -> int:
    """Print the report; again every `interval` seconds if that is given, until interrupted. The exit code. Raises
    Unreachable at the first look only.
    """
    async with where.reader(cluster) as reader:
        report = build_status(await reader.look(), time.time())
        if interval is not None:
            return await _watch(reader, report, interval, as_json=as_json)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        console().print(screen(report, time.time()))
    return HEALTHY if report.healthy else NEEDS_PERSON


async def _watch(reader: Reader, report: StatusReport, interval: float, *, as_json: bool) -> int:
    """The exit code of the last look. Without a terminal, and as JSON, only what has changed is printed again."""
    to, lost = console(), ""
    with Live(console=to, auto_refresh=False, screen=False) if to.is_terminal and not as_json else _Plain(to) as shown:
        last: StatusReport | None = None
        while True:
            if as_json:
                if report != last:
                    click.echo(msgspec.json.encode(report))
            elif to.is_terminal or report != last or lost:
                shown.update(_with_trouble(screen(report, time.time()), lost), refresh=True)
            last = report
            try:
                await asyncio.sleep(interval)
                report, lost = build_status(await reader.look(), time.time()), ""
            except Unreachable as error:
                lost = error.message
            except asyncio.CancelledError:
                return UNREACHABLE if lost else HEALTHY if report.healthy else NEEDS_PERSON


class _Plain:
    """Used instead of a `Live` where there is no terminal: prints one report after the other."""

    def __init__(self, to: Console) -> None:
        self._to = to

    def __enter__(self) -> _Plain:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, what: RenderableType, refresh: bool) -> None:
        self._to.print(what, Text(""))


def _with_trouble(what: RenderableType, lost: str) -> RenderableType:
    return Group(Text(f"as it was before: {lost}", style="red"), what) if lost else what


async def run_explain(where: Where, cluster: str, asked: str, kind: Kind, *, as_json: bool) -> int:
    """Print what there is to say of a partition or group, in each cluster that has it. The exit code. Raises
    Unreachable.
    """
    async with where.reader(cluster) as reader:
        clusters = await reader.look()
    now = time.time()
    told = [explained(each, asked, now) for each in find(clusters, asked, kind)]
    if as_json:
        click.echo(msgspec.json.encode(told))
    else:
        for each in told:
            console().print(explanation(each, now))
    return NEEDS_PERSON if any(each.needs_person for each in told) else HEALTHY


async def run_doctor(where: Where, cluster: str, *, show_all: bool, as_json: bool) -> int:
    """Print what stands between clusters and production. The exit code. Raises Unreachable."""
    async with where.kubernetes(cluster) as reader:
        facts = [await read_facts(reader, each) for each in await reader.look()]
    told = [diagnose(each, time.time()) for each in facts]
    if as_json:
        click.echo(msgspec.json.encode(told))
    elif not told:
        console().print("no CoordinatorCluster")
    else:
        for each in told:
            console().print(diagnosis(each, show_all=show_all), soft_wrap=True)
    return HEALTHY if all(each.ready for each in told) else NEEDS_PERSON


async def run_bundle(where: Where, cluster: str, output: Path, log_lines: int) -> None:
    """Write the archive, and say what is in it and what is missing. Raises Unreachable and CliError."""
    now = time.time()
    async with where.kubernetes(cluster) as reader:
        made = await collect(reader, now, log_lines)
    write(made.files, output, now)
    for each in made.missing:
        click.echo(f"missing: {each}", err=True)
    click.echo(f"{output}: {len(made.files)} files, {len(made.missing)} missing")
