"""`muster restore`. It imports what it needs when it runs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster_cli.backup.command import JSON, STORE, json_text, moment, print_json, row
from muster_cli.errors import CliError, CliUsageError
from muster_cli.progress import Amount, amounts

if TYPE_CHECKING:
    from muster_cli.backup.at_moment import AtMoment
    from muster_cli.backup.catalog import Catalog
    from muster_cli.backup.manifest import Backup
    from muster_cli.backup.restore import Restored
    from muster_cli.backup.store import Source
    from muster_operator.api.restore_result import RestoreResult


@click.command()
@STORE
@click.option("--backup", "asked", metavar="ID", default="latest", help="Which one; 'latest': the newest.")
@click.option("--at", metavar="TIME", help="The moment between two backups, in UTC: 2026-11-28T09:30:00Z.")
@click.option("--data-dir", "target", metavar="DIR", type=click.Path(path_type=Path), help="Made by the restore.")
@click.option(
    "--volume",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Made by the restore: the data directory of one pod on Kubernetes, with its share of the logs.",
)
@click.option("--pod", type=click.IntRange(0, 99), help="With --volume: the number at the end of the pod's name.")
@click.option("--pods", type=click.IntRange(1, 100), show_default="as there were", help="Pods to spread logs over.")
@click.option("--dry-run", is_flag=True, help="Verify everything and say what there would be; write nothing.")
@click.option(
    "--result", type=click.Path(path_type=Path), help="Write a JSON object with what was found here, also an error."
)
@JSON
def restore(
    address: str,
    asked: str,
    at: str | None,
    target: Path | None,
    volume: Path | None,
    pod: int | None,
    pods: int | None,
    dry_run: bool,
    result: Path | None,
    as_json: bool,
) -> None:
    """Make a data directory from a backup, to be started with `muster local up`, or the volume of a pod on Kubernetes.

    Verifies the backup first, and refuses one that is not as it was written. Kafka cluster id and epochs go on.
    Transactions that were open at the cut are aborted, and their producers fenced. Nothing is overwritten: a volume
    that has this pod's share of this backup already is left as it is, which counts as done. With --at, a transaction
    that was not decided at that moment is aborted as a whole.
    """
    root = target or volume
    if root is None or (target is not None and volume is not None):
        raise CliUsageError("give one of --data-dir and --volume")
    if (volume is None) != (pod is None):
        raise CliUsageError("--volume and --pod go together")
    if volume is not None and asked == "latest" and not dry_run:
        raise CliUsageError("--volume needs the id of a --backup: all pods must have the same one")
    from muster_cli.backup.run import short
    from muster_operator.api.restore_result import RestoreResult

    try:
        done = _restore(address, asked, at, root, pod, pods, dry_run=dry_run, as_json=as_json)
    except CliError as error:
        if result is not None:
            result.write_text(json_text(RestoreResult(error=short(str(error)))))
        raise
    if result is not None:
        result.write_text(json_text(done))


def _restore(
    address: str,
    asked: str,
    at: str | None,
    root: Path,
    pod: int | None,
    pods: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> RestoreResult:
    """Raises CliError."""
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.at_moment import at_moment
    from muster_cli.backup.catalog import read_catalog
    from muster_cli.backup.restore import result_of
    from muster_cli.backup.volume import is_done
    from muster_cli.times import time_ms
    from muster_operator.api.restore_result import RestoreResult

    if pod is not None and not dry_run and is_done(root, asked, pod, pods):
        # The store is not asked: it may not have the backup any more.
        click.echo(json_text({"backup": asked, "already": True}) if as_json else f"{root} has {asked} already")
        return RestoreResult(asked)
    at_ms = None if at is None else time_ms("--at", at)
    store = open_store(address)
    catalog = read_catalog(store)
    with ExitStack() as stack:
        progress = stack.enter_context(amounts())
        if at_ms is None:
            found = _Found(store, catalog, catalog.find(asked), None)
        else:
            then, source, merged = stack.enter_context(at_moment(store, catalog, asked, at_ms, progress))
            found = _Found(source, merged, then.backup, then)
        done, number = _made(found, root, pod, pods, progress, dry_run=dry_run)
    if done is None:
        _tell_plan(found.backup, found.then, number, root, as_json=as_json)
    else:
        _tell_restored(done, found, root, pod, as_json=as_json)
    return result_of(found.backup)


@dataclass(frozen=True)
class _Found:
    """A backup to restore, and where its files are. `then`: how it was made, if it is of a moment between two."""

    source: Source
    catalog: Catalog
    backup: Backup
    then: AtMoment | None


def _made(
    found: _Found, root: Path, pod: int | None, pods: int | None, progress: Amount, *, dry_run: bool
) -> tuple[Restored | None, int]:
    """Returns what was made, None in a dry run, and for how many pods. Raises CliError."""
    from muster_cli.backup.restore import check_restore, restore_volume, run_restore
    from muster_cli.local.data_dir import DataDir

    source, catalog, backup = found.source, found.catalog, found.backup
    number, now_ms = pods or backup.pods, time.time_ns() // 1_000_000
    if pod is not None and pod >= number:
        raise CliUsageError(f"--pod {pod}: of {number} pods the last one is {number - 1}")
    if dry_run:
        check_restore(source, catalog, backup, root, progress)
        return None, number
    if pod is not None:
        return restore_volume(source, catalog, backup, root, pod, number, now_ms, progress), number
    return run_restore(source, catalog, backup, DataDir(root), number, now_ms, progress), number


def _tell_restored(done: Restored, found: _Found, root: Path, pod: int | None, *, as_json: bool) -> None:
    if as_json:
        print_json({**msgspec.to_builtins(done), **({} if found.then is None else _row_of_moment(found.then))})
        return
    if found.then is not None:
        click.echo(_told_moment(found.then))
    click.echo(f"{done.backup} of {moment(found.backup)}: {done.partitions} partitions, {done.size:,} bytes")
    if done.open_transactions or done.markers:
        some = ", ".join(done.open_transactions[:10])
        click.echo(
            f"aborted: {len(done.open_transactions)} open transactions ({some}), {done.markers} that began later"
        )
    if pod is None:
        click.echo(f"muster local up --data-dir {root}")


def _tell_plan(found: Backup, then: AtMoment | None, pods: int, target: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({**row(found), "pods": pods, **({} if then is None else _row_of_moment(then))})
        return
    if then is not None:
        click.echo(_told_moment(then))
    click.echo(
        f"{found.id} of {moment(found)} is whole: {len(found.partitions)} partitions, {found.size:,} bytes, would be"
        f" restored for {pods} pods into {target}"
    )


def _row_of_moment(then: AtMoment) -> dict[str, Any]:
    return {
        "base": then.base,
        "later": then.later,
        "records": then.records,
        "torn": then.torn,
        "after": then.after,
        "openTransactions": then.open,
    }


def _told_moment(then: AtMoment) -> str:
    some = f" ({', '.join(then.open[:10])})" if then.open else ""
    return (
        f"{then.base} and {then.records:,} records of {then.later}; not restored: {then.after:,} that were written"
        f" after {moment(then.backup)}, and {then.torn:,} from before that would tear a transaction."
        f" {len(then.open)} transactions are open then, and aborted{some}"
    )
