"""`muster restore`. It imports what it needs when it runs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
    from muster_cli.backup.resharded import Resharded
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
@click.option(
    "--partitions", type=click.IntRange(1, 1000), show_default="as there were", help="Partitions of the groups' topic."
)
@click.option(
    "--transaction-partitions",
    type=click.IntRange(1, 1000),
    show_default="as there were",
    help="Partitions of the transaction topic.",
)
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
    partitions: int | None,
    transaction_partitions: int | None,
    dry_run: bool,
    result: Path | None,
    as_json: bool,
) -> None:
    """Make a data directory from a backup, to be started with `muster local up`, or the volume of a pod on Kubernetes.

    Verifies the backup first, and refuses one that is not as it was written. Kafka cluster id and epochs go on.
    Transactions that were open at the cut are aborted, and their producers fenced. Nothing is overwritten: a volume
    that has this pod's share of this backup already is left as it is, which counts as done. With --at, a transaction
    that was not decided at that moment is aborted as a whole. With another number of partitions, both topics are
    re-sharded on the way, in a temporary directory (TMPDIR) with room for the logs twice.
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
        wanted = _Wanted(asked, at, root, pod, pods or 0, partitions or 0, transaction_partitions or 0, dry_run)
        done = _restore(address, wanted, as_json=as_json)
    except CliError as error:
        if result is not None:
            result.write_text(json_text(RestoreResult(error=short(str(error)))))
        raise
    if result is not None:
        result.write_text(json_text(done))


@dataclass(frozen=True)
class _Wanted:
    """The options. `pod`: the number of the one whose volume is made (None: those of all). Numbers of pods or of
    partitions are 0 where those of the backup count."""

    asked: str
    at: str | None
    root: Path
    pod: int | None
    pods: int
    partitions: int
    transaction_partitions: int
    dry_run: bool


@dataclass(frozen=True)
class _Found:
    """A backup to restore, and where its files are. `then`: how it was made, if it is of a moment between two.
    `resharded`: likewise, if it has other numbers of partitions than in the store."""

    source: Source
    catalog: Catalog
    backup: Backup
    then: AtMoment | None = None
    resharded: Resharded | None = None


def _restore(address: str, wanted: _Wanted, *, as_json: bool) -> RestoreResult:
    """Raises CliError."""
    from muster_cli.backup.restore import result_of
    from muster_cli.backup.volume import is_done
    from muster_coordinator.sites.origin import Origin
    from muster_operator.api.restore_result import RestoreResult

    if wanted.pod is not None and not wanted.dry_run:
        noted = Origin(wanted.asked, wanted.pod, wanted.pods, wanted.partitions, wanted.transaction_partitions)
        if is_done(wanted.root, noted):
            # The store is not asked: it may not have the backup any more.
            told = {"backup": wanted.asked, "already": True}
            click.echo(json_text(told) if as_json else f"{wanted.root} has {wanted.asked} already")
            return RestoreResult(wanted.asked)
    with ExitStack() as stack:
        progress = stack.enter_context(amounts())
        found = _with_numbers(_find(address, wanted, stack, progress), wanted, stack, progress)
        pods = wanted.pods or found.backup.pods
        done = _made(found, wanted, pods, progress)
    if done is None:
        _tell_plan(found, pods, wanted.root, as_json=as_json)
    else:
        _tell_restored(done, found, wanted, as_json=as_json)
    return result_of(found.backup)


def _find(address: str, wanted: _Wanted, stack: ExitStack, progress: Amount) -> _Found:
    """Raises CliError."""
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.at_moment import at_moment
    from muster_cli.backup.catalog import read_catalog
    from muster_cli.times import time_ms

    at_ms = None if wanted.at is None else time_ms("--at", wanted.at)
    store = open_store(address)
    catalog = read_catalog(store)
    if at_ms is None:
        return _Found(store, catalog, catalog.find(wanted.asked))
    then, source, merged = stack.enter_context(at_moment(store, catalog, wanted.asked, at_ms, progress))
    return _Found(source, merged, then.backup, then)


def _with_numbers(found: _Found, wanted: _Wanted, stack: ExitStack, progress: Amount) -> _Found:
    """The backup with the numbers of partitions that are wanted. Raises CliError."""
    from muster_cli.backup.restore import check_restore, result_of

    numbers = wanted.partitions, wanted.transaction_partitions
    if wanted.transaction_partitions and not found.backup.layout.transactions:
        raise CliError(f"{found.backup.id} has no topic of transactions: leave --transaction-partitions out")
    before = result_of(found.backup)
    if before.with_numbers(*numbers) == before:
        return found
    try:
        from muster_cli.backup.resharded import resharded
    except ImportError as error:
        raise CliError(
            f"{error.name} is missing, and {found.backup.id} has {before.offsets_partitions} partitions of groups and"
            f" {before.transaction_partitions} of transactions: to restore it with others pip install"
            " 'muster[pipeline]', or on Kubernetes name the pipeline's image in spec.restoreFrom.image"
        ) from error
    check_restore(found.source, found.catalog, found.backup, wanted.root, progress)
    made, source = stack.enter_context(resharded(found.source, found.backup, *numbers, progress))
    return replace(found, source=source, backup=made.backup, resharded=made)


def _made(found: _Found, wanted: _Wanted, pods: int, progress: Amount) -> Restored | None:
    """Returns what was made, None in a dry run. Raises CliError."""
    from muster_cli.backup.restore import check_restore, restore_volume, run_restore
    from muster_cli.local.data_dir import DataDir

    source, catalog, backup = found.source, found.catalog, found.backup
    root, pod, now_ms = wanted.root, wanted.pod, time.time_ns() // 1_000_000
    if pod is not None and pod >= pods:
        raise CliUsageError(f"--pod {pod}: of {pods} pods the last one is {pods - 1}")
    if wanted.dry_run:
        check_restore(source, catalog, backup, root, progress)
        return None
    if pod is None:
        done = run_restore(source, catalog, backup, DataDir(root), pods, now_ms, progress)
    else:
        done = restore_volume(source, catalog, backup, root, pod, pods, now_ms, progress)
    if found.resharded is None:
        return done
    ends = found.resharded.ends  # the new logs have no transaction without an end
    return replace(done, open_transactions=tuple(ends.open), markers=ends.markers)


def _tell_restored(done: Restored, found: _Found, wanted: _Wanted, *, as_json: bool) -> None:
    if as_json:
        print_json({**msgspec.to_builtins(done), **_row_of_way(found)})
        return
    _tell_way(found)
    click.echo(f"{done.backup} of {moment(found.backup)}: {done.partitions} partitions, {done.size:,} bytes")
    if done.open_transactions or done.markers:
        some = ", ".join(done.open_transactions[:10])
        click.echo(
            f"aborted: {len(done.open_transactions)} open transactions ({some}), {done.markers} that began later"
        )
    if wanted.pod is None:
        click.echo(f"muster local up --data-dir {wanted.root}")


def _tell_plan(found: _Found, pods: int, target: Path, *, as_json: bool) -> None:
    backup = found.backup
    if as_json:
        print_json({**row(backup), "pods": pods, **_row_of_way(found)})
        return
    _tell_way(found)
    click.echo(
        f"{backup.id} of {moment(backup)} is whole: {len(backup.partitions)} partitions, {backup.size:,} bytes, would"
        f" be restored for {pods} pods into {target}"
    )


def _row_of_way(found: _Found) -> dict[str, Any]:
    """The fields that say how the backup was made from others, or from one with other numbers of partitions."""
    then, resharded = found.then, found.resharded
    row_of_moment = {} if then is None else _row_of_moment(then)
    return row_of_moment if resharded is None else {**row_of_moment, **_row_of_reshard(resharded)}


def _tell_way(found: _Found) -> None:
    if found.then is not None:
        click.echo(_told_moment(found.then))
    if found.resharded is not None:
        click.echo(_told_reshard(found.resharded))


def _row_of_reshard(made: Resharded) -> dict[str, Any]:
    before, after = made.before, made.backup.layout
    return {
        "groups": made.groups,
        "transactionalIds": made.transactional_ids,
        "groupPartitions": {"before": before.offsets_partitions, "after": after.offsets_partitions},
        "transactionPartitions": {"before": before.transaction_partitions, "after": after.transaction_partitions},
        "openTransactions": made.ends.open,
    }


def _told_reshard(made: Resharded) -> str:
    before, after = made.before, made.backup.layout
    return (
        f"re-sharded and verified: {made.groups:,} groups from {before.offsets_partitions} to"
        f" {after.offsets_partitions} partitions, {made.transactional_ids:,} transactional ids from"
        f" {before.transaction_partitions} to {after.transaction_partitions}"
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
