"""The commands of a person on call. Each imports what it needs when it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster_cli.oncall.options import Where, where_options

if TYPE_CHECKING:
    from muster_cli.oncall.explain import Kind

_F = TypeVar("_F", bound=Callable[..., Any])

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")


@click.command()
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@click.option("--watch", "-w", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, help="With --watch: seconds between two looks."
)
@JSON
def status(cluster: str, watch: bool, interval: float, as_json: bool, **options: Any) -> None:
    """Show clusters on one screen: what needs a person, what is under way, pods, leaders with epochs, failovers.

    Exit codes: 0 healthy, 1 something needs a person, 2 wrong usage or not to be reached.
    """
    from muster_cli.oncall.looking import run_status

    where = Where.of(options)
    raise SystemExit(asyncio.run(run_status(where, cluster, interval if watch else None, as_json=as_json)))


@click.command()
@click.argument("asked", metavar="PARTITION|GROUP")
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@click.option("--group", "kind", flag_value="group", help="It is a group, even if a partition has that name or number.")
@click.option("--transactional-id", "kind", flag_value="transactional-id", help="It is a transactional id.")
@JSON
def explain(asked: str, cluster: str, kind: Kind | None, as_json: bool, **options: Any) -> None:
    """Say where a partition or a group lives, why it is as it is, and what happens next.

    PARTITION is the name of an OffsetsPartition, a number as clients know it (t3: of transactions), or Kafka's name.
    Everything else is a group. Exit codes: 0 nobody has to act, 1 it needs a person, 2 not found or not to be reached.
    """
    from muster_cli.oncall.looking import run_explain

    where = Where.of(options)
    raise SystemExit(asyncio.run(run_explain(where, cluster, asked, kind or "auto", as_json=as_json)))


@click.command()
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@click.option("--all", "-a", "show_all", is_flag=True, help="Show what is in order as well.")
@JSON
def doctor(cluster: str, show_all: bool, as_json: bool, **options: Any) -> None:
    """Say what stands between a cluster on Kubernetes and production, each with a reason and a fix.

    Exit codes: 0 nothing that must be mended (there may be advice), 1 something must, 2 wrong usage or not to be
    reached.
    """
    from muster_cli.oncall.looking import run_doctor

    where = Where.of(options)
    raise SystemExit(asyncio.run(run_doctor(where, cluster, show_all=show_all, as_json=as_json)))


@click.command()
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="muster-bundle-TIME.tar.gz",
    help="The archive to write.",
)
@click.option(
    "--log-lines", type=click.IntRange(0, 1_000_000), default=5_000, help="Lines of each container's log, at most."
)
def bundle(cluster: str, output: Path | None, log_lines: int, **options: Any) -> None:
    """Write what somebody needs who helps from afar: objects, conditions, Events, logs, metrics, versions.

    Secrets are never read, and passwords, tokens and keys are taken out of everything else; look through it all the
    same before you send it. Exit codes: 0 written, 1 the file cannot be written, 2 wrong usage or not to be reached.
    """
    from muster_cli.oncall.looking import run_bundle

    where = Where.of(options)
    file = output or Path(time.strftime("muster-bundle-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    asyncio.run(run_bundle(where, cluster, file, log_lines))


def kafka_options(command: _F) -> _F:
    """Adds what says how the brokers are reached."""
    for option in (
        click.option(
            "--client-config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Lines NAME=VALUE for librdkafka, such as security.protocol and sasl.username.",
        ),
        click.option("--listener", metavar="NAME", default="", help="Ask at this listener of the cluster."),
        click.option("--bootstrap-server", metavar="HOST:PORT,...", default="", help="Ask there, and look nowhere."),
    ):
        command = option(command)
    return command


@click.group()
def groups() -> None:
    """Groups by Kafka's protocol, of a cluster that is reached from here. Needs the extra `pipeline`.

    Exit codes: 0 done, 1 refused or no such group, 2 wrong usage or not to be reached.
    """


@groups.command("list")
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@kafka_options
@JSON
def list_groups(
    cluster: str, bootstrap_server: str, listener: str, client_config: Path | None, as_json: bool, **options: Any
) -> None:
    """List the groups with their states."""
    from muster_cli.oncall.asking import Brokers, run_list

    brokers = Brokers(Where.of(options), cluster, bootstrap_server, listener, client_config)
    run_list(brokers, as_json=as_json)


@groups.command()
@click.argument("group")
@click.argument("cluster", metavar="[CLUSTER]", default="")
@where_options
@kafka_options
@click.option("--lag-from", metavar="HOST:PORT,...", default="", help="The Kafka cluster that has the data, for lag.")
@JSON
def describe(
    group: str,
    cluster: str,
    bootstrap_server: str,
    listener: str,
    client_config: Path | None,
    lag_from: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Show members, what they have, committed offsets, and lag.

    A coordinator has no data, so lag needs the cluster that has it: --lag-from, with the same --client-config.
    """
    from muster_cli.oncall.asking import Brokers, run_describe

    brokers = Brokers(Where.of(options), cluster, bootstrap_server, listener, client_config)
    run_describe(brokers, group, lag_from, as_json=as_json)


def _moment_options(command: _F) -> _F:
    """Adds what says of which moment, and in which store of backups."""
    for option in (
        click.option("--at", metavar="TIME", default="", help="At that time, in UTC or with an offset (ISO 8601)."),
        click.option("--backup", metavar="ID", default="", help="At the cut of that backup; 'latest': the newest."),
        click.option(
            "--store",
            metavar="STORE",
            required=True,
            envvar="MUSTER_BACKUP_STORE",
            show_envvar=True,
            help="Where backups are kept, as for `muster backup`.",
        ),
    ):
        command = option(command)
    return command


@groups.command()
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@_moment_options
@click.option("--csv", "as_csv", is_flag=True, help="Lines for `kafka-consumer-groups --reset-offsets --from-file`.")
@click.option("--as-reset", metavar="ID", default="", help="spec.reset of a ConsumerGroup, with that id: one group.")
@JSON
def offsets(
    groups: tuple[str, ...], store: str, backup: str, at: str, as_csv: bool, as_reset: str, as_json: bool
) -> None:
    """Show what groups had committed at a moment, from backups. No cluster is asked.

    Without --backup and --at: at the newest backup. A time needs a backup that was made after it.
    """
    from muster_cli.errors import CliUsageError
    from muster_cli.oncall.undoing import Asked, run_as_reset, run_offsets

    asked = Asked(store, backup, at, groups)
    if not as_reset:
        run_offsets(asked, as_csv=as_csv, as_json=as_json)
        return
    if len(groups) != 1 or as_csv or as_json:
        raise CliUsageError("--as-reset needs one group, and neither --csv nor --json")
    run_as_reset(asked, as_reset)


@groups.command()
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All groups that had offsets at that moment.")
@_moment_options
@click.option("--cluster", metavar="NAME", default="", help="The CoordinatorCluster, if there are several.")
@where_options
@kafka_options
@click.option("--dry-run", is_flag=True, help="Show then beside now, and write nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@JSON
def undo(
    groups: tuple[str, ...],
    every: bool,
    store: str,
    backup: str,
    at: str,
    cluster: str,
    bootstrap_server: str,
    listener: str,
    client_config: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Give groups of a running cluster the offsets that they had at a moment: the way back from a wrong reset.

    Shows what was committed then beside what is now, and asks. A group with members is left as it is: stop them first.
    Partitions that had no offset then keep theirs. Exit code 1 if a group was left or refused.
    """
    from muster_cli.errors import CliUsageError
    from muster_cli.oncall.asking import Brokers
    from muster_cli.oncall.undoing import Asked, run_undo

    if bool(groups) == every:
        raise CliUsageError("name groups, or give --all")
    brokers = Brokers(Where.of(options), cluster, bootstrap_server, listener, client_config)
    asked = Asked(store, backup, at, groups)
    raise SystemExit(run_undo(brokers, asked, yes=yes, dry_run=dry_run, as_json=as_json))
