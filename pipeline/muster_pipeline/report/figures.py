"""The plots of a report: pure functions from its data to `Plot`s. Plots without data are left out."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from muster_pipeline.analytics.regressions import Cause
from muster_pipeline.analytics.timeline import Departure
from muster_pipeline.report.data import ReportData, Row
from muster_pipeline.report.plots import GRID, INK, OTHERS, SERIES, Plot, amounts, by_time
from muster_pipeline.report.text import amount, duration, name, percent

MAX_LANES = 12
"""Groups in a plot that gives each a line of its own."""
_ROW_INCHES = 0.3
_CAUSES = {
    Cause.RECREATED: (SERIES[1], "X"),
    Cause.RESET: (SERIES[0], "s"),
    Cause.REWOUND: (SERIES[2], "o"),
    Cause.UNMANAGED: (SERIES[5], "D"),
    Cause.FAILOVER: (SERIES[3], "^"),
    Cause.REMOVED: (SERIES[4], "v"),
    Cause.LATE: (OTHERS, "o"),
    Cause.LATE_OLD_GENERATION: (OTHERS, "s"),
}
_CHANGES = {
    "members joined": (SERIES[2], "^"),
    "members left": (SERIES[0], "v"),
    "timed out": (SERIES[1], "X"),
    "only the generation": (OTHERS, "o"),
}


def figures(data: ReportData) -> list[Plot]:
    made = [_lag(data), _commits(data), _regressions(data), _rebalances(data), _load(data), _what_if(data)]
    return [plot for plot in made if plot is not None]


def _label(text: str, narrow: bool) -> str:
    return name(text, 16 if narrow else 32)


def _lag(data: ReportData) -> Plot | None:
    rows = [row for row in data.groups.group_lags or [] if row["lag"] > 0][:MAX_LANES]
    if not rows:
        return None

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        places = range(len(rows) - 1, -1, -1)
        axes.barh(places, [row["lag"] for row in rows], height=0.62, color=SERIES[0])
        axes.set_yticks(places, [_label(row["group"], narrow) for row in rows], color=INK)
        for place, row in zip(places, rows, strict=True):
            more = (
                ""
                if row["time_lag_ms"] is None
                else f" · {'≥ ' if row['at_least'] else ''}{duration(row['time_lag_ms'])}"
            )
            axes.annotate(
                amount(row["lag"]) + more, (row["lag"], place), (5, 0), textcoords="offset points", va="center"
            )
        axes.set_xlim(0, rows[0]["lag"] * (1.6 if narrow else 1.25))
        amounts(axes.xaxis, 3 if narrow else 6)
        axes.set_xlabel("records behind the end · time behind")
        axes.grid(visible=False, axis="y")

    summary = f"The largest lag has {name(rows[0]['group'])} with {amount(rows[0]['lag'])} records."
    return Plot("lag", "Lag by group", summary, draw, 0.9 + _ROW_INCHES * len(rows))


def _commits(data: ReportData) -> Plot | None:
    if not data.activity.over_time:
        return None
    bucket = data.activity.bucket_ms
    starts = sorted({row["bucket_ms"] for row in data.activity.over_time})
    moments = list(range(starts[0], starts[-1] + 1, bucket))
    series: dict[str | None, dict[int, int]] = defaultdict(dict)
    for row in data.activity.over_time:
        series[row["group"]][row["bucket_ms"]] = row["commits"]
    order: list[str | None] = [row["group"] for row in data.activity.rates.rows if row["group"] in series]
    if None in series:
        order.append(None)

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        base = [0.0] * len(moments)
        for number, group in enumerate(order):
            values = [series[group].get(moment, 0) / (bucket / 1000) for moment in moments]
            colour = OTHERS if group is None else SERIES[number]
            label = "all others" if group is None else _label(group, narrow)
            axes.bar(
                moments, values, bucket, base, align="edge", color=colour, label=label, edgecolor=colour, linewidth=0.5
            )
            base = [low + value for low, value in zip(base, values, strict=True)]
        by_time(axes, moments[0], moments[-1] + bucket, narrow)
        axes.set_ylim(0, max(base) * 1.05)
        axes.yaxis.set_major_formatter(lambda value, _: amount(round(value, 3)))
        axes.set_ylabel("commits per second")
        figure.legend(loc="outside lower left", ncols=2 if narrow else 3, handlelength=1, columnspacing=1.4)

    summary = f"Commits per second in steps of {duration(bucket)}, by the {len(order)} groups that commit most."
    return Plot("commits", f"Commits over time, in steps of {duration(bucket)}", summary, draw, 3.4)


def _shown(data: ReportData, rows: list[Row]) -> list[Row]:
    """Return the events in the time that the plots show."""
    return [row for row in rows if row["timestamp_ms"] >= data.from_ms]


def _lanes(rows: list[Row], most_first: dict[str, float]) -> list[str]:
    """Return the groups that have a line of their own in a plot."""
    there = {row["group"] for row in rows}
    return sorted(there, key=lambda group: (-most_first.get(group, 0), group))[:MAX_LANES]


def _events(
    figure: Figure,
    narrow: bool,
    data: ReportData,
    lanes: list[str],
    events: list[tuple[str, int, str]],
    marks: dict[str, Any],
) -> None:
    """Draw `events`: (group, moment, index in `marks`)."""
    axes = figure.subplots()
    place = {group: len(lanes) - 1 - number for number, group in enumerate(lanes)}
    for kind, (colour, marker) in marks.items():
        chosen = [(at, place[group]) for group, at, each in events if each == kind and group in place]
        if chosen:
            axes.scatter(
                [at for at, _ in chosen],
                [lane for _, lane in chosen],
                s=34,
                color=colour,
                marker=marker,
                linewidths=0,
                alpha=0.85,
            )
    axes.set_yticks(list(place.values()), [_label(group, narrow) for group in place], color=INK)
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    by_time(axes, data.from_ms, data.last_ms, narrow)
    axes.grid(visible=True, axis="y", color=GRID)
    seen = {each for _, _, each in events}
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=6, label=kind)
        for kind, (colour, marker) in marks.items()
        if kind in seen
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=1 if narrow else 4, handletextpad=0.2, columnspacing=1.4
    )


def _regressions(data: ReportData) -> Plot | None:
    rows = _shown(data, data.regressions.events.rows)
    if not rows:
        return None
    reread: dict[str, float] = defaultdict(float)
    for row in data.regressions.by_group:
        reread[row["group"]] += row["reread"]
    lanes = _lanes(rows, reread)
    events = [(row["group"], row["timestamp_ms"], row["cause"]) for row in rows]

    def draw(figure: Figure, narrow: bool) -> None:
        _events(figure, narrow, data, lanes, events, _CAUSES)

    summary = f"{amount(data.regressions.events.total)} times an offset went back, in {len(lanes)} groups shown."
    return Plot("regressions", "Offsets that went back, by likely cause", summary, draw, 1.2 + _ROW_INCHES * len(lanes))


def _change(row: Row) -> str:
    if any(each["how"] == Departure.TIMED_OUT for each in row["departed"]):
        return "timed out"
    if row["departed"]:
        return "members left"
    return "members joined" if row["joined"] else "only the generation"


def _rebalances(data: ReportData) -> Plot | None:
    rows = _shown(data, data.rebalances.events.rows)
    if not rows:
        return None
    often = {row["group"]: row["rebalances"] for row in data.rebalances.by_group.rows}
    lanes = _lanes(rows, often)
    events = [(row["group"], row["timestamp_ms"], _change(row)) for row in rows]

    def draw(figure: Figure, narrow: bool) -> None:
        _events(figure, narrow, data, lanes, events, _CHANGES)

    summary = f"{amount(data.rebalances.events.total)} rebalances; the groups with the most are shown."
    return Plot("rebalances", "Rebalances, by what changed", summary, draw, 1.2 + _ROW_INCHES * len(lanes))


def _load(data: ReportData) -> Plot | None:
    commits = {row["offsets_partition"]: row["commits"] for row in data.load.by_partition if row["commits"]}
    if not commits:
        return None
    count = max(data.load.partitions, max(each or 0 for each in commits) + 1)
    mean = sum(commits.values()) / count

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        axes.bar(range(count), [commits.get(each, 0) for each in range(count)], 0.8, color=SERIES[0], linewidth=0)
        axes.axhline(mean, color=SERIES[1], linewidth=1.4, linestyle=(0, (5, 3)))
        axes.annotate(
            f"mean {amount(round(mean))}",
            (1, mean),
            (0, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            color=SERIES[1],
        )
        axes.set_xlim(-0.6, count - 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(5 if narrow else 12, integer=True))
        amounts(axes.yaxis)
        axes.set_xlabel("offsets partition")
        axes.set_ylabel("commits")
        axes.grid(visible=False, axis="x")

    busiest = max(commits, key=lambda each: commits[each])
    share = percent(commits[busiest] / sum(commits.values()))
    return Plot("load", "Commits by offsets partition", f"Partition {busiest} takes {share} of all commits.", draw, 2.8)


def _what_if(data: ReportData) -> Plot | None:
    rows = data.load.what_if
    if not rows:
        return None

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        places = range(len(rows))
        here = [row["partitions"] == data.load.partitions for row in rows]
        colours = [SERIES[0] if each else OTHERS for each in here]
        axes.bar(places, [100 * row["busiest_share"] for row in rows], 0.6, color=colours, linewidth=0)
        for place, row in zip(places, rows, strict=True):
            text = percent(row["busiest_share"])
            axes.annotate(text, (place, 100 * row["busiest_share"]), (0, 3), textcoords="offset points", ha="center")
        ideal = [100 / row["partitions"] for row in rows]
        axes.plot(places, ideal, color=SERIES[1], marker="_", markersize=14, linestyle="", markeredgewidth=2)
        labels = [f"{row['partitions']}" + ("\nnow" if each else "") for row, each in zip(rows, here, strict=True)]
        axes.set_xticks(places, labels, color=INK)
        axes.set_ylim(0, 100 * max(row["busiest_share"] for row in rows) * 1.15)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}%")
        axes.set_xlabel("partitions of the offsets topic")
        axes.set_ylabel("of all commits")
        axes.grid(visible=False, axis="x")
        handles = [
            Line2D([], [], color=SERIES[0], marker="s", linestyle="", label="the busiest partition, now"),
            Line2D([], [], color=OTHERS, marker="s", linestyle="", label="with another number"),
            Line2D([], [], color=SERIES[1], marker="_", linestyle="", markeredgewidth=2, label="if all were equal"),
        ]
        figure.legend(handles=handles, loc="outside lower left", ncols=1 if narrow else 3, handletextpad=0.3)

    best = min(rows, key=lambda row: (row["busiest_share"], row["partitions"]))
    summary = (
        f"With {best['partitions']} partitions the busiest would take {percent(best['busiest_share'])} of all commits."
    )
    return Plot("what-if", "Load of the busiest partition, by number of partitions", summary, draw, 3.2)
