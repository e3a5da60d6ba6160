"""The aims of `muster groups reset`: the words and the CSV of Kafka's own tool, kafka-consumer-groups. Pure."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster_cli.oncall.groups import Place
from muster_coordinator.podapi.resets import PLACES_MAX
from muster_coordinator.reset_aims import Aim, Edges, aimed

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE)
_RESET_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]{0,62}")
_SECONDS = (86_400, 3_600, 60, 1)
_INT64 = 1 << 63


class Change(msgspec.Struct, frozen=True):
    """One partition of a group. `now`: what is committed; None if nothing is. `note`: why it goes elsewhere than was
    asked."""

    topic: str
    partition: int
    now: int | None
    to: int
    note: str = ""


Outcome = Literal["members", "to write", "written", "refused"]


class GroupReset(msgspec.Struct, frozen=True):
    """One group. `state`: in Kafka's words. `why`: it was refused."""

    group: str
    state: str
    changes: tuple[Change, ...]
    outcome: Outcome
    why: str = ""


class Reset(msgspec.Struct, frozen=True):
    """The object that `--json` prints. Its names stay compatible. `executed`: whether offsets were to be written."""

    executed: bool
    groups: tuple[GroupReset, ...]


def parse_duration(text: str) -> float:
    """Seconds of a duration as P1DT2H30M (ISO 8601). Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text}: no duration as PT1H30M or P7D")
    return sum(float(number) * each for number, each in zip(found.groups(), _SECONDS, strict=True) if number)


def parse_topic(text: str) -> tuple[str, tuple[int, ...]]:
    """A topic and its partitions, none for all: `orders`, `orders:0,3`. Raises ValueError."""
    topic, colon, numbers = text.partition(":")
    wanted = numbers.split(",") if colon else []
    if not topic or not all(each.isascii() and each.isdigit() for each in wanted):
        raise ValueError(f"{text}: not TOPIC or TOPIC:PARTITION,PARTITION")
    return topic, tuple(map(int, wanted))


def read_csv(lines: Iterable[str], groups: Sequence[str]) -> dict[str, dict[Place, int]]:
    """Offsets by group, of `groups` alone: lines topic,partition,offset for one group, or with the group in front.
    Raises ValueError."""
    found: dict[str, dict[Place, int]] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        if len(row) == 3 and len(groups) == 1:
            row = [groups[0], *row]
        if len(row) != 4:
            wanted = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise ValueError(f"line {number}: not {wanted}")
        group, topic, partition, offset = row
        if not re.fullmatch(r"\d{1,9}", partition.strip(), re.ASCII) or not _is_int64(offset.strip()):
            raise ValueError(f"line {number}: {partition} is no partition, or {offset} no offset")
        if group in groups:
            found.setdefault(group, {})[topic, int(partition)] = int(offset)
    return found


def csv_lines(groups: Mapping[str, Mapping[Place, int]], *, with_group: bool) -> Iterable[str]:
    """Lines that `kafka-consumer-groups --reset-offsets --from-file` takes. `with_group`: in front, as it wants them if
    it is asked for several."""
    for group, offsets in sorted(groups.items()):
        first = f"{_quoted(group)}," if with_group else ""
        for (topic, partition), offset in sorted(offsets.items()):
            yield f"{first}{_quoted(topic)},{partition},{offset}"


def reset_manifest(reset_id: str, offsets: Mapping[Place, int]) -> str:
    """YAML: `spec.reset` of a ConsumerGroup. Raises ValueError: more than one can have, or no id."""
    if len(offsets) > PLACES_MAX:
        raise ValueError(
            f"{len(offsets)} partitions: a ConsumerGroup has room for {PLACES_MAX}; use `muster groups undo`"
        )
    if not _RESET_ID.fullmatch(reset_id):
        raise ValueError(f"{reset_id}: an id has letters, digits and - . _ :, 63 at most")
    lines = [f'reset:\n  id: "{reset_id}"\n  to: offsets\n  offsets:\n']
    lines += [
        f"  - {{topic: {json.dumps(topic)}, partition: {partition}, offset: {offset}}}\n"
        for (topic, partition), offset in sorted(offsets.items())
    ]
    return "".join(lines)


def changes(
    aim: Aim,
    places: Iterable[Place],
    now: Mapping[Place, int],
    edges: Mapping[Place, Edges],
    found: Mapping[Place, int | None],
) -> tuple[Change, ...]:
    """`edges`: of all places. `found`: what a file has for a place, or the first offset that is not older than a time;
    None if all are. Raises Impossible.
    """
    return tuple(_change(aim, place, now.get(place), edges[place], found.get(place)) for place in sorted(places))


def _change(aim: Aim, place: Place, now: int | None, edges: Edges, found: int | None) -> Change:
    to, note = aimed(aim, f"{place[0]}-{place[1]}", now, edges, found)
    return Change(*place, now, to, note)


def is_without_data(edges: Mapping[Place, Edges]) -> bool:
    """True if all partitions seem empty, now and ever: pods of Muster answer that for topics whose records are
    elsewhere."""
    return bool(edges) and all(each.end == 0 for each in edges.values())


def reset_screen(reset: Reset) -> RenderableType:
    """A table of all partitions, and a line for each group."""
    parts: list[RenderableType] = []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("group", "topic", "partition", "now", "to", "moves by", "note"):
        table.add_column(column, justify="left" if column in ("group", "topic", "note") else "right")
    for each in reset.groups:
        for change in each.changes:
            now, by = ("-", "") if change.now is None else (str(change.now), f"{change.to - change.now:+}")
            names = (escape(each.group), escape(change.topic), str(change.partition))
            table.add_row(*names, now, str(change.to), by, change.note)
    if table.row_count:
        parts += [table, ""]
    return Lines(*parts, outcomes(reset.groups))


def outcomes(groups: Iterable[GroupReset]) -> RenderableType:
    """A line for each group."""
    return Lines(*[Text(told(each)) for each in groups])


def told(group: GroupReset) -> str:
    """The outcome for a group."""
    count = len(group.changes)
    return {
        "members": f"{group.group} is {group.state}: stop its members, then run this again",
        "to write": f"{group.group}: {count} offsets to write; --execute writes them",
        "written": f"{group.group}: {count} offsets written",
        "refused": f"{group.group}: refused: {group.why}",
    }[group.outcome]


def _is_int64(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d{1,19}", text, re.ASCII)) and -_INT64 <= int(text) < _INT64


def _quoted(text: str) -> str:
    """A field of CSV (RFC 4180), which Kafka's tool reads."""
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(each in text for each in ',"\n\r') else text
