"""`muster groups reset`. It imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from muster_cli.oncall.command import JSON, kafka_options
from muster_cli.oncall.options import Where, where_options

_WHERE_TO = (
    click.option("--to-earliest", is_flag=True, help="To the first record that is there."),
    click.option("--to-latest", is_flag=True, help="Behind the last record."),
    click.option("--to-current", is_flag=True, help="To what is committed, for --export; the end where nothing is."),
    click.option("--to-offset", metavar="N", type=int, help="To that offset."),
    click.option(
        "--shift-by",
        metavar="N",
        type=int,
        help="By so many records, back if negative.",
    ),
    click.option(
        "--to-datetime",
        metavar="TIME",
        default="",
        show_default=False,
        help="To the first record of that time (ISO 8601, UTC).",
    ),
    click.option(
        "--by-duration", metavar="DURATION", default="", show_default=False, help="Likewise, so long ago: PT1H30M, P7D."
    ),
    click.option(
        "--from-file",
        metavar="CSV",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Lines topic,partition,offset; with several groups group,topic,partition,offset.",
    ),
    click.option(
        "--topic",
        "topics",
        metavar="TOPIC[:P,P]",
        multiple=True,
        help="All partitions of a topic, or some; can be repeated.",
    ),
    click.option("--all-topics", is_flag=True, help="All partitions that the group has an offset for."),
)


def _with_words(command: Any) -> Any:
    for option in reversed(_WHERE_TO):
        command = option(command)
    return command


@click.command("reset")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@_with_words
@click.option(
    "--park-members",
    is_flag=True,
    help="With --execute: put members out, and let them join again at the new offsets. With --local or --data-dir.",
)
@click.option("--dry-run", is_flag=True, help="Show where groups would be, and write nothing: the default.")
@click.option("--execute", is_flag=True, help="Write it.")
@click.option("--export", is_flag=True, help="Print lines for --from-file, here and of Kafka's tool.")
@click.option(
    "--data-from",
    metavar="HOST:PORT,...",
    default="",
    show_default=False,
    help="The Kafka cluster that has the records.",
)
@click.option(
    "--cluster", metavar="NAME", default="", show_default=False, help="The CoordinatorCluster, if there are several."
)
@where_options
@kafka_options
@JSON
def reset(
    groups: tuple[str, ...],
    dry_run: bool,
    execute: bool,
    export: bool,
    as_json: bool,
    cluster: str,
    bootstrap_server: str,
    listener: str,
    client_config: Path | None,
    **options: Any,
) -> None:
    """Set the offsets of groups without members, in the words of kafka-consumer-groups --reset-offsets.

    Pods of Muster have no records, so that they cannot say where a partition begins and ends: --data-from names the
    Kafka cluster that can, with the same --client-config. A gateway and Kafka itself can (--bootstrap-server). What
    is not in the log becomes its start or end. Members stay where an assignor may let them keep their positions: see
    the operator's page, Resets of a group. `muster groups undo` takes back what went wrong, from backups.

    Exit codes: 0 done, 1 a group has members or was refused, 2 wrong usage or not to be reached.
    """
    from muster_cli.errors import CliUsageError
    from muster_cli.oncall.asking import Brokers
    from muster_cli.oncall.resetting import Words, run_reset

    if dry_run and execute:
        raise CliUsageError("give one of --dry-run and --execute")
    if export and as_json:
        raise CliUsageError("give one of --export and --json")
    if options["park_members"] and not execute:
        raise CliUsageError("--park-members needs --execute: a dry run shows groups without members")
    where = Where.of(options)
    if options["park_members"] and where.embedded is None:
        raise CliUsageError(
            "--park-members needs --local or --data-dir; on Kubernetes declare spec.reset with members: Park in the"
            " ConsumerGroup"
        )
    brokers = Brokers(where, cluster, bootstrap_server, listener, client_config)
    words = Words(**options)
    raise SystemExit(run_reset(brokers, groups, words, execute=execute, export=export, as_json=as_json))
