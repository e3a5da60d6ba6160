"""The `muster` command line. Each command imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

from importlib.metadata import version

import click

from muster_cli.backup.command import backup
from muster_cli.backup.follow_command import follow, lag
from muster_cli.backup.restore_command import restore
from muster_cli.backup.take_over_command import take_over
from muster_cli.drive.command import allow_data_loss, drain, fence, move, restart
from muster_cli.errors import CliError
from muster_cli.local.command import local
from muster_cli.mirror.command import mirror
from muster_cli.moving.command import move_groups, move_groups_back, moves
from muster_cli.oncall.command import bundle, doctor, explain, groups, status
from muster_cli.oncall.reset_command import reset
from muster_cli.pipeline.command import pipeline
from muster_cli.pipeline.report import report
from muster_cli.reshard.command import reshard
from muster_cli.ui.command import ui

_CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(version("muster"), prog_name="muster")
def cli() -> None:
    """Kafka's group coordinator as a service of its own.

    Exit codes: 0 done or stopped as asked, 1 it did not work, 2 wrong usage. Some commands say more in their help.
    """


@cli.command()
def demo() -> None:
    """The main job, live: real consumers on a local cluster, their coordinator killed, nothing lost."""
    try:
        from muster_cli.demo.scenario import run_demo
    except ModuleNotFoundError as error:
        raise CliError(f"the demo needs {error.name}, which comes with muster[dev]; `make demo` installs it") from error
    run_demo()


cli.add_command(allow_data_loss)
cli.add_command(backup)
cli.add_command(bundle)
cli.add_command(doctor)
cli.add_command(drain)
cli.add_command(explain)
cli.add_command(fence)
cli.add_command(groups)
cli.add_command(local)
cli.add_command(mirror)
cli.add_command(move)
cli.add_command(pipeline)
cli.add_command(report)
cli.add_command(reshard)
cli.add_command(restore)
cli.add_command(restart)
cli.add_command(status)
cli.add_command(ui)
backup.add_command(follow)
backup.add_command(lag)
backup.add_command(take_over)
groups.add_command(move_groups)
groups.add_command(move_groups_back)
groups.add_command(moves)
groups.add_command(reset)
pipeline.add_command(reshard)


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="muster")


def kubectl_main() -> None:
    """Entry point of `kubectl-muster`, which kubectl runs for `kubectl muster`."""
    cli(prog_name="kubectl muster")
