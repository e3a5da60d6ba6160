"""`muster local up`, `status` and `adopt`. Each command imports what it needs when it runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from muster_cli.errors import CliUsageError
from muster_cli.local.data_dir import DataDir, default_data_dir

if TYPE_CHECKING:
    from muster_cli.local.front import FrontOptions


def _data_dir(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> DataDir:
    return DataDir(value if value is not None else default_data_dir())


DATA_DIR = click.option(
    "--data-dir",
    "data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_data_dir,
    show_default="$MUSTER_DATA_DIR or ~/.local/share/muster/local",
    help="Where the instance keeps everything; names the instance.",
)


@click.group()
def local() -> None:
    """Embedded mode: pods as processes of this machine, no Kubernetes."""


@local.command()
@click.option(
    "--pods", type=click.IntRange(1, 100), show_default="3, or as many as there were", help="Coordinator pods."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    show_default="50, or as many as there are",
    help="Partitions of the offsets topic.",
)
@click.option(
    "--transaction-partitions",
    type=click.IntRange(0, 1000),
    show_default="5, or as many as there are, also none",
    help="Partitions of the transaction topic; 0: no transactions.",
)
@click.option(
    "--replication-factor",
    type=click.Choice([1, 3, 5]),
    show_default="3 (1 with fewer than 3 pods), or as it was",
    help="Replicas of each offsets partition, each on another pod.",
)
@click.option(
    "--base-port",
    type=click.IntRange(0, 65_535),
    default=9092,
    help="Kafka port of the first pod; the others follow. 0: free ports.",
)
@DATA_DIR
@click.option(
    "--topic", "topics", metavar="NAME:PARTITIONS", multiple=True, help="A topic that groups may consume. Repeatable."
)
@click.option("--any-topic", is_flag=True, help="Accept every topic name.")
@click.option(
    "--config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A coordinator setting under Kafka's name, for instance offsets.retention.minutes=60. Repeatable.",
)
@click.option("--tls", is_flag=True, help="Mutual TLS for the pod API and between pods, with a CA of this instance.")
@click.option(
    "--sasl",
    "users_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="Clients log in by SCRAM as a user of this file (`muster local user` writes it).",
)
@click.option(
    "--upstream",
    metavar="HOST:PORT,...",
    help="Brokers of a Kafka cluster: a gateway serves it to clients, with groups at Muster; pods mirror its groups. "
    "Accepts every topic name.",
)
@click.option(
    "--muster-groups",
    metavar="PREFIX,...",
    help="With --upstream: groups that Muster serves, '' for none; default: all.",
)
@click.option(
    "--gateway-port",
    type=click.IntRange(0, 65_535),
    default=29_092,
    help="With --upstream: port for clients; brokers and pods follow from it on. 0: a free one.",
)
def up(
    pods: int | None,
    partitions: int | None,
    transaction_partitions: int | None,
    replication_factor: Literal[1, 3, 5] | None,
    base_port: int,
    data: DataDir,
    topics: tuple[str, ...],
    any_topic: bool,
    settings: tuple[str, ...],
    tls: bool,
    users_file: Path | None,
    upstream: str | None,
    muster_groups: str | None,
    gateway_port: int,
) -> None:
    """Run a cluster in the foreground until Ctrl-C.

    Prints `ready bootstrap=HOST:PORT,...` when every partition has a leader. On a data directory that was used before
    it finds groups and offsets again, and the numbers of pods and partitions as well when they are not given.
    """
    from muster_cli.local.declare import UpOptions
    from muster_cli.local.options import mirror_settings, parse_settings, parse_topics, sasl_settings
    from muster_cli.local.up import run_local_up

    parsed = parse_settings([*sasl_settings(users_file), *mirror_settings(upstream, muster_groups), *settings])
    options = UpOptions(
        pods=pods,
        partitions=partitions,
        transaction_partitions=transaction_partitions,
        replication_factor=replication_factor,
        base_port=base_port,
        topics=parse_topics(topics),
        any_topic=any_topic or upstream is not None,
        settings=parsed,
        tls=tls,
        front=front_of(upstream, muster_groups, parsed, gateway_port),
    )
    run_local_up(data, options)


OUTGOING_SETTINGS = tuple(f"muster.upstream.{kind}." for kind in ("security", "sasl", "ssl", "tls"))
"""Gives the gateway the settings by which the pods that mirror reach the brokers."""


def front_of(upstream: str | None, groups: str | None, pods: Mapping[str, str], port: int) -> FrontOptions | None:
    """`pods`: their settings, with which the gateway must agree, whatever `--config` has made of them."""
    if upstream is None:
        if groups is not None:
            raise CliUsageError("--muster-groups needs --upstream")
        return None
    from muster_cli.local.front import FrontOptions

    mirrored = bool(pods.get("muster.upstream.bootstrap"))
    outgoing = {
        name.removeprefix("muster."): value for name, value in pods.items() if name.startswith(OUTGOING_SETTINGS)
    }
    movable = pods.get("muster.upstream.movable.groups", "")
    return FrontOptions(upstream, pods["muster.upstream.served.groups"], port, mirrored, movable, outgoing)


@local.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("name", metavar="NAME")
@click.option("--remove", is_flag=True, help="Take the user out; its connections are closed.")
def user(file: Path, name: str, remove: bool) -> None:
    """Add a user to FILE, for `--sasl` and muster.users.file, or give it another password.

    Asks for the password, or takes the first line of the standard input. FILE has what SCRAM keeps in its place. Pods
    see the change within two seconds.
    """
    from muster_cli.local.users import remove_user, set_user

    if remove:
        remove_user(file, name)
    else:
        by_hand = sys.stdin.isatty()
        password: str = (
            click.prompt("Password", hide_input=True, confirmation_prompt=True) if by_hand else sys.stdin.readline()
        )
        set_user(file, name, password.rstrip("\n"))
    click.echo(f"{name}: {'removed from' if remove else 'in'} {file}")


@local.command()
@DATA_DIR
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def status(data: DataDir, as_json: bool) -> None:
    """Show pods and partitions. Exit code 1 when nothing runs there."""
    from muster_cli.local.status import run_local_status

    run_local_status(data, as_json=as_json)


@local.command()
@click.argument("logs", metavar="LOGS...", nargs=-1, required=True)
@click.option("--pods", type=click.IntRange(1, 100), default=1, help="Pods to spread the partitions over.")
@DATA_DIR
def adopt(logs: tuple[str, ...], pods: int, data: DataDir) -> None:
    """Make a data directory from logs, to be started with `muster local up`.

    LOGS are directories __consumer_offsets-N from 0 on, or directories of those: what `muster reshard` wrote, or of a
    Kafka broker that was stopped. They are copied. You vouch for them: nothing can tell whether they are complete.
    """
    from muster_cli.local.adopt import run_adopt

    partitions = run_adopt(data, logs, pods)
    click.echo(f"{partitions} partitions on {pods} pods: muster local up --data-dir {data.root}")
