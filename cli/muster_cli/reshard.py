"""`muster reshard`: an offsets topic written anew with another number of partitions. Needs the extra `pipeline`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster_cli.errors import CliError

if TYPE_CHECKING:
    from muster_pipeline.reshard.job import Summary

_LEFT_OUT = ("damaged", "unreadable", "unknown", "open_transaction")


@click.command()
@click.argument("logs", metavar="LOGS...", nargs=-1, required=True)
@click.option(
    "--partitions", type=click.IntRange(1, 1000), required=True, help="How many partitions the new topic shall have."
)
@click.option(
    "--output", metavar="DIR", type=click.Path(path_type=Path), help="The new logs; must not exist. Not for --dry-run."
)
@click.option("--dry-run", is_flag=True, help="Only say what would come of it; nothing is written.")
@click.option(
    "--leave-out",
    type=click.Choice(_LEFT_OUT),
    multiple=True,
    help="What may be missing in the new logs, because it cannot be carried over. Repeatable.",
)
@click.option(
    "--segment-bytes", type=click.IntRange(1 << 20, (1 << 31) - 1), default=100 << 20, help="Size of new segments."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def reshard(
    logs: tuple[str, ...],
    partitions: int,
    output: Path | None,
    dry_run: bool,
    leave_out: tuple[str, ...],
    segment_bytes: int,
    as_json: bool,
) -> None:
    """Write an offsets topic anew with another number of partitions, and verify it.

    LOGS are directories __consumer_offsets-N, or directories of those; nobody may write to them meanwhile. A run that
    was interrupted goes on where it stopped when it is started again with the same options.
    """
    if dry_run == (output is not None):
        raise click.UsageError("give either --output or --dry-run")
    try:
        from muster_cli.unflushed import refuse_unflushed
        from muster_pipeline.decode.errors import PipelineError
        from muster_pipeline.reshard.job import plan
        from muster_pipeline.reshard.job import reshard as run
        from muster_pipeline.source.files import find_segments
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    try:
        refuse_unflushed(find_segments(logs))
        with _progress() as progress:
            if output is None:
                summary = plan(logs, partitions, progress)
            else:
                summary = run(
                    logs, output, partitions, leave_out=leave_out, segment_bytes=segment_bytes, progress=progress
                )
    except PipelineError as exc:
        raise CliError(str(exc)) from exc
    click.echo(json.dumps(asdict(summary)) if as_json else _text(summary, output))


def _text(summary: Summary, output: Path | None) -> str:
    records = summary.records
    lines = [f"{count:>12,}  {kind}" for kind, count in sorted(summary.counts.items())]
    lines.append(
        f"{summary.groups:,} groups, {sum(records):,} records in {summary.partitions} partitions: "
        f"{min(records):,} to {max(records):,} each"
    )
    refused = {kind: summary.counts[kind] for kind in _LEFT_OUT if summary.counts.get(kind)}
    if output is not None:
        lines.append(f"verified: the same keys and values per group, each group in its partition. {output}")
    elif refused:
        told = ", ".join(f"{count} {kind}" for kind, count in refused.items())
        lines.append(f"not without --leave-out: {told}")
    return "\n".join(lines)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield show
