"""`muster backup` and `muster restore`. Each command imports what it needs when it runs."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster_cli.errors import CliError, CliUsageError
from muster_cli.progress import amounts

if TYPE_CHECKING:
    from muster_cli.backup.manifest import Backup
    from muster_operator.api.backup_result import BackupResult

STORE = click.option(
    "--store",
    "address",
    metavar="STORE",
    required=True,
    envvar="MUSTER_BACKUP_STORE",
    show_envvar=True,
    help="Where backups are kept: a directory, such as a mounted volume, or s3://BUCKET/PREFIX.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
MIB = 1 << 20


@click.group()
def backup() -> None:
    """Backups of groups, offsets and transactions: all partitions at one moment."""


@backup.command()
@STORE
@click.option("--data-dir", metavar="DIR", type=click.Path(path_type=Path), help="Back up the instance that runs here.")
@click.option("--cluster", metavar="NAME", help="Back up this CoordinatorCluster in Kubernetes.")
@click.option("--namespace", default="default", help="Namespace of the CoordinatorCluster.")
@click.option("--mib-per-second", type=click.IntRange(1), default=32, help="Read from pods at most.")
@JSON
def create(
    address: str, data_dir: Path | None, cluster: str | None, namespace: str, mib_per_second: int, as_json: bool
) -> None:
    """Make a backup of a running cluster.

    What the store has already is not sent again. An interrupted backup does not count; start again. With --cluster,
    MUSTER_TLS_DIR names a directory with the certificate of a reader, as the Secret NAME-reader-tls has it.
    """
    if (data_dir is None) == (cluster is None):
        raise CliUsageError("give one of --data-dir and --cluster")
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.create import create_backup
    from muster_cli.backup.site import open_pods

    store = open_store(address)
    site = open_pods(data_dir, namespace, cluster or "")
    with amounts() as progress:
        made = asyncio.run(create_backup(site, store, mib_per_second * MIB, progress))
    if as_json:
        print_json({**row(made.backup), "sent": made.sent, "heldMs": round(made.held_ms), "seconds": made.seconds})
        return
    click.echo(
        f"{made.backup.id}: {len(made.backup.partitions)} partitions, {made.backup.size:,} bytes, of which"
        f" {made.sent:,} were new; {made.seconds:.1f} s, markers waited for {made.held_ms:.0f} ms"
    )


def _address(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = dict(each.partition("=")[::2] for each in given)
    if not all(name and ":" in address for name, address in found.items()):
        raise click.BadParameter("give each pod as NAME=HOST:PORT")
    return found


@backup.command()
@STORE
@click.option("--cluster", metavar="NAMESPACE/NAME", required=True, help="The CoordinatorCluster.")
@click.option(
    "--pod",
    "pods",
    metavar="NAME=HOST:PORT",
    multiple=True,
    required=True,
    callback=_address,
    help="Where the pod API of a pod is. Give all pods of the cluster.",
)
@click.option("--pods-until", type=float, required=True, help="Seconds since 1970: later the addresses count no more.")
@click.option("--mib-per-second", type=click.IntRange(1), default=32, help="Read from pods at most.")
@click.option("--keep", type=click.IntRange(1), default=7, help="How many of the newest backups stay.")
@click.option("--keep-days", type=click.FloatRange(0), default=0.0, help="Backups that are younger stay as well.")
@click.option("--verify", is_flag=True, help="Read the backup again, and compare checksums.")
@click.option("--result", type=click.Path(path_type=Path), help="Write the JSON object of the result here as well.")
def run(
    address: str,
    cluster: str,
    pods: dict[str, str],
    pods_until: float,
    mib_per_second: int,
    keep: int,
    keep_days: float,
    verify: bool,
    result: Path | None,
) -> None:
    """Make a backup, verify it and drop old ones: what the operator's Jobs do.

    No Kubernetes API is asked. MUSTER_TLS_DIR is as for `create`. Prints one JSON object. Exit code 1: no backup was
    made. 3: it was, and verifying it or dropping old ones has shown trouble, which the object names.
    """
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.run import Wanted, failed, given_pods
    from muster_cli.backup.run import run as make
    from muster_operator.api.backup_result import MADE_BUT

    wanted = Wanted(mib_per_second * MIB, keep, keep_days, verify)
    try:
        with amounts() as progress:
            done = make(given_pods(cluster, pods, pods_until), open_store(address), wanted, progress)
    except CliError as error:
        _leave(failed(error), result)
        raise
    _leave(done, result)
    if done.problems or done.error:
        raise SystemExit(MADE_BUT)


def _leave(result: BackupResult, file: Path | None) -> None:
    text = json_text(result)
    if file is not None:
        file.write_text(text)
    click.echo(text)


@backup.command(name="list")
@STORE
@JSON
def list_backups(address: str, as_json: bool) -> None:
    """Show the backups of a store, oldest first. Exit code 1 if a manifest cannot be read."""
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.catalog import read_catalog

    catalog = read_catalog(open_store(address))
    if as_json:
        print_json({"backups": [row(each) for each in catalog.backups], "unreadable": catalog.unreadable})
    else:
        for each in catalog.backups:
            click.echo(
                f"{each.id}  {moment(each)}  {len(each.partitions):>5} partitions  {each.size:>15,} bytes"
                f"  cluster {each.cluster_id}"
            )
        if not catalog.backups:
            click.echo("no backup")
        for name, why in catalog.unreadable.items():
            click.echo(f"{name}: {why}", err=True)
    if catalog.unreadable:
        raise SystemExit(1)


@backup.command()
@STORE
@click.option("--backup", "asked", metavar="ID", help="Only this one; 'latest': the newest.")
@JSON
def verify(address: str, asked: str | None, as_json: bool) -> None:
    """Read every file again and compare checksums. Names what is changed, missing or double; exit code 1 then."""
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.catalog import read_catalog
    from muster_cli.backup.verify import verify as run

    store = open_store(address)
    catalog = read_catalog(store)
    backups = catalog.backups if asked is None else (catalog.find(asked),)
    with amounts() as progress:
        found = run(store, catalog, backups, progress)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        for problem in found.problems:
            click.echo(str(problem))
        told = f", {found.unnamed} segments of no backup" if found.unnamed else ""
        click.echo(f"{found.backups} backups, {found.files} segments, {found.size:,} bytes read{told}")
        click.echo("all of it is as it was written" if not found.problems else f"{len(found.problems)} problems")
    if found.problems:
        raise SystemExit(1)


@backup.command()
@STORE
@click.option("--keep", type=click.IntRange(1), default=7, help="How many of the newest backups stay.")
@click.option("--keep-days", type=click.FloatRange(0), default=0.0, help="Backups that are younger stay as well.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@JSON
def prune(address: str, keep: int, keep_days: float, dry_run: bool, as_json: bool) -> None:
    """Drop old backups. Segments that no backup names go a day after that, at the next run."""
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.catalog import read_catalog
    from muster_cli.backup.prune import prune as run

    store = open_store(address)
    now_ms = time.time_ns() // 1_000_000
    done = run(store, read_catalog(store), keep, keep_days, now_ms, dry_run=dry_run)
    if as_json:
        print_json(msgspec.to_builtins(done))
        return
    would = "would be " if dry_run else ""
    click.echo(
        f"{len(done.dropped)} backups {would}dropped, {len(done.kept)} kept, {done.removed} segments {would}removed"
        f" ({done.freed:,} bytes)"
    )


def row(each: Backup) -> dict[str, Any]:
    return {
        "id": each.id,
        "takenAt": moment(each),
        "clusterId": each.cluster_id,
        "partitions": len(each.partitions),
        "bytes": each.size,
        "version": each.version,
    }


def moment(each: Backup) -> str:
    return datetime.fromtimestamp(each.taken_at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def print_json(value: object) -> None:
    click.echo(json_text(value))
