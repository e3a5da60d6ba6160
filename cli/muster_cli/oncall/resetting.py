"""`muster groups reset`: asks where partitions begin and end, shows where groups would be, and writes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from muster_cli.errors import CliError, CliUsageError
from muster_cli.oncall.asking import Brokers
from muster_cli.oncall.groups import Place
from muster_cli.oncall.kafka import KafkaGroups
from muster_cli.oncall.looking import console
from muster_cli.oncall.parking import park_request, reset_parked
from muster_cli.oncall.reset import (
    GroupReset,
    Reset,
    changes,
    csv_lines,
    is_without_data,
    parse_duration,
    parse_topic,
    read_csv,
    reset_screen,
    told,
)
from muster_cli.oncall.undo import EMPTY_STATES, Committed
from muster_cli.oncall.writing import why_not_written
from muster_cli.times import time_ms
from muster_coordinator.podapi.resets import PlanRequest
from muster_coordinator.reset_aims import Aim, Impossible

DONE, LEFT = 0, 1
"""Exit codes: `LEFT` if a group was refused, or has members."""


@dataclass(frozen=True)
class Words:
    """The options as they were typed. `None`, "", False and () are what was not."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: str = ""
    by_duration: str = ""
    from_file: Path | None = None
    topics: tuple[str, ...] = ()
    all_topics: bool = False
    data_from: str = ""
    park_members: bool = False

    def aim(self, now_s: float) -> Aim:
        """`now_s`: seconds since 1970. Raises CliUsageError."""
        found = []
        if self.to_earliest:
            found.append(Aim("earliest"))
        if self.to_latest:
            found.append(Aim("latest"))
        if self.to_current:
            found.append(Aim("current"))
        if self.to_offset is not None:
            found.append(Aim("offset", self.to_offset))
        if self.shift_by is not None:
            found.append(Aim("shiftBy", self.shift_by))
        if self.to_datetime:
            found.append(Aim("datetime", max(time_ms("--to-datetime", self.to_datetime), 0)))
        if self.by_duration:
            found.append(Aim("datetime", _before(now_s, self.by_duration)))
        if self.from_file is not None:
            found.append(Aim("file"))
        if len(found) != 1:
            words = "--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration"
            raise CliUsageError(f"give one of {words} and --from-file")
        return found[0]

    def scope(self) -> list[tuple[str, tuple[int, ...]]]:
        """Topics with their partitions, none for all; empty if a file or what is committed says it. Raises
        CliUsageError."""
        ways = [self.from_file is not None, self.all_topics, bool(self.topics)]
        if sum(ways) != 1:
            raise CliUsageError("give one of --topic and --all-topics; --from-file names its partitions itself")
        try:
            return [parse_topic(each) for each in self.topics]
        except ValueError as error:
            raise CliUsageError(f"--topic {error}") from error


def run_reset(
    brokers: Brokers, groups: Sequence[str], words: Words, *, execute: bool, export: bool, as_json: bool
) -> int:
    """Show where groups would be, and write it if `execute`. Returns the exit code. Raises Unreachable, CliError,
    CliUsageError."""
    groups = list(dict.fromkeys(groups))
    aim, scope = words.aim(time.time()), words.scope()
    planned = _from_file(words.from_file, groups) if words.from_file is not None else None
    parking: dict[str, PlanRequest] = {}
    if words.park_members:
        parking = {
            each: park_request(each, aim, scope, None if planned is None else planned.get(each, {})) for each in groups
        }
    client = brokers.client()
    data = brokers.client_of(words.data_from) if words.data_from else client
    places = _places(data, scope)
    planner = _Planner(client, data, aim, places, planned, believes=bool(words.data_from))
    states = client.states(groups)
    found = [planner.plan(group, states[group]) for group in groups]
    if execute:
        found = [_write(client, each) if each.outcome == "to write" else each for each in found]
    found = [_parked(brokers, parking[each.group], each) if each.group in parking else each for each in found]
    reset = Reset(execute, tuple(found))
    if as_json:
        click.echo(msgspec.json.encode(reset))
    elif export:
        _export(reset)
    else:
        console().print(reset_screen(reset))
    return LEFT if any(each.outcome in ("members", "refused") for each in found) else DONE


@dataclass(frozen=True)
class _Planner:
    """`places`: that were named; none: those that a group has committed. `planned`: of a file, by group. `believes`:
    that partitions are empty."""

    client: KafkaGroups
    data: KafkaGroups
    aim: Aim
    places: tuple[Place, ...]
    planned: Mapping[str, Mapping[Place, int]] | None
    believes: bool

    def plan(self, group: str, state: str) -> GroupReset:
        if state not in EMPTY_STATES:
            return GroupReset(group, state, (), "members")
        try:
            return self._plan(group, state)
        except Impossible as error:
            return GroupReset(group, state, (), "refused", str(error))

    def _plan(self, group: str, state: str) -> GroupReset:
        committed = self.client.committed(group)
        planned = None if self.planned is None else self.planned.get(group, {})
        places = tuple(planned) if planned is not None else self.places or tuple(committed)
        if not places:
            what = "the file has no line for it" if planned is not None else "nothing is committed: name its topics"
            raise Impossible(what)
        edges = self.data.edges(places)
        if missing := [f"{topic}-{number}" for topic, number in places if (topic, number) not in edges]:
            raise Impossible(f"{self.data.bootstrap} has no partition {', '.join(missing)}")
        if not self.believes and is_without_data(edges):
            raise Impossible(
                f"{self.data.bootstrap} has no records of these topics, as pods of Muster, whose data is in a Kafka"
                " cluster: name that in --data-from, or this one again if they are empty"
            )
        found: Mapping[Place, int | None] = planned or {}
        if self.aim.kind == "datetime":
            found = self.data.first_since(places, self.aim.number)
        return GroupReset(group, state, changes(self.aim, places, committed, edges, found), "to write")


def _places(data: KafkaGroups, scope: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[Place, ...]:
    whole = [topic for topic, partitions in scope if not partitions]
    counts = data.partitions(whole)
    if missing := sorted(set(whole) - counts.keys()):
        raise CliError(f"{data.bootstrap} has no topic {', '.join(missing)}")
    found = {(topic, number) for topic, partitions in scope for number in partitions or range(counts[topic])}
    return tuple(sorted(found))


def _write(client: KafkaGroups, group: GroupReset) -> GroupReset:
    wanted = {(each.topic, each.partition): Committed(each.to) for each in group.changes}
    why = why_not_written(client, group.group, wanted)
    return replace(group, outcome="refused", why=why) if why else replace(group, outcome="written")


def _parked(brokers: Brokers, request: PlanRequest, group: GroupReset) -> GroupReset:
    """A group without members is dealt with already."""
    embedded = brokers.where.embedded
    if group.outcome != "members" or embedded is None:
        return group
    return reset_parked(embedded, request, group.state)


def _export(reset: Reset) -> None:
    """Lines of a file alone go to standard output."""
    offsets = {
        each.group: {(change.topic, change.partition): change.to for change in each.changes}
        for each in reset.groups
        if each.outcome != "refused"
    }
    for line in csv_lines(offsets, with_group=len(reset.groups) > 1):
        click.echo(line)
    for each in reset.groups:
        for change in each.changes:
            if change.note:
                click.echo(f"{each.group} {change.topic}-{change.partition}: {change.to}: {change.note}", err=True)
        if each.outcome in ("members", "refused"):
            click.echo(told(each), err=True)


def _from_file(file: Path, groups: Sequence[str]) -> dict[str, dict[Place, int]]:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            return read_csv(lines, groups)
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise CliError(f"{file}: {error}") from error


def _before(now_s: float, duration: str) -> int:
    try:
        return max(int((now_s - parse_duration(duration)) * 1000), 0)
    except ValueError as error:
        raise CliUsageError(f"--by-duration {error}") from error
