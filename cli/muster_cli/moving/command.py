"""`muster groups move`, `back` and `moves`. They import what they need when they run."""

from __future__ import annotations

from typing import Any

import click

from muster_cli.oncall.command import JSON
from muster_cli.oncall.options import Where, where_options

CLUSTER = click.option("--cluster", metavar="NAME", default="", show_default=False, help="If there are several.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what stands in the way, and move nothing.")
TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    help="Seconds for each group: pods give a move up after a minute or so by themselves.",
)


@click.command("move")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@CLUSTER
@where_options
@DRY_RUN
@TIMEOUT
@JSON
def move_groups(
    groups: tuple[str, ...], cluster: str, dry_run: bool, timeout: float, as_json: bool, **options: Any
) -> None:
    """Move live groups of the mirrored Kafka cluster to Muster.

    On Kubernetes each gets a ConsumerGroup with `coordinator: Muster`, or its own is changed, and the operator moves
    it; --dry-run asks no pod there, only whether the cluster names the group as movable. With --local the pods of
    `muster local up` move them, one after the other.

    Members, generation, assignment and offsets stay, and nobody rebalances. What is in doubt stays at Kafka. Groups
    that are at Muster already are passed over, so the same command goes on where it was interrupted.

    Exit codes: 0 all are at Muster (--dry-run: nothing stands in the way), 1 some are not, 2 wrong usage or not to be
    reached, 130 interrupted: a move that was begun goes on, and what is declared stays.
    """
    where = Where.of(options)
    if where.embedded is None:
        from muster_cli.moving.on_kubernetes import run_declared_move

        raise SystemExit(run_declared_move(where, cluster, groups, "Muster", timeout, dry_run=dry_run, as_json=as_json))
    from muster_cli.moving.run import run_move

    raise SystemExit(run_move(where.embedded, groups, back=False, dry_run=dry_run, timeout_s=timeout, as_json=as_json))


@click.command("back")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@CLUSTER
@where_options
@DRY_RUN
@TIMEOUT
@JSON
def move_groups_back(
    groups: tuple[str, ...], cluster: str, dry_run: bool, timeout: float, as_json: bool, **options: Any
) -> None:
    """Move live groups back from Muster to Kafka.

    On Kubernetes each gets a ConsumerGroup with `coordinator: Kafka`, or its own is changed, and the operator has it
    moved. With --local the pods of `muster local up` move them, one after the other.

    Kafka gets all their offsets before it serves them. Members join again there: one rebalance. What is in doubt stays
    at Muster. Groups that are at Kafka already are passed over, so the same command goes on where it was interrupted.

    Exit codes: 0 all are at Kafka (--dry-run: nothing stands in the way), 1 some are not, 2 wrong usage or not to be
    reached, 130 interrupted: a move that was begun goes on, and what is declared stays.
    """
    where = Where.of(options)
    if where.embedded is None:
        from muster_cli.moving.on_kubernetes import run_declared_move

        raise SystemExit(run_declared_move(where, cluster, groups, "Kafka", timeout, dry_run=dry_run, as_json=as_json))
    from muster_cli.moving.run import run_move

    raise SystemExit(run_move(where.embedded, groups, back=True, dry_run=dry_run, timeout_s=timeout, as_json=as_json))


@click.command("moves")
@CLUSTER
@where_options
@JSON
def moves(cluster: str, as_json: bool, **options: Any) -> None:
    """Show where groups are, and what becomes of their moves: ConsumerGroups of a cluster on Kubernetes.

    With --local the groups that have moved to an instance of `muster local up`, and moves of now and lately. Offsets of
    groups that have moved are written to Kafka every few seconds: "not at Kafka yet" is what a cluster without Muster
    would not know.

    Exit code 1 when nothing runs there, or nothing can move; 2 when it is not to be reached.
    """
    where = Where.of(options)
    if where.embedded is None:
        from muster_cli.moving.on_kubernetes import run_declared_moves

        run_declared_moves(where, cluster, as_json=as_json)
        return
    from muster_cli.moving.run import run_moves

    run_moves(where.embedded, as_json=as_json)
