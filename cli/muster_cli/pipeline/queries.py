"""`muster pipeline offsets`, `groups`, `rebalances`, `transactions` and `quality`: answers from tables or logs.

Only an answer from logs, or about a past moment, starts Spark, which needs Java, unless `--engine local` is given.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster_cli.errors import CliUsageError
from muster_cli.pipeline.moment import MOMENT, milliseconds
from muster_cli.pipeline.spark import clear_errors, master_option, spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE = click.argument("source", metavar="TABLES|LOGS...", nargs=-1, required=True)
_GROUPS = click.option("--group", "groups", metavar="GROUP", multiple=True, help="Only this group. Repeatable.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of a table.")
_AT = click.option(
    "--at",
    metavar="TIME",
    type=MOMENT,
    help="The state at this moment, UTC; seconds may have a fraction.",
)
_ENGINE = click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    help="local: without Spark and Java, in memory; takes LOGS as well as TABLES. For moderate inputs.",
)


@click.command()
@_SOURCE
@_GROUPS
@_AT
@_ENGINE
@master_option
@_JSON
def offsets(
    source: tuple[str, ...], groups: tuple[str, ...], at: datetime | None, engine: str, master: str, as_json: bool
) -> None:
    """Committed offsets, now or at a past moment.

    LOGS are read once for this answer; TABLES answer at once, as often as asked.
    """
    at_ms = milliseconds(at)
    with clear_errors():
        if engine == "local":
            from muster_pipeline.tables.local import local_offsets

            rows: list[dict[str, Any]] = local_offsets(source, at_ms, groups).to_pylist()
        elif at_ms is None and _are_tables(source):
            rows = _rows(source, "current_offsets", groups)
        else:
            rows = _offsets_by_spark(source, groups, at_ms, master)
        rows.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
        _show(rows, ["group", "topic", "partition", "committed_offset", "metadata", "commit_timestamp_ms"], as_json)


@click.command()
@_SOURCE
@_GROUPS
@_AT
@_JSON
def groups(source: tuple[str, ...], groups: tuple[str, ...], at: datetime | None, as_json: bool) -> None:
    """Groups with their members and assignments, now or at a past moment. Needs no Spark."""
    with clear_errors():
        from muster_pipeline.tables.local import local_groups

        rows: list[dict[str, Any]] = local_groups(source, milliseconds(at), groups).to_pylist()
        rows.sort(key=lambda row: (row["group"], row["offset"]))
        if not as_json:
            rows = [row | {"members": [each["member_id"] for each in row["members"]]} for row in rows]
        _show(rows, ["group", "generation", "protocol", "members", "timestamp_ms"], as_json)


@click.command()
@_SOURCE
@_GROUPS
@_ENGINE
@_JSON
def rebalances(source: tuple[str, ...], groups: tuple[str, ...], engine: str, as_json: bool) -> None:
    """The members that joined and left, generation by generation."""
    with clear_errors():
        if engine == "local":
            from muster_pipeline.tables.local import local_rebalances

            rows: list[dict[str, Any]] = local_rebalances(source, groups).to_pylist()
        else:
            rows = _rows(source, "rebalances", groups)
        rows.sort(key=lambda row: (row["group"], row["offset"]))
        _show(rows, ["group", "timestamp_ms", "generation", "members_after", "joined", "left"], as_json)


@click.command()
@_SOURCE
@_AT
@click.option("--open", "only_open", is_flag=True, help="Only ids with an open transaction.")
@_JSON
def transactions(source: tuple[str, ...], at: datetime | None, only_open: bool, as_json: bool) -> None:
    """Transactional ids with their producers and transactions, now or at a past moment. Needs no Spark.

    An open transaction has its age at that moment; it is overdue when its time-out is over and it was not aborted.
    """
    with clear_errors():
        from muster_pipeline.tables.local import local_transactions

        at_ms = milliseconds(at)
        now_ms = int(time.time() * 1000) if at_ms is None else at_ms
        rows = [_with_age(row, now_ms) for row in local_transactions(source, at_ms).to_pylist()]
        rows = [row for row in rows if row["age_ms"] is not None or not only_open]
        rows.sort(key=lambda row: (row["transactional_id"], row["offset"]))
        columns = ["transactional_id", "transaction_state", "producer_id", "producer_epoch", "transaction_partitions"]
        columns += ["transaction_start_ms", "transaction_update_ms", "timeout", "age", "overdue"]
        _show(rows if as_json else [_as_text(row) for row in rows], columns, as_json)


def _with_age(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Add `age_ms` and `overdue`, as `analytics.transactions` has them; null without an open transaction."""
    from muster_pipeline.analytics.transactions import ONGOING, PREPARED

    age_ms = now_ms - row["transaction_start_ms"] if row["transaction_state"] in (ONGOING, *PREPARED) else None
    overdue = None if age_ms is None else row["transaction_state"] == ONGOING and age_ms > row["transaction_timeout_ms"]
    return row | {"age_ms": age_ms, "overdue": overdue}


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    from muster_pipeline.report.text import duration

    return row | {
        "transaction_partitions": [f"{each['topic']}-{each['partition']}" for each in row["transaction_partitions"]],
        "timeout": duration(row["transaction_timeout_ms"]),
        "age": "" if row["age_ms"] is None else duration(row["age_ms"]),
    }


@click.command()
@_SOURCE
@_ENGINE
@_JSON
def quality(source: tuple[str, ...], engine: str, as_json: bool) -> None:
    """Prints what could not be read: file, byte and reason. The exit code is 0 also if there are problems."""
    with clear_errors():
        if engine == "local":
            from muster_cli.unflushed import unflushed_rows
            from muster_pipeline.tables.local import local_quality

            rows: list[dict[str, Any]] = local_quality(source, unflushed_rows).to_pylist()
        else:
            rows = _rows(source, "quality")
        rows.sort(key=lambda row: (row["file"], row["position"]))
        _show(rows, ["file", "position", "offset", "problem", "problem_bytes", "problem_detail"], as_json)


def _only(source: Sequence[str]) -> Path:
    """The one directory of tables in `source`. Raises CliUsageError."""
    if len(source) != 1:
        raise CliUsageError("name one directory of tables; only `--engine local` reads logs")
    return Path(source[0])


def _rows(source: Sequence[str], table: str, groups: Sequence[str] = ()) -> list[dict[str, Any]]:
    from muster_pipeline.tables.read import read_arrow
    from muster_pipeline.tables.store import Store

    store = Store(_only(source))
    rows: list[dict[str, Any]] = read_arrow(store, store.published(), table, groups).to_pylist()
    return rows


def _are_tables(source: Sequence[str]) -> bool:
    """True if `source` is a directory of tables. Raises CliUsageError if it mixes tables and logs."""
    from muster_pipeline.tables.store import StoreError, are_tables

    try:
        return are_tables(source)
    except StoreError as exc:
        raise CliUsageError(str(exc)) from exc


def _offsets_by_spark(
    source: Sequence[str], groups: Sequence[str], at_ms: int | None, master: str
) -> list[dict[str, Any]]:
    from muster_pipeline.source.files import find_segments

    if not _are_tables(source):
        find_segments(source)  # raises before Spark starts
    with spark(master) as session, _offsets_frame(session, source, at_ms) as frame:
        if groups:
            frame = frame.where(frame["group"].isin(list(groups)))
        return [row.asDict(recursive=True) for row in frame.collect()]


@contextmanager
def _offsets_frame(session: SparkSession, source: Sequence[str], at_ms: int | None) -> Iterator[DataFrame]:
    from muster_pipeline.tables.current import offsets_of_logs
    from muster_pipeline.tables.run import read_table
    from muster_pipeline.tables.store import Store
    from muster_pipeline.tables.transforms import current_offsets

    if not _are_tables(source):
        with offsets_of_logs(session, source, at_ms) as frame:
            yield frame
        return
    store = Store(Path(source[0]))
    manifest = store.published()
    commits, tombstones, transactions = (
        read_table(session, store, manifest, name) for name in ("commits", "tombstones", "transactions")
    )
    yield current_offsets(commits, tombstones, transactions, at_ms)


def _show(rows: list[dict[str, Any]], columns: list[str], as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False, default=lambda value: value.hex()))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*(column.removesuffix("_ms").replace("_", " ") for column in columns), box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*(Text(_printable(_cell(column, row[column]))) for column in columns))
    # A pipe gets whole lines.
    Console(width=None if sys.stdout.isatty() else 400).print(shown)


def _printable(text: str) -> str:
    """Escape what would move a terminal's cursor: clients choose group ids and metadata."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column.endswith("_ms") and 0 <= value < 253_402_300_800_000:  # up to the year 9999
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
