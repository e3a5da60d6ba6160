"""`muster reshard`: give one of the two topics another number of partitions, in logs or in a running cluster.

Needs the extra `pipeline`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster_cli.errors import CliError
from muster_cli.progress import amounts
from muster_coordinator.partition_numbers import INTERNAL_TOPICS, OFFSETS

if TYPE_CHECKING:
    from muster_cli.reshard.site import Site
    from muster_pipeline.reshard.job import Summary

_LEFT_OUT = ("damaged", "unreadable", "unknown", "open_transaction")


@click.command()
@click.argument("logs", metavar="[LOGS...]", nargs=-1)
@click.option("--partitions", type=click.IntRange(1, 1000), help="Number of partitions of the new topic.")
@click.option(
    "--output", metavar="DIR", type=click.Path(path_type=Path), help="The new logs; must not exist. Not for --dry-run."
)
@click.option(
    "--data-dir", metavar="DIR", type=click.Path(path_type=Path), help="Re-shard the instance that runs here."
)
@click.option("--cluster", metavar="NAME", help="Re-shard this CoordinatorCluster in Kubernetes.")
@click.option("--namespace", default="default", help="Namespace of the CoordinatorCluster.")
@click.option(
    "--topic",
    type=click.Choice(sorted(INTERNAL_TOPICS)),
    default=OFFSETS.name,
    show_default=True,
    help="Topic of the running cluster.",
)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path),
    default=Path("muster-reshard"),
    help="Directory for the old and new logs of a running cluster while it is re-sharded.",
)
@click.option("--abort", is_flag=True, help="Take the re-shard of a running cluster back.")
@click.option("--drop-old", is_flag=True, help="Delete the logs of partitions that a re-shard has replaced.")
@click.option("--dry-run", is_flag=True, help="Print the result without writing anything.")
@click.option(
    "--leave-out",
    type=click.Choice(_LEFT_OUT),
    multiple=True,
    help="Kind of records that may be left out because they cannot be carried over. Repeatable.",
)
@click.option(
    "--segment-bytes", type=click.IntRange(1 << 20, (1 << 31) - 1), default=100 << 20, help="Size of new segments."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def reshard(
    logs: tuple[str, ...],
    partitions: int | None,
    output: Path | None,
    data_dir: Path | None,
    cluster: str | None,
    namespace: str,
    topic: str,
    work_dir: Path,
    abort: bool,
    drop_old: bool,
    dry_run: bool,
    leave_out: tuple[str, ...],
    segment_bytes: int,
    as_json: bool,
) -> None:
    """Write a topic anew with another number of partitions, and verify it.

    LOGS are directories __consumer_offsets-N, or directories of those; nothing may write to them meanwhile. With
    --data-dir or --cluster a running cluster is re-sharded: its groups, or with --topic __transaction_state its
    transactions, are not served until that is done or taken back (--abort). A run that was interrupted goes on where it
    stopped when it is started again with the same options.
    """
    if data_dir is not None or cluster is not None:
        if logs or output is not None or dry_run or (data_dir is not None and cluster is not None):
            raise click.UsageError("with --data-dir or --cluster there are neither LOGS, --output nor --dry-run")
        if abort + drop_old + (partitions is not None) != 1:
            raise click.UsageError("give one of --partitions, --abort and --drop-old")
        from muster_cli.reshard.site import open_site

        site = open_site(data_dir, namespace, cluster or "", topic)
        if drop_old:
            click.echo(f"{asyncio.run(_drop(site))} partitions are deleted, and their logs soon")
            return
        summary = asyncio.run(_running(site, partitions, work_dir, leave_out, segment_bytes))
        told = f"{partitions} partitions serve" if partitions is not None else "taken back: the old partitions serve"
    else:
        if topic != OFFSETS.name:
            raise click.UsageError(f"{topic} is re-sharded in a running cluster only: give --data-dir or --cluster")
        if abort or drop_old or partitions is None or not logs or dry_run == (output is not None):
            raise click.UsageError("give LOGS, --partitions, and either --output or --dry-run")
        summary = _stopped(logs, output, partitions, leave_out, segment_bytes)
        told = f"verified: the same keys and values per group, each group in its partition. {output}"
    if as_json:
        click.echo(json.dumps(asdict(summary) if summary is not None else None))
        return
    if summary is not None:
        click.echo(_text(summary, dry_run=dry_run))
    if not dry_run:
        click.echo(told)


async def _running(
    site: AbstractAsyncContextManager[Site],
    partitions: int | None,
    work_dir: Path,
    leave_out: tuple[str, ...],
    segment_bytes: int,
) -> Summary | None:
    """Re-shard a running cluster to `partitions`, or take a re-shard back if that is None. Raises CliError."""
    try:
        from muster_cli.reshard.live import abort, reshard_cluster
        from muster_pipeline.decode.errors import PipelineError
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    try:
        with amounts() as progress:
            async with site as there:
                if partitions is not None:
                    return await reshard_cluster(there, partitions, work_dir, leave_out, segment_bytes, progress)
                if not await abort(there, progress):
                    raise CliError("no re-shard is under way")
                return None
    except PipelineError as exc:
        raise CliError(f"{exc}. The topic is not served until it goes on, or is taken back with --abort") from exc


async def _drop(site: AbstractAsyncContextManager[Site]) -> int:
    async with site as there:
        return await there.drop_retired()


def _stopped(
    logs: tuple[str, ...], output: Path | None, partitions: int, leave_out: tuple[str, ...], segment_bytes: int
) -> Summary:
    """Re-shard the logs of a stopped cluster; only compute the summary if `output` is None. Raises CliError."""
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
        with amounts() as progress:
            if output is None:
                return plan(logs, partitions, progress)
            return run(logs, output, partitions, leave_out=leave_out, segment_bytes=segment_bytes, progress=progress)
    except PipelineError as exc:
        raise CliError(str(exc)) from exc


def _text(summary: Summary, *, dry_run: bool) -> str:
    records = summary.records
    lines = [f"{count:>12,}  {kind}" for kind, count in sorted(summary.counts.items())]
    what = "groups" if summary.topic == OFFSETS.name else "transactional ids"
    lines.append(
        f"{summary.groups:,} {what}, {sum(records):,} records in {summary.partitions} partitions: "
        f"{min(records):,} to {max(records):,} each"
    )
    refused = {kind: summary.counts[kind] for kind in _LEFT_OUT if summary.counts.get(kind)}
    if dry_run and refused:
        told = ", ".join(f"{count} {kind}" for kind, count in refused.items())
        lines.append(f"not without --leave-out: {told}")
    return "\n".join(lines)
