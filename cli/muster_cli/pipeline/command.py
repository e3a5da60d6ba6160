"""`muster pipeline`: make tables from partition logs, and keep them up to date. Queries are in `queries`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster_cli.errors import CliError
from muster_cli.pipeline.queries import groups, offsets, quality, rebalances, transactions
from muster_cli.pipeline.report import report, report_options, write
from muster_cli.pipeline.spark import clear_errors, master_option, spark
from muster_cli.progress import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from muster_pipeline.tables.store import Manifest

_LOGS = click.argument("logs", metavar="LOGS...", nargs=-1, required=True)
_OUTPUT = click.option(
    "--output", metavar="TABLES", required=True, type=click.Path(file_okay=False, path_type=Path), help="The tables."
)
_FAIL_FAST = click.option("--fail-fast", is_flag=True, help="Fail on the first damage instead of listing it.")
_TABLE_STEPS = 3


@click.group()
def pipeline() -> None:
    """Read the partition logs themselves: offsets now and then, rebalances, damage, a report.

    `tables` reads logs into tables, `run` makes a report as well, `stream` goes on reading; the other commands answer
    from the tables.

    Exit codes: 0 done, 1 it did not work, 2 wrong usage, 130 interrupted.
    """


@pipeline.command()
@_LOGS
@_OUTPUT
@_FAIL_FAST
@master_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def tables(logs: tuple[str, ...], output: Path, fail_fast: bool, master: str, as_json: bool) -> None:
    """Bring tables up to the present content of logs; the first run makes them.

    LOGS are segment files, directories __consumer_offsets-N, or directories of those: of Muster or of a Kafka broker.
    """
    with clear_errors("The tables are as before."), spark(master) as session:
        manifest = _make_tables(session, logs, output, fail_fast)
        _show_run(manifest, output, as_json)


@pipeline.command()
@_LOGS
@_OUTPUT
@_FAIL_FAST
@report_options
@master_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def run(logs: tuple[str, ...], output: Path, fail_fast: bool, master: str, as_json: bool, **options: Any) -> None:
    """`tables` and `report` at once: the page is TABLES/report.html."""
    with clear_errors("The tables are those of the last run that ended."), spark(master) as session:
        manifest = _make_tables(session, logs, output, fail_fast)
        made = write(session, output, output / "report.html", None, **options)
        _show_run(manifest, output, as_json, report=str(made[0]))


@pipeline.command()
@_LOGS
@_OUTPUT
@_FAIL_FAST
@click.option("--every", metavar="SECONDS", type=click.FloatRange(min=0.1), default=10.0, help="Time between reads.")
@master_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each run instead of lines.")
def stream(logs: tuple[str, ...], output: Path, fail_fast: bool, every: float, master: str, as_json: bool) -> None:
    """Keep tables up to date with growing logs until interrupted. It continues where the last run ended.

    For partitions with several replicas name pods, http://POD:PORT: their directories can have records that a failover
    takes back.
    """
    with clear_errors("The tables are those of the last run that ended."), spark(master) as session:
        from muster_pipeline.tables.run import run_tables

        shown = 0
        while True:
            manifest = run_tables(session, logs, output, fail_fast=fail_fast)
            if manifest.run != shown:
                _show_run(manifest, output, as_json)
                shown = manifest.run
            time.sleep(every)


@pipeline.command()
@click.option("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="The Kafka cluster to ask.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic. Repeatable.")
@click.option(
    "--output", metavar="MIRROR", required=True, type=click.Path(file_okay=False, path_type=Path), help="The directory."
)
def mirror(bootstrap_server: str, topics: tuple[str, ...], output: Path) -> None:
    """Save where the partitions of a Kafka cluster end now, by its Metadata and ListOffsets.

    Each call adds a file. `report --end-offsets MIRROR` computes lag, also in time, from all of them without a cluster.
    """
    with clear_errors("The mirror is as before."):
        from muster_pipeline.analytics.ends import mirror as add

        file, rows = add(bootstrap_server, output, int(time.time() * 1000), topics)
        click.echo(f"{file}: {rows} end offsets")


@pipeline.command()
@click.argument("tables", metavar="TABLES", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--warehouse",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory for the files; the catalog is DIR/catalog.db, SQLite.",
)
@click.option("--namespace", default="muster", help="Namespace of the tables in the catalog.")
def iceberg(tables: Path, warehouse: Path, namespace: str) -> None:
    """Bring the same tables in an Iceberg catalog up to the last run. Needs the extra `iceberg`, and no Spark."""
    with clear_errors("A table in the catalog is as before, or up to date."):
        from muster_pipeline.tables.store import Store

        try:
            from muster_pipeline.tables.iceberg import TABLES, publish_iceberg
        except ImportError as exc:
            raise CliError(f"{exc.name} is missing: pip install 'muster[iceberg]'") from exc
        with steps(len(TABLES)) as say:
            added = publish_iceberg(Store(tables), warehouse, namespace, say)
        for name, count in added.items():
            click.echo(f"{count:>12,}  {namespace}.{name}")


def _make_tables(session: SparkSession, logs: Sequence[str], output: Path, fail_fast: bool) -> Manifest:
    from muster_cli.unflushed import unflushed_rows
    from muster_pipeline.tables.run import run_tables

    with steps(_TABLE_STEPS, session.sparkContext) as say:
        return run_tables(session, logs, output, fail_fast=fail_fast, extra_problems=unflushed_rows, say=say)


def _show_run(manifest: Manifest, output: Path, as_json: bool, **more: str) -> None:
    from muster_pipeline.tables.read import read_arrow
    from muster_pipeline.tables.store import Store

    problems = read_arrow(Store(output), manifest, "quality").num_rows
    if as_json:
        shown = {"run": manifest.run, "tables": str(output), "kinds": manifest.kinds, "problems": problems, **more}
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for kind, count in sorted(manifest.kinds.items()):
        click.echo(f"{count:>12,}  {kind}")
    click.echo(f"run {manifest.run}: {output}" + (f"; {problems} problems, see `quality`" if problems else ""))
    for path in more.values():
        click.echo(path)


pipeline.add_command(report)
for _query in (offsets, groups, rebalances, transactions, quality):
    pipeline.add_command(_query)
