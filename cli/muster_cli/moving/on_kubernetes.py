"""`muster groups move`, `back` and `moves` of a cluster on Kubernetes: declares, follows, prints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

from muster_cli.errors import CliUsageError
from muster_cli.moving.declared import DeclaredGroup, declared_groups, move_declared, shown, the_cluster
from muster_cli.moving.run import GOOD, GroupOutcome, say_outcome
from muster_cli.oncall.options import Where
from muster_operator.api.consumer_group import Side


def run_declared_move(
    where: Where, cluster: str, groups: Sequence[str], wanted: Side, timeout_s: float, *, dry_run: bool, as_json: bool
) -> int:
    """Returns the exit code. Raises CliError, CliUsageError, Unreachable."""
    _check(where)

    async def run() -> list[GroupOutcome]:
        async with where.kubernetes(cluster) as reader:
            say = (lambda outcome: None) if as_json else say_outcome
            seen = await the_cluster(reader)
            return await move_declared(reader, seen, groups, wanted, timeout_s, say, dry_run=dry_run)

    try:
        outcomes = asyncio.run(run())
    except KeyboardInterrupt:
        click.echo("interrupted: what is declared stays; see `muster groups moves`", err=True)
        return 130
    if as_json:
        click.echo(msgspec.json.encode({"groups": outcomes}))
    return 0 if all(each.outcome in GOOD for each in outcomes) else 1


def run_declared_moves(where: Where, cluster: str, *, as_json: bool) -> None:
    """Raises CliError, CliUsageError, Unreachable."""
    _check(where)

    async def run() -> list[DeclaredGroup]:
        async with where.kubernetes(cluster) as reader:
            return shown(await declared_groups(reader, await the_cluster(reader)))

    groups = asyncio.run(run())
    if as_json:
        click.echo(msgspec.json.encode({"groups": groups}))
        return
    columns = ("group", "wanted", "now", "state", "fenced ms", "written back", "message")
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for each in groups:
        written = "-" if each.written_back is None else "yes" if each.written_back else "no"
        message = each.write_problem or each.message
        table.add_row(
            each.group, each.wanted, each.now or "-", each.reason or "-", str(each.fenced_ms), written, message
        )
    Console(highlight=False).print(table)


def _check(where: Where) -> None:
    if where.all_namespaces:
        raise CliUsageError("this command is about one cluster: give --namespace, not --all-namespaces")
