"""The pictures of a page as shapes with places: partitions over pods and zones, and failovers on a time line. Pure.

In the grids of all pods a partition has the same place, so that a change of leader is seen as a cell that goes from one
pod to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster_cli.oncall.screen import short
from muster_cli.oncall.status import ClusterReport, PartitionLine, PodLine
from muster_operator.api.durations import parse_time
from muster_operator.api.models import FailoverRecord

NUMBERED_MAX = 120
"""Cells have their numbers in them up to so many partitions; more are smaller, and have none."""
LINE_WIDTH, LINE_LEFT, LANE, MARGIN, TICK_HALF = 720, 120, 34, 24, 68
"""Pixels of the time line: its width, where its lanes begin, height of a lane, what is left free above, and half of a
time under it."""
MERGED_PX = 20
"""Failovers that are closer than this share a mark."""


@dataclass(frozen=True)
class Cell:
    """One partition in the grid of one pod. `role`: leader, replica, unled (a replica of a partition without a leader),
    or none.
    """

    x: int
    y: int
    label: str
    role: str
    told: str


@dataclass(frozen=True)
class PodPicture:
    """One pod with its grid. `size`: of a cell, in pixels. `told`: what the picture shows, in a sentence."""

    pod: PodLine
    cells: tuple[Cell, ...]
    size: int
    width: int
    height: int
    told: str
    numbered: bool


@dataclass(frozen=True)
class ZonePicture:
    """The pods of one zone. `name`: "" if nodes have no zones that may be read."""

    name: str
    pods: tuple[PodPicture, ...]


@dataclass(frozen=True)
class Mark:
    """Failovers that came to one pod at about the same time. `planned`: all of them were moves."""

    x: float
    y: int
    count: int
    planned: bool
    told: str


@dataclass(frozen=True)
class TimeLine:
    """`lanes`: pods with the heights of their lines. `ticks`: places with RFC 3339 times."""

    lanes: tuple[tuple[str, int], ...]
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    width: int
    height: int
    left: int


def zones_of(report: ClusterReport, zones: Mapping[str, str]) -> tuple[ZonePicture, ...]:
    """`zones`: by node. Pods without a zone come last."""
    by_zone: dict[str, list[PodPicture]] = {}
    for pod in report.pods:
        by_zone.setdefault(zones.get(pod.node, ""), []).append(_pod(pod, report.partitions))
    ordered = sorted(by_zone.items(), key=lambda each: (not each[0], each[0]))
    return tuple(ZonePicture(name, tuple(pods)) for name, pods in ordered)


def _pod(pod: PodLine, partitions: Sequence[PartitionLine]) -> PodPicture:
    numbered = len(partitions) <= NUMBERED_MAX
    columns, size = (10, 26) if numbered else (25, 11)
    columns = min(columns, max(len(partitions), 1))
    cells = tuple(
        Cell(number % columns * size, number // columns * size, short(each.partition), *_role(pod, each))
        for number, each in enumerate(partitions)
    )
    rows = -(-len(partitions) // columns)
    state = "ready" if pod.ready else "not ready"
    told = f"Pod {pod.name}, {state}: leads {pod.leads} of {len(partitions)} partitions, has a copy of {pod.holds}."
    return PodPicture(pod, cells, size, columns * size, max(rows, 1) * size, told, numbered)


def _role(pod: PodLine, partition: PartitionLine) -> tuple[str, str]:
    name = f"{short(partition.partition)} ({partition.name})"
    if partition.leader == pod.name:
        return "leader", f"leads {name} in epoch {partition.epoch}"
    if pod.name not in partition.replicas:
        return "none", f"has no copy of {name}"
    if partition.leader is None:
        return "unled", f"has a copy of {name}, which no pod leads: {partition.reason or partition.state}"
    return "replica", f"has a copy of {name}, led by {partition.leader}"


def time_line(failovers: Sequence[FailoverRecord], pods: Sequence[str]) -> TimeLine | None:
    """The pods that lead now, and failovers in the lane of the pod that leads since. None: there was no failover."""
    if not failovers:
        return None
    names = [*pods, *sorted({each.leader or "-" for each in failovers} - set(pods))]
    lanes = {name: MARGIN + number * LANE for number, name in enumerate(names)}
    times = [parse_time(each.time) for each in failovers]
    first, last = min(times), max(times)
    begin, room = LINE_LEFT + TICK_HALF, LINE_WIDTH - LINE_LEFT - 2 * TICK_HALF

    def place(time: float) -> float:
        return round(begin + (room * (time - first) / (last - first) if last > first else room / 2), 1)

    shared: list[list[FailoverRecord]] = []
    for each in sorted(failovers, key=lambda one: (one.leader or "-", one.time)):
        before = shared[-1][0] if shared else None
        alike = before is not None and before.leader == each.leader
        if before is not None and alike and place(parse_time(each.time)) - place(parse_time(before.time)) < MERGED_PX:
            shared[-1].append(each)
        else:
            shared.append([each])
    marks = [_mark(place(parse_time(each[0].time)), lanes[each[0].leader or "-"], each) for each in shared]
    ends = {place(parse_time(each.time)): each.time for each in (failovers[-1], failovers[0])}
    height = MARGIN + len(lanes) * LANE + 6
    return TimeLine(tuple(lanes.items()), tuple(marks), tuple(ends.items()), LINE_WIDTH, height, LINE_LEFT)


def _mark(x: float, y: int, failovers: Sequence[FailoverRecord]) -> Mark:
    planned = all(each.planned for each in failovers)
    return Mark(x, y, len(failovers), planned, "; ".join(map(_told, failovers)))


def _told(each: FailoverRecord) -> str:
    how = "moved" if each.planned else "went over"
    took = f" in {each.duration_ms} ms" if each.duration_ms is not None else ""
    ends = f"from {each.previous_leader or 'nobody'} to {each.leader or 'nobody'}"
    return f"{each.time} {each.partition} {how} {ends}{took}"
