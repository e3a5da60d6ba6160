"""Renders the report as one HTML page without scripts and external content; a policy forbids both to the browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from muster_pipeline.report.data import Listing, ReportData, Row
from muster_pipeline.report.figures import figures
from muster_pipeline.report.findings import findings
from muster_pipeline.report.plots import Plot, render_png, render_svg
from muster_pipeline.report.text import amount, duration, instant, name, percent, plural, rate

Cell = Callable[[Row], str]


@dataclass(frozen=True)
class Column:
    """A column of a table: `cell` formats a row for people, and a `number` is aligned to the right."""

    title: str
    cell: Cell
    number: bool = False


@dataclass(frozen=True)
class Table:
    """A table that shows `rows` of `total` rows."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    total: int


def _of(key: str, shown: Callable[[Any], str]) -> Cell:
    return lambda row: shown(row[key])


def _text(title: str, key: str) -> Column:
    return Column(title, _of(key, name))


def _number(title: str, key: str, shown: Callable[[Any], str] = amount) -> Column:
    return Column(title, _of(key, shown), number=True)


def _members(row: Row) -> str:
    parts = [f"+{name(each, 28)}" for each in row["joined"][:4]]
    parts += [f"−{name(each['member_id'], 28)} ({each['how']})" for each in row["departed"][:4]]
    more = len(row["joined"]) + len(row["departed"]) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more else "") or "–"


def _partitions(places: Sequence[Row]) -> str:
    shown = [f"{name(each['topic'], 40)}-{each['partition']}" for each in places[:6]]
    return ", ".join(shown) + (f" and {len(places) - len(shown)} more" if len(places) > len(shown) else "")


_WHEN = Column("when", _of("timestamp_ms", instant))
_GROUP, _PLACE = _text("group", "group"), [_text("topic", "topic"), _number("partition", "partition", str)]
_LAG = [
    *(_GROUP, *_PLACE),
    *(_number("committed", "committed_offset"), _number("end", "end_offset"), _number("lag", "lag")),
    Column("behind by", lambda row: ("≥ " if row["at_least"] else "") + duration(row["time_lag_ms"]), number=True),
]
_RATES = [
    *(_GROUP, _number("partitions", "partitions"), _number("commits", "commits")),
    *(_number("on average", "per_second", rate), _number("at most", "peak_per_second", rate)),
    _number("said again", "repeated_share", percent),
    Column("note", lambda row: "outlier" if row["outlier"] else ""),
]
_STATES = [
    *(_GROUP, _text("state", "state"), _number("members", "members"), _number("partitions", "partitions")),
    *(_number("lag", "lag"), _number("partitions stalled", "stalled_partitions")),
    *(_number("quiet for", "quiet_ms", duration), _number("last progress", "last_advance_ms", instant)),
]
_EXPIRING = [
    *(_GROUP, _number("partitions", "partitions"), _number("last commit", "last_commit_ms", instant)),
    _number("offsets expire", "expires_ms", instant),
]
_REGRESSIONS = [
    *(_WHEN, _GROUP, *_PLACE, _text("likely cause", "cause")),
    *(_number("from", "from_offset"), _number("to", "to_offset"), _number("read again", "reread")),
    _number("after", "gap_ms", duration),
]
_REBALANCED = [
    *(_GROUP, _number("rebalances", "rebalances"), _number("joined", "joined"), _number("left", "left")),
    *(_number("timed out", "timed_out"), _number("left or timed out", "left_or_timed_out")),
    *(_number("longest pause", "longest_pause_ms", duration), _number("closest two", "shortest_between_ms", duration)),
    _number("last", "last_ms", instant),
]
_REBALANCES = [
    *(_WHEN, _GROUP, _number("generation", "generation")),
    *(_number("members", "members_after"), Column("who", _members)),
    *(_number("assigned in", "assign_ms", duration), _number("pause", "pause_ms", duration)),
]
_WHAT_IF = [
    *(_number("partitions", "partitions"), _number("busiest has", "busiest_share", percent)),
    _number("times the mean", "times_mean", lambda value: f"{value:.1f}×"),
    *(_number("most groups in one", "most_groups"), _number("without groups", "without_groups")),
]
_QUALITY = [
    *(_text("problem", "problem"), Column("file", lambda row: name(row["file"], 90))),
    *(_number("byte", "position", str), _number("bytes", "problem_bytes"), _text("why", "problem_detail")),
]
_TRANSACTIONS = [
    *(_text("transactional id", "transactional_id"), _text("state", "transaction_state")),
    *(_number("producer", "producer_id", str), _number("epoch", "producer_epoch", str)),
    Column("partitions", lambda row: _partitions(row["transaction_partitions"])),
    *(_number("began", "transaction_start_ms", instant), _number("last record", "transaction_update_ms", instant)),
    *(_number("open for", "age_ms", duration), _number("time-out", "transaction_timeout_ms", duration)),
    Column("note", lambda row: "beyond its time-out" if row["overdue"] else ""),
]
_EVENT_ROWS = 50


def render_page(data: ReportData, plots: Sequence[Plot], made_ms: int) -> str:
    """Render the whole page. The template escapes texts of clients."""
    environment = Environment(
        loader=PackageLoader("muster_pipeline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        amount=amount, duration=duration, instant=instant, percent=percent, plural=plural, rate=rate
    )
    style = environment.get_template("page.css").render()
    return environment.get_template("page.html.j2").render(
        data=data,
        findings=findings(data),
        figures={plot.slug: _Figure(plot) for plot in plots},
        tables=_tables(data),
        style=Markup(style),  # ours
        version=version("muster"),
        made_ms=made_ms,
    )


def write_report(data: ReportData, page: Path, plots: Path | None) -> list[Path]:
    """Writes the page, and with `plots` a PNG of each plot into that directory; returns all files. Raises OSError.

    The page is replaced in one step: who has it open never sees half of one.
    """
    made = figures(data)
    page.parent.mkdir(parents=True, exist_ok=True)
    new = page.with_name(f"{page.name}.new")
    new.write_text(render_page(data, made, int(datetime.now(UTC).timestamp() * 1000)), encoding="utf-8")
    new.replace(page)
    written = [page]
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for plot in made:
            written.append(plots / f"{plot.slug}.png")
            written[-1].write_bytes(render_png(plot))
    return written


class _Figure:
    def __init__(self, plot: Plot) -> None:
        self.title = plot.title
        self.summary = plot.summary
        # matplotlib escapes the texts in it
        self.wide, self.narrow = (Markup(render_svg(plot, narrow)) for narrow in (False, True))


def _tables(data: ReportData) -> dict[str, Table]:
    def table(caption: str, columns: Sequence[Column], listing: Listing, limit: int | None = None) -> Table:
        return Table(caption, columns, listing.rows[:limit], listing.total)

    load = data.load.what_if
    made = {
        "commits": table("Groups by commits", _RATES, data.activity.rates),
        "groups": table("Groups that are not active", _STATES, data.groups.listed),
        "expiring": table("Offsets that will expire", _EXPIRING, data.groups.expiring),
        "regressions": table(
            "Offsets that went back, newest first", _REGRESSIONS, data.regressions.events, _EVENT_ROWS
        ),
        "rebalanced": table("Rebalances by group", _REBALANCED, data.rebalances.by_group),
        "rebalances": table("Rebalances, newest first", _REBALANCES, data.rebalances.events, _EVENT_ROWS),
        "what-if": table("With another number of offsets partitions", _WHAT_IF, Listing(load, len(load))),
        "transactions": table("Open transactions, the oldest first", _TRANSACTIONS, data.transactions.listed),
        "quality": table("What could not be read", _QUALITY, data.quality.listed),
    }
    if data.groups.lags is not None:
        made["lag"] = table("Partitions with the largest lag", _LAG, data.groups.lags, _EVENT_ROWS)
    return made
