"""The output of `muster groups`: members, committed offsets, lag. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

Place = tuple[str, int]
"""Topic and partition."""

COLORS = {"STABLE": "green", "EMPTY": "yellow", "DEAD": "red"}


class GroupLine(msgspec.Struct, frozen=True):
    """One group of a list. `state` and `type` in Kafka's words."""

    group: str
    state: str
    type: str


class Member(msgspec.Struct, frozen=True):
    """One member. `assigned`: partitions as topic-number."""

    member_id: str
    client_id: str
    host: str
    instance_id: str
    assigned: tuple[str, ...]


class Position(msgspec.Struct, frozen=True):
    """The offset that a group has committed for a partition, or is about to. `offset`: None if nothing is committed.
    `end`, `lag`: None if nobody was asked where the partition ends, or nothing is committed. `client_id`: of the member
    that has it."""

    topic: str
    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    client_id: str


class GroupReport(msgspec.Struct, frozen=True):
    """The object that `describe --json` prints. Its names stay compatible. `lag`: of all partitions; None if it is not
    known of any.
    """

    group: str
    state: str
    type: str
    assignor: str
    coordinator: str
    members: tuple[Member, ...]
    positions: tuple[Position, ...]
    lag: int | None


def build_group(
    line: GroupLine,
    assignor: str,
    coordinator: str,
    members: Mapping[Member, Sequence[Place]],
    committed: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> GroupReport:
    """The report of a group. `members`: with what each has. `ends`: where partitions end, as far as that is known."""
    owners = {place: member.client_id for member, places in members.items() for place in places}
    positions = tuple(
        _position(place, committed.get(place), ends.get(place), owners.get(place, ""))
        for place in sorted({*committed, *owners})
    )
    lags = [each.lag for each in positions if each.lag is not None]
    return GroupReport(
        group=line.group,
        state=line.state,
        type=line.type,
        assignor=assignor,
        coordinator=coordinator,
        members=tuple(sorted(members, key=lambda each: (each.client_id, each.member_id))),
        positions=positions,
        lag=sum(lags) if lags else None,
    )


def _position(place: Place, offset: int | None, end: int | None, client_id: str) -> Position:
    """A topic that was made anew ends below what is committed: that is no negative lag."""
    lag = None if offset is None or end is None else max(end - offset, 0)
    return Position(*place, offset, end, lag, client_id)


def group_list(lines: Sequence[GroupLine]) -> RenderableType:
    """All groups as a table."""
    if not lines:
        return Text("no group")
    table = _table("group", "state", "type")
    for each in lines:
        table.add_row(escape(each.group), _state(each.state), each.type)
    return table


def group_screen(report: GroupReport) -> RenderableType:
    """One group: a line of itself, a table of its members, and one of its partitions."""
    title = f"[bold]{escape(report.group)}[/]  {_state(report.state)}   {report.type}"
    with_assignor = f"{title}, assignor {escape(report.assignor)}" if report.assignor else title
    lag = f"lag {report.lag}" if report.lag is not None else "lag not known: see --lag-from"
    parts: list[RenderableType] = [
        Text.from_markup(with_assignor),
        Text(f"coordinator {report.coordinator}   {len(report.members)} members   {lag}"),
    ]
    if report.members:
        table = _table("client", "host", "instance", "partitions", "member")
        for member in report.members:
            names = [member.client_id, member.host, member.instance_id or "-", " ".join(member.assigned) or "-"]
            table.add_row(*map(escape, names), escape(member.member_id))
        parts += ["", table]
    if report.positions:
        table = _table("topic", "partition", "committed", "end", "lag", "client")
        for each in report.positions:
            numbers = ("-" if number is None else str(number) for number in (each.offset, each.end, each.lag))
            table.add_row(escape(each.topic), str(each.partition), *numbers, escape(each.client_id) or "-")
        parts += ["", table]
    return Lines(*parts)


def _state(state: str) -> str:
    color = COLORS.get(state, "cyan")
    return f"[{color}]{state}[/]"


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
