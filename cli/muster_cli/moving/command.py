"""`muster groups move`, `muster groups moves`. They import what they need when they run."""

from __future__ import annotations

import click

from muster_cli.local.command import DATA_DIR
from muster_cli.local.data_dir import DataDir
from muster_cli.oncall.command import JSON


@click.command("move")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@DATA_DIR
@click.option("--dry-run", is_flag=True, help="Say what stands in the way, and move nothing.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    help="Seconds for each group: pods give a move up after a minute or so by themselves.",
)
@JSON
def move_groups(groups: tuple[str, ...], data: DataDir, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Move live classic groups of the mirrored Kafka cluster to an instance of `muster local up`, one after the other.

    Members, generation, assignment and offsets stay, and nobody rebalances. What is in doubt stays at Kafka. Groups
    that are at Muster already are passed over, so the same command goes on where it was interrupted.

    Exit codes: 0 all are at Muster (--dry-run: nothing stands in the way), 1 some are not, 2 wrong usage, 130
    interrupted: a move that was begun goes on.
    """
    from muster_cli.moving.run import run_move

    raise SystemExit(run_move(data, groups, dry_run=dry_run, timeout_s=timeout, as_json=as_json))


@click.command("moves")
@DATA_DIR
@JSON
def moves(data: DataDir, as_json: bool) -> None:
    """Show the groups that have moved to an instance of `muster local up`, and moves of now and lately.

    Offsets of groups that have moved are written to Kafka every few seconds: "not at Kafka yet" is what a cluster
    without Muster would not know.

    Exit code 1 when nothing runs there, or nothing can move.
    """
    from muster_cli.moving.run import run_moves

    run_moves(data, as_json=as_json)
