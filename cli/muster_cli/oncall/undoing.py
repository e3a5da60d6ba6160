"""`muster groups undo`: gives groups of a running cluster the offsets that they had at a moment, as backups have it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
import msgspec
from msgspec.structs import replace

from muster_cli.backup.addresses import open_store
from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.then import Moment, Then, moment_of, offsets_then
from muster_cli.errors import CliError, CliUsageError
from muster_cli.oncall.asking import Brokers
from muster_cli.oncall.groups import Place
from muster_cli.oncall.kafka import KafkaGroups
from muster_cli.oncall.looking import console
from muster_cli.oncall.reset import csv_lines, reset_manifest
from muster_cli.oncall.undo import (
    Committed,
    GroupUndo,
    Undo,
    compared,
    outcomes,
    to_write,
    told_removed,
    undo_screen,
)
from muster_cli.oncall.writing import why_not_written
from muster_cli.progress import amounts
from muster_cli.times import time_ms
from muster_operator.api.durations import format_time

DONE, LEFT = 0, 1
"""Exit codes: `LEFT` if a group was left as it is that should have been another one."""


@dataclass(frozen=True)
class Asked:
    """`groups`: names; none: all that had offsets at the moment. `backup`, `at`: the id of a backup, and a time in ISO
    8601; "" for what is not given."""

    store: str
    backup: str
    at: str
    groups: Sequence[str]


Offsets = dict[str, dict[Place, Committed]]
"""The committed offsets of each group."""


def look_back(asked: Asked) -> tuple[str, Offsets, int]:
    """Returns the moment in words, what was committed then, and how many records of that time are gone. Raises
    CliError, CliUsageError."""
    if asked.backup and asked.at:
        raise CliUsageError("give one of --backup and --at")
    store = open_store(asked.store)
    moment = moment_of(read_catalog(store), asked.backup or None, time_ms("--at", asked.at) if asked.at else None)
    named = frozenset(asked.groups)
    with amounts() as progress:
        then = offsets_then(store, moment, (lambda group: group in named) if named else (lambda _: True), progress)
    missing = sorted(named - then.offsets.keys())
    if missing:
        raise CliError(f"at {_words(moment)} nothing was committed for {', '.join(missing)}")
    return _words(moment), _committed(then), then.removed


def run_offsets(asked: Asked, *, as_csv: bool, as_json: bool) -> None:
    """Print what was committed. Raises CliError, CliUsageError."""
    moment, offsets, removed = look_back(asked)
    if as_json and not as_csv:
        rows = {
            group: [
                {"topic": place[0], "partition": place[1], **msgspec.to_builtins(each)} for place, each in of.items()
            ]
            for group, of in sorted(offsets.items())
        }
        click.echo(msgspec.json.encode({"moment": moment, "removedRecords": removed, "groups": rows}))
        return
    if as_csv:
        committed = {group: {place: each.offset for place, each in of.items()} for group, of in offsets.items()}
        for line in csv_lines(committed, with_group=len(committed) > 1):
            click.echo(line)
    else:
        click.echo(f"committed at {moment}:")
        for group, then in sorted(offsets.items()):
            for (topic, partition), each in sorted(then.items()):
                click.echo(f"{group}  {topic}-{partition}  {each.offset}")
    if removed:
        click.echo(told_removed(removed), err=True)


def run_as_reset(asked: Asked, reset_id: str) -> None:
    """Print what was committed as the reset of a ConsumerGroup. Raises CliError, CliUsageError."""
    moment, offsets, removed = look_back(asked)
    (then,) = offsets.values()
    try:
        click.echo(reset_manifest(reset_id, {place: each.offset for place, each in then.items()}), nl=False)
    except ValueError as error:
        raise CliError(str(error)) from None
    click.echo(f"committed at {moment}", err=True)
    if removed:
        click.echo(told_removed(removed), err=True)


def run_undo(brokers: Brokers, asked: Asked, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Show then beside now, ask, and write. Returns the exit code. Raises Unreachable, CliError, CliUsageError."""
    if not yes and not dry_run and (as_json or not sys.stdin.isatty()):
        raise CliUsageError("nobody can be asked here: give --yes or --dry-run")
    moment, then, removed = look_back(asked)
    client = brokers.client()
    states = client.states(sorted(then))
    groups = [compared(name, states[name], then[name], client.committed(name)) for name in sorted(then)]
    undo = Undo(moment, removed, tuple(groups))
    waiting = [each for each in groups if each.outcome == "to write"]
    if not as_json:
        click.echo(f"committed at {moment}, and now:")
        console().print(undo_screen(undo))
    if waiting and not dry_run:
        if not yes:
            click.confirm(f"write the offsets of {len(waiting)} groups?", abort=True)
        done = {each.group: _write(client, each, then[each.group]) for each in waiting}
        undo = replace(undo, groups=tuple(done.get(each.group, each) for each in groups))
        if not as_json:
            console().print(outcomes(done.values()))
    if as_json:
        click.echo(msgspec.json.encode(undo))
    return LEFT if any(each.outcome in ("members", "refused") for each in undo.groups) else DONE


def _write(client: KafkaGroups, group: GroupUndo, then: Mapping[Place, Committed]) -> GroupUndo:
    why = why_not_written(client, group.group, to_write(group, then))
    return replace(group, outcome="refused", why=why) if why else replace(group, outcome="written")


def _committed(then: Then) -> Offsets:
    return {
        group: {place: Committed(value.offset, value.metadata, value.leader_epoch) for place, value in of_group.items()}
        for group, of_group in then.offsets.items()
    }


def _words(moment: Moment) -> str:
    if moment.at_ms is None:
        assert moment.base is not None
        return moment.base.id
    return format_time(moment.at_ms / 1000)
