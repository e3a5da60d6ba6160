"""`muster report`, also `muster pipeline report`: one HTML page about the groups in the tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster_cli.errors import CliUsageError
from muster_cli.pipeline.moment import MOMENT, milliseconds
from muster_cli.pipeline.spark import clear_errors, master_option, spark
from muster_cli.progress import steps

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from muster_pipeline.report.data import EndsOf

_MINUTE_MS = 60_000
_OPTIONS = [
    click.option(
        "--at",
        metavar="TIME",
        type=MOMENT,
        help="Report the state at this moment, UTC; by default that of the newest record.",
    ),
    click.option(
        "--end-offsets",
        metavar="FILE|MIRROR",
        type=click.Path(exists=True, path_type=Path),
        help="Where partitions end, for lag: .csv, .json or .parquet with topic, partition, timestamp_ms, end_offset, "
        "or the directory of `pipeline mirror`.",
    ),
    click.option(
        "--bootstrap-server", metavar="HOST:PORT,...", help="A Kafka cluster to ask where its partitions end, for lag."
    ),
    click.option(
        "--retention-minutes",
        type=click.IntRange(min=1),
        default=7 * 24 * 60,
        help="The coordinator's offsets.retention.minutes.",
    ),
    click.option(
        "--stalled-minutes",
        type=click.IntRange(min=1),
        default=10,
        help="A group whose lag does not move for this long is stalled.",
    ),
]


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `write` takes to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("tables", metavar="TABLES", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    help="The page to write.",
)
@click.option(
    "--plots",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write a PNG of each plot there.",
)
@report_options
@master_option
@click.option("--json", "as_json", is_flag=True, help="The names of the files written, as one JSON object.")
def report(tables: Path, output: Path, plots: Path | None, master: str, as_json: bool, **options: Any) -> None:
    """Write one HTML page about the groups in the tables. It opens offline.

    Lag, groups that are stalled, idle, abandoned or about to lose their offsets, offsets that went back and why,
    rebalances, the load of the offsets partitions, and what could not be read.
    """
    with clear_errors("No page was written."):
        from muster_pipeline.tables.store import Store

        Store(tables).published()  # before Spark starts
        with spark(master) as session:
            written = write(session, tables, output, plots, **options)
    if as_json:
        click.echo(json.dumps({"report": str(written[0]), "plots": [str(each) for each in written[1:]]}))
    else:
        for path in written:
            click.echo(path)


def write(
    session: SparkSession,
    tables: Path,
    output: Path,
    plots: Path | None,
    *,
    at: datetime | None,
    end_offsets: Path | None,
    bootstrap_server: str | None,
    retention_minutes: int,
    stalled_minutes: int,
) -> list[Path]:
    """Write the page and the plots, and return their paths. Raises PipelineError, OSError."""
    from muster_pipeline.analytics.groups import Thresholds
    from muster_pipeline.report.data import STEPS, ReportOptions, collect
    from muster_pipeline.report.page import write_report
    from muster_pipeline.tables.store import Store

    options = ReportOptions(
        at_ms=milliseconds(at),
        ends=_ends(end_offsets, bootstrap_server, until_at=at is not None),
        thresholds=Thresholds(
            stalled_after_ms=stalled_minutes * _MINUTE_MS, retention_ms=retention_minutes * _MINUTE_MS
        ),
    )
    with steps(len(STEPS) + 1, session.sparkContext) as say:
        data = collect(session, Store(tables), options, say)
        say("the page")
        return write_report(data, output, plots)


def _ends(file: Path | None, bootstrap: str | None, *, until_at: bool) -> EndsOf | None:
    """End offsets from a file or a Kafka cluster: of a past moment if `until_at`, else the present ones."""
    import pyarrow.compute as pc

    from muster_pipeline.analytics.ends import ends_from_file, ends_from_kafka

    if file is not None and bootstrap is not None:
        raise CliUsageError("--end-offsets and --bootstrap-server: give one of them")
    if file is not None:
        from_file = ends_from_file(file)

        def known(_places: list[tuple[str, int]], at_ms: int) -> pa.Table:
            return from_file.filter(pc.field("timestamp_ms") <= at_ms) if until_at else from_file

        return known
    if bootstrap is not None:

        def ask(places: list[tuple[str, int]], at_ms: int) -> pa.Table:
            return ends_from_kafka(bootstrap, places, at_ms if until_at else int(time.time() * 1000))

        return ask
    return None
