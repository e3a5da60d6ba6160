"""`muster backup lag` and `muster backup follow`. Each command imports what it needs when it runs."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from muster_cli.backup.command import JSON, MIB, STORE
from muster_cli.errors import CliUsageError
from muster_cli.progress import quiet

if TYPE_CHECKING:
    from muster_cli.backup.follow import Round
    from muster_cli.backup.lag import Lag

DATA_DIR = click.option(
    "--data-dir", metavar="DIR", type=click.Path(path_type=Path), help="The instance of `muster local up` here."
)
CLUSTER = click.option("--cluster", metavar="NAME", help="This CoordinatorCluster in Kubernetes.")
PORT_MAX = 65535
NAMESPACE = click.option("--namespace", default="default", help="Namespace of the CoordinatorCluster.")


def _address(_context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")  # [::1]:9643
    if not colon or not host or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
        raise click.BadParameter(f"{text!r} is not of the form HOST:PORT", param=option)
    return host, int(port)


@click.command()
@STORE
@DATA_DIR
@CLUSTER
@NAMESPACE
@click.option(
    "--max-seconds", type=click.FloatRange(0), show_default="any", help="A cut that is older by more is a failure."
)
@JSON
def lag(
    address: str, data_dir: Path | None, cluster: str | None, namespace: str, max_seconds: float | None, as_json: bool
) -> None:
    """Show how far the newest backup is behind the cluster: what would be lost with the cluster now.

    Exit code 1: the cluster does not answer, it is not what became of that backup, or the lag is over --max-seconds.
    """
    one_of(data_dir, cluster)
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.catalog import read_catalog
    from muster_cli.backup.lag import measure_lag
    from muster_cli.backup.site import open_pods

    newest = read_catalog(open_store(address)).find("latest")
    found = asyncio.run(measure_lag(open_pods(data_dir, namespace, cluster or ""), newest))
    click.echo(msgspec.json.encode(found) if as_json else _lag_text(found))
    if found.records is None or (max_seconds is not None and found.seconds > max_seconds):
        raise SystemExit(1)


@click.command()
@STORE
@DATA_DIR
@CLUSTER
@NAMESPACE
@click.option("--every", "every_s", type=click.IntRange(10), default=300, help="Seconds from one backup to the next.")
@click.option("--keep", type=click.IntRange(1), default=7, help="How many of the newest backups stay.")
@click.option("--mib-per-second", type=click.IntRange(1), default=32, help="Read from pods at most.")
@click.option("--metrics-listen", metavar="HOST:PORT", callback=_address, help="Serve metrics for Prometheus here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of text.")
def follow(
    address: str,
    data_dir: Path | None,
    cluster: str | None,
    namespace: str,
    every_s: int,
    keep: int,
    mib_per_second: int,
    metrics_listen: tuple[str, int] | None,
    as_json: bool,
) -> None:
    """Keep a store at a second site close behind a running cluster, until interrupted.

    Makes one backup after the other and drops all but the newest: give it a store of its own. A cluster that does not
    answer is asked again at the next turn. Exit code 0: interrupted. 1: the cluster is not what became of the newest
    backup, such as an old site that is back after another has gone on from its backup.
    """
    one_of(data_dir, cluster)
    from muster_cli.backup.addresses import open_store
    from muster_cli.backup.follow import Follower
    from muster_cli.backup.follow_metrics import FollowMetrics
    from muster_cli.backup.site import open_pods

    def tell(done: Round) -> None:
        if as_json:
            click.echo(msgspec.json.encode(done))
        else:
            click.echo(_round_text(done), err=bool(done.trouble))

    pods = partial(open_pods, data_dir, namespace, cluster or "")
    metrics = FollowMetrics(str(data_dir) if data_dir is not None else f"{namespace}/{cluster}", every_s)
    if metrics_listen is not None:
        metrics.serve(*metrics_listen)
    follower = Follower(pods, open_store(address), mib_per_second * MIB, keep, quiet, metrics)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        follower.follow(every_s, tell)
    except KeyboardInterrupt:
        click.echo("stopped; a backup that was not done does not count", err=True)


def one_of(data_dir: Path | None, cluster: str | None) -> None:
    """Raises CliUsageError."""
    if (data_dir is None) == (cluster is None):
        raise CliUsageError("give one of --data-dir and --cluster")


def _lag_text(found: Lag) -> str:
    cut = datetime.fromtimestamp(found.taken_at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if found.records is None:
        return (
            f"{found.backup}: the cluster does not answer ({found.trouble}). The backup has nothing of the"
            f" {found.seconds:.1f} s since {cut}"
        )
    return f"{found.backup} of {cut}: {found.records:,} records and {found.seconds:.1f} s behind"


def _round_text(done: Round) -> str:
    if done.lag is not None and done.lag.records is None:
        return _lag_text(done.lag)
    before = "" if done.lag is None else f", {done.lag.records:,} records and {done.lag.seconds:.1f} s after the last"
    made = f"{done.backup}: {done.sent:,} new bytes, {done.seconds:.1f} s{before}" if done.backup else "no backup"
    return f"{made}; {done.trouble}" if done.trouble else made
