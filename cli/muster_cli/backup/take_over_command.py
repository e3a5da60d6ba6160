"""`muster backup take-over`. Imports what it needs when it runs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from muster_cli.backup.command import JSON, MIB, STORE
from muster_cli.backup.follow_command import CLUSTER, DATA_DIR, NAMESPACE, one_of
from muster_cli.errors import CliError, CliUsageError
from muster_cli.progress import Amount, amounts

if TYPE_CHECKING:
    from muster_cli.backup.manifest import Backup
    from muster_cli.backup.site import PodsOfCluster
    from muster_cli.backup.store import Store
    from muster_cli.backup.take_over import Done, Look, Point
    from muster_coordinator.podapi.models import SiteStatus


@click.command(name="take-over")
@STORE
@click.option("--site", required=True, help="The site that shall answer clients. Another name at each take-over.")
@DATA_DIR
@CLUSTER
@NAMESPACE
@click.option("--restore-to", metavar="DIR", type=click.Path(path_type=Path), help="Make this data directory, too.")
@click.option("--pods", type=click.IntRange(1, 100), show_default="as there were", help="With --restore-to.")
@click.option(
    "--lease-seconds",
    type=click.IntRange(2, 600),
    default=30,
    help="How long pods of the site answer clients while they cannot read the store. The next take-over waits for it.",
)
@click.option("--mib-per-second", type=click.IntRange(1), default=32, help="Read from pods at most.")
@click.option("--yes", is_flag=True, help="Do not ask whether commits may be lost.")
@JSON
def take_over(
    address: str,
    site: str,
    data_dir: Path | None,
    cluster: str | None,
    namespace: str,
    restore_to: Path | None,
    pods: int | None,
    lease_seconds: int,
    mib_per_second: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Let another site answer clients in place of the old one, which --data-dir or --cluster names.

    The old site is fenced, its leases end, a last backup is made of it, and the new site may answer: nothing is lost.
    If the old site does not answer, the newest backup has to do, and the command asks first. Pods of a site have the
    setting muster.site=NAME@STORE. In a store without claims, --site is the site that answers clients now, and nobody
    is fenced.

    Exit code 1: nobody has taken over. After an interruption run it again, or give the old site its right back with
    its own name as --site.
    """
    one_of(data_dir, cluster)
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.site import open_pods
    from muster_cli.backup.take_over import TakeOver
    from muster_coordinator.sites.address import check_site_name, open_claims
    from muster_coordinator.sites.claims import ClaimError

    try:
        check_site_name(site)
        claims = open_claims(address)
    except ValueError as error:
        raise CliUsageError(f"--site: {error}") from None
    except ClaimError as error:
        raise CliError(str(error)) from None
    if restore_to is None and pods is not None:
        raise CliUsageError("--pods goes with --restore-to")
    store = open_store(address)
    with amounts() as progress:
        old = _Cluster(partial(open_pods, data_dir, namespace, cluster or ""), store, mib_per_second * MIB, progress)
        backups = _Backups(store, restore_to, pods, progress)
        done = TakeOver(
            claims,
            old,
            backups,
            lease_ms=lease_seconds * 1000,
            now_ms=lambda: time.time_ns() // 1_000_000,
            sleep=_sleep,
            agree=lambda since_ms, trouble: yes or _agree(since_ms, trouble),
            tell=lambda text: click.echo(text, err=True),
        ).run(site)
    click.echo(msgspec.json.encode(done) if as_json else _text(done, restore_to))


class _Cluster:
    """Implements `take_over.OldSite`."""

    def __init__(
        self,
        pods: Callable[[], AbstractAsyncContextManager[PodsOfCluster]],
        store: Store,
        rate: int,
        progress: Amount,
    ) -> None:
        self._pods = pods
        self._store = store
        self._rate = rate
        self._progress = progress

    def look(self) -> Look:
        from muster_cli.backup.continuity import check_goes_on
        from muster_cli.backup.cut import OtherHistoryError, read_ends, read_sites
        from muster_cli.backup.take_over import Look
        from muster_coordinator.podapi.client import new_session

        async def ask() -> Look:
            async with self._pods() as pods, new_session() as http:
                sites, silent = await read_sites(pods, http)
                try:
                    ends = await read_ends(pods, http)
                except OtherHistoryError:
                    raise
                except CliError as error:
                    return Look(sites, silent, error.message)
            newest = self._newest()
            if newest is not None:
                check_goes_on(newest, ends)
            return Look(sites, silent)

        try:
            return asyncio.run(ask())
        except OtherHistoryError:
            raise
        except CliError as error:
            return Look({}, trouble=error.message)

    def sites(self) -> Mapping[str, SiteStatus | None]:
        from muster_cli.backup.cut import read_sites
        from muster_coordinator.podapi.client import new_session

        async def ask() -> Mapping[str, SiteStatus | None]:
            async with self._pods() as pods, new_session() as http:
                return (await read_sites(pods, http))[0]

        try:
            return asyncio.run(ask())
        except CliError:
            return {}  # the backup that follows says why

    def back_up(self) -> Point:
        from muster_cli.backup.create import create_backup
        from muster_cli.backup.take_over import Point

        newest = self._newest()
        made = asyncio.run(
            create_backup(self._pods(), self._store, self._rate, self._progress, goes_on_from=newest)
        ).backup
        return Point(made.id, made.taken_at_ms)

    def _newest(self) -> Backup | None:
        from muster_cli.backup.catalog import read_catalog

        return read_catalog(self._store).newest()


class _Backups:
    """Implements `take_over.Backups`."""

    def __init__(self, store: Store, target: Path | None, pods: int | None, progress: Amount) -> None:
        self._store = store
        self._target = target
        self._pods = pods
        self._progress = progress

    def newest(self) -> Point | None:
        from muster_cli.backup.catalog import read_catalog
        from muster_cli.backup.take_over import Point

        found = read_catalog(self._store).newest()
        return Point(found.id, found.taken_at_ms) if found is not None else None

    def use(self, point: Point) -> None:
        from muster_cli.backup.catalog import read_catalog
        from muster_cli.backup.restore import run_restore
        from muster_cli.backup.verify import verify
        from muster_cli.local.data_dir import DataDir

        catalog = read_catalog(self._store)
        found = catalog.find(point.backup)
        if self._target is not None:
            pods, now_ms = self._pods or found.pods, time.time_ns() // 1_000_000
            run_restore(self._store, catalog, found, DataDir(self._target), pods, now_ms, self._progress)
            return
        problems = [each for each in verify(self._store, catalog, [found], self._progress).problems if each.backups]
        if problems:
            raise CliError(f"{found.id} is not as it was written: {problems[0]}")


def _sleep(seconds: float) -> None:
    """Longer, if the machine sleeps meanwhile or a signal comes, but never shorter."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(left)


def _agree(since_ms: int, trouble: str) -> bool:
    told = (
        f"the old site does not answer: {trouble}\nWhat it has acknowledged since {_moment(since_ms)}, and until its"
        " leases end, is lost."
    )
    if not sys.stdin.isatty():
        raise CliError(f"{told} Give --yes to accept that")
    click.echo(told, err=True)
    return click.confirm("take over?", err=True)


def _text(done: Done, target: Path | None) -> str:
    if not done.came_from:
        return f"site {done.site} answers clients (claim {done.term})"
    lost = "nothing is lost"
    if done.may_lack_since_ms is not None:
        lost = f"what site {done.came_from} acknowledged after {_moment(done.may_lack_since_ms)} is lost"
    next_step = (
        f"muster local up --data-dir {target} --config muster.site={done.site}@STORE"
        if target is not None
        else f"restore {done.backup} with muster.site={done.site}@STORE (spec.restoreFrom or muster restore)"
    )
    return f"site {done.site} takes over with {done.backup} (claim {done.term}): {lost}\n{next_step}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
