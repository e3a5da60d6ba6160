"""The `muster` command line. Each command imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Literal

import click

from muster_cli.datadir import DataDir, default_data_dir
from muster_cli.errors import CliError
from muster_cli.pipeline import pipeline
from muster_cli.report_command import report
from muster_cli.reshard import reshard

_CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}


def _data_dir(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> DataDir:
    return DataDir(value if value is not None else default_data_dir())


data_dir_option = click.option(
    "--data-dir",
    "data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_data_dir,
    show_default="$MUSTER_DATA_DIR or ~/.local/share/muster/local",
    help="Where the instance keeps everything; names the instance.",
)


@click.group(context_settings=_CONTEXT)
@click.version_option(version("muster"), prog_name="muster")
def cli() -> None:
    """Kafka's group coordinator as a service of its own.

    Exit codes: 0 done or stopped as asked, 1 it did not work, 2 wrong usage.
    """


@cli.group()
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
@data_dir_option
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
def up(
    pods: int | None,
    partitions: int | None,
    replication_factor: Literal[1, 3, 5] | None,
    base_port: int,
    data: DataDir,
    topics: tuple[str, ...],
    any_topic: bool,
    settings: tuple[str, ...],
) -> None:
    """Run a cluster in the foreground until Ctrl-C.

    Prints `ready bootstrap=HOST:PORT,...` when every partition has a leader. On a data directory that was used before
    it finds groups and offsets again, and the numbers of pods and partitions as well when they are not given.
    """
    from muster_cli.declare import UpOptions
    from muster_cli.local_up import run_local_up
    from muster_cli.options import parse_settings, parse_topics

    options = UpOptions(
        pods=pods,
        partitions=partitions,
        replication_factor=replication_factor,
        base_port=base_port,
        topics=parse_topics(topics),
        any_topic=any_topic,
        settings=parse_settings(settings),
    )
    run_local_up(data, options)


@local.command()
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def status(data: DataDir, as_json: bool) -> None:
    """Show pods and partitions. Exit code 1 when nothing runs there."""
    from muster_cli.local_status import run_local_status

    run_local_status(data, as_json=as_json)


@local.command()
@click.argument("logs", metavar="LOGS...", nargs=-1, required=True)
@click.option("--pods", type=click.IntRange(1, 100), default=1, help="Pods to spread the partitions over.")
@data_dir_option
def adopt(logs: tuple[str, ...], pods: int, data: DataDir) -> None:
    """Make a data directory from logs, to be started with `muster local up`.

    LOGS are directories __consumer_offsets-N from 0 on, or directories of those: what `muster reshard` wrote, or of a
    Kafka broker that was stopped. They are copied. You vouch for them: nothing can tell whether they are complete.
    """
    from muster_cli.adopt import run_adopt

    partitions = run_adopt(data, logs, pods)
    click.echo(f"{partitions} partitions on {pods} pods: muster local up --data-dir {data.root}")


@cli.command()
def demo() -> None:
    """The main job, live: real consumers on a local cluster, their coordinator killed, nothing lost."""
    try:
        from muster_cli.demo.scenario import run_demo
    except ModuleNotFoundError as error:
        raise CliError(f"the demo needs {error.name}, which comes with muster[dev]; `make demo` installs it") from error
    run_demo()


cli.add_command(pipeline)
cli.add_command(report)
cli.add_command(reshard)
pipeline.add_command(reshard)


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="muster")
