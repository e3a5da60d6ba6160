"""The output and the writes of `muster groups undo`: what groups had committed then beside what they have now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster_cli.oncall.groups import Place


class Committed(msgspec.Struct, frozen=True):
    """An offset with what was committed beside it. `leader_epoch`: -1 if there was none."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Change(msgspec.Struct, frozen=True):
    """One partition of a group. `then`, `now`: offsets; None if nothing was, or is, committed."""

    topic: str
    partition: int
    then: int | None
    now: int | None


Outcome = Literal["same", "members", "to write", "written", "refused"]


class GroupUndo(msgspec.Struct, frozen=True):
    """One group. `state`: in Kafka's words. `changes`: of partitions whose offset is another one. `to_write`: those
    that had an offset then. `why`: it was refused."""

    group: str
    state: str
    changes: tuple[Change, ...]
    outcome: Outcome
    why: str = ""


class Undo(msgspec.Struct, frozen=True, rename="camel"):
    """The object that `--json` prints. Its names stay compatible. `moment`: the id of a backup, or a time.
    `removed_records`: commits before that moment that compaction has taken out."""

    moment: str
    removed_records: int
    groups: tuple[GroupUndo, ...]


EMPTY_STATES = ("EMPTY", "DEAD")
"""A group in these states has no member: every client may commit for it."""


def compared(group: str, state: str, then: Mapping[Place, Committed], now: Mapping[Place, int]) -> GroupUndo:
    """The changes that give a group back what it had committed then."""
    places = sorted({*then, *now})
    both = [Change(*place, then[place].offset if place in then else None, now.get(place)) for place in places]
    changes = tuple(each for each in both if each.then != each.now)
    if not any(each.then is not None for each in changes):
        return GroupUndo(group, state, changes, "same")
    return GroupUndo(group, state, changes, "to write" if state in EMPTY_STATES else "members")


def to_write(undo: GroupUndo, then: Mapping[Place, Committed]) -> dict[Place, Committed]:
    """The offsets to commit for a group."""
    places = ((each.topic, each.partition) for each in undo.changes if each.then is not None)
    return {place: then[place] for place in places}


def undo_screen(undo: Undo) -> RenderableType:
    """A table of all changes, and a line for each group that is left alone."""
    parts: list[RenderableType] = []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("group", "topic", "partition", "then", "now", "moves by"):
        table.add_column(column, justify="right" if column in ("partition", "then", "now", "moves by") else "left")
    for each in undo.groups:
        for change in each.changes:
            by = "" if change.then is None or change.now is None else f"{change.then - change.now:+}"
            numbers = ("-" if number is None else str(number) for number in (change.then, change.now))
            table.add_row(escape(each.group), escape(change.topic), str(change.partition), *numbers, by)
    if table.row_count:
        parts += [table, ""]
    parts.append(outcomes(undo.groups))
    if undo.removed_records:
        parts.append(Text(told_removed(undo.removed_records)))
    return Lines(*parts)


def told_removed(count: int) -> str:
    """The meaning of records that compaction has taken out."""
    return (
        f"{count} records of that time are gone: compaction had removed them before the backup was made, so some"
        " offsets may be older than they were then"
    )


def outcomes(groups: Iterable[GroupUndo]) -> RenderableType:
    """A line for each group."""
    return Lines(*[Text(_told(each)) for each in groups])


def _told(undo: GroupUndo) -> str:
    count = sum(each.then is not None for each in undo.changes)
    left = len(undo.changes) - count
    more = f"; {left} partitions had no offset then, and keep theirs" if left else ""
    return {
        "same": f"{undo.group}: it has what it had then{more}",
        "members": f"{undo.group} is {undo.state}: stop its members, then run this again",
        "to write": f"{undo.group}: {count} offsets to write{more}",
        "written": f"{undo.group}: {count} offsets written{more}",
        "refused": f"{undo.group}: refused: {undo.why}",
    }[undo.outcome]
