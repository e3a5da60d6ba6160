"""`muster pipeline`: tables of what the partition logs say, and what they tell about groups.

Needs the extra `pipeline`; only what reads logs or goes back in time starts Spark, and with it needs Java.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster_cli.errors import CliError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES = click.argument("tables", metavar="TABLES", type=click.Path(file_okay=False, path_type=Path))
_GROUPS = click.option("--group", "groups", metavar="GROUP", multiple=True, help="Only this group. Repeatable.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of a table.")
_MASTER = click.option("--master", default="local[2]", help="Spark's master.")


@click.group()
def pipeline() -> None:
    """Read the partition logs themselves: offsets now and then, rebalances, damage.

    `run` reads logs into tables; the other commands answer from the tables.
    """


@pipeline.command()
@click.argument("logs", metavar="LOGS...", nargs=-1, required=True)
@click.option(
    "--output", metavar="TABLES", required=True, type=click.Path(file_okay=False, path_type=Path), help="The tables."
)
@click.option("--fail-fast", is_flag=True, help="Fail on the first damage instead of listing it.")
@_MASTER
def run(logs: tuple[str, ...], output: Path, fail_fast: bool, master: str) -> None:
    """Bring tables up to what logs hold now; the first run makes them.

    LOGS are segment files, directories __consumer_offsets-N, or directories of those: of Muster or of a Kafka broker.
    """
    with _clear_errors():
        from muster_pipeline.tables.run import run_tables

        with _spark(master) as spark:
            manifest = run_tables(spark, logs, output, fail_fast=fail_fast, say=_say)
        for kind, count in sorted(manifest.kinds.items()):
            click.echo(f"{count:>12,}  {kind}")
        problems = len(_rows(output, "quality"))
        click.echo(f"run {manifest.run}: {output}" + (f"; {problems} problems, see `quality`" if problems else ""))


@pipeline.command()
@_TABLES
@_GROUPS
@click.option(
    "--at",
    metavar="TIME",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]),
    help="As it was at that moment, UTC; starts Spark.",
)
@_MASTER
@_JSON
def offsets(tables: Path, groups: tuple[str, ...], at: datetime | None, master: str, as_json: bool) -> None:
    """Committed offsets, now or at a past moment."""
    with _clear_errors():
        rows = _rows(tables, "current_offsets", groups) if at is None else _offsets_at(tables, groups, at, master)
        rows.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
        _show(rows, ["group", "topic", "partition", "committed_offset", "metadata", "commit_timestamp_ms"], as_json)


@pipeline.command()
@_TABLES
@_GROUPS
@_JSON
def rebalances(tables: Path, groups: tuple[str, ...], as_json: bool) -> None:
    """Who joined and who left, generation by generation."""
    with _clear_errors():
        rows = _rows(tables, "rebalances", groups)
        rows.sort(key=lambda row: (row["group"], row["offset"]))
        _show(rows, ["group", "timestamp_ms", "generation", "members_after", "joined", "left"], as_json)


@pipeline.command()
@_TABLES
@_JSON
def quality(tables: Path, as_json: bool) -> None:
    """What could not be read: file, byte and reason. Exit code 0 also when there is something."""
    with _clear_errors():
        rows = _rows(tables, "quality")
        rows.sort(key=lambda row: (row["file"], row["position"]))
        _show(rows, ["file", "position", "offset", "problem", "problem_bytes", "problem_detail"], as_json)


def _rows(tables: Path, table: str, groups: Sequence[str] = ()) -> list[dict[str, Any]]:
    from muster_pipeline.tables.read import read_arrow
    from muster_pipeline.tables.store import Store

    store = Store(tables)
    rows: list[dict[str, Any]] = read_arrow(store, store.published(), table, groups).to_pylist()
    return rows


def _offsets_at(tables: Path, groups: Sequence[str], at: datetime, master: str) -> list[dict[str, Any]]:
    from muster_pipeline.tables.run import read_table
    from muster_pipeline.tables.store import Store
    from muster_pipeline.tables.transforms import current_offsets

    store = Store(tables)
    manifest = store.published()
    at_ms = int(at.replace(tzinfo=UTC).timestamp() * 1000)
    with _spark(master) as spark:
        commits, tombstones, transactions = (
            read_table(spark, store, manifest, name) for name in ("commits", "tombstones", "transactions")
        )
        frame = current_offsets(commits, tombstones, transactions, at_ms)
        if groups:
            frame = frame.where(frame["group"].isin(list(groups)))
        return [row.asDict(recursive=True) for row in frame.collect()]


@contextmanager
def _spark(master: str) -> Iterator[SparkSession]:
    from muster_pipeline.source.session import spark_session

    _say("Spark starts")
    session = spark_session(master)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """The pipeline's errors as the command's, also those that Spark wraps in pages of stack traces."""
    try:
        from muster_pipeline.decode.errors import PipelineError
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    try:
        yield
    except PipelineError as exc:
        raise CliError(str(exc)) from exc
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    except Exception as exc:
        reason = re.search(r"muster_pipeline\.[\w.]+Error: (.*)", str(exc))
        if reason is None:
            raise
        raise CliError(reason[1]) from exc


def _say(text: str) -> None:
    click.echo(f"{text} ...", err=True)


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
    # a pipe gets whole lines, whatever width a terminal would have
    Console(width=None if sys.stdout.isatty() else 400).print(shown)


def _printable(text: str) -> str:
    """Group ids and metadata are a client's to choose: what would move a terminal's cursor is shown escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column.endswith("_ms") and 0 <= value < 253_402_300_800_000:  # up to the year 9999
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
