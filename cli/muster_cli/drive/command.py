"""The commands of a person who acts. Each imports what it needs when it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster_cli.errors import CliUsageError
from muster_cli.oncall.command import JSON
from muster_cli.oncall.options import Where, where_options

if TYPE_CHECKING:
    from muster_cli.drive.deed import Deed
    from muster_cli.oncall.seen import Seen

_F = TypeVar("_F", bound=Callable[..., Any])

EXIT_CODES = """

    Exit codes: 0 done, 1 refused or not done in time, 2 wrong usage or not to be reached, 130 interrupted (it stays
    declared, and the operator goes on).
    """


def _how_options(command: _F) -> _F:
    """Adds what all commands that change something have in common."""
    for option in (
        JSON,
        click.option(
            "--timeout",
            type=click.FloatRange(0, 86_400),
            default=300.0,
            help="Seconds until it is not followed any more; 0: only declare it.",
        ),
        click.option(
            "--cluster", metavar="NAME", default="", show_default=False, help="The cluster, if there are several."
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be changed; the API server checks it."),
    ):
        command = option(command)
    command.__doc__ = f"{(command.__doc__ or '').rstrip()}{EXIT_CODES}"
    return where_options(command)


def _run(make: Callable[[Seen, float], Deed], options: dict[str, Any], *, yes: bool = False) -> None:
    from muster_cli.drive.carry_out import How, carry_out

    how = How(options.pop("dry_run"), options.pop("timeout"), options.pop("as_json"), yes)
    cluster: str = options.pop("cluster")
    raise SystemExit(asyncio.run(carry_out(Where.of(options), cluster, make, how)))


@click.command()
@click.argument("partition")
@click.argument("pod", metavar="[POD]", default="")
@click.option("--undo", is_flag=True, help="Take the preferred leader back, in place of POD.")
@_how_options
def move(partition: str, pod: str, undo: bool, **options: Any) -> None:
    """Have POD lead a partition: it is made the preferred leader, and the operator moves the partition.

    PARTITION is the name of an OffsetsPartition, or a number as clients know it (t3: of transactions). POD has a
    replica of it, and is ready. Clients see a pause of milliseconds.
    """
    from muster_cli.drive.move import move as moved
    from muster_cli.drive.move import undo_move

    if undo == bool(pod):
        raise CliUsageError("give one of POD and --undo")
    make = partial(undo_move, asked=partition) if undo else partial(moved, asked=partition, pod=pod)
    _run(make, options)


@click.command()
@click.argument("pod")
@click.option("--undo", is_flag=True, help="Let the pod lead again.")
@_how_options
def drain(pod: str, undo: bool, **options: Any) -> None:
    """Take all leaders off a pod, and keep them off until --undo.

    Its replicas go on to follow. It leads again only if no other pod can. Refused if a partition has no other replica
    that could lead it.
    """
    from muster_cli.drive.maintenance import take_back, take_out

    _run(partial(take_back if undo else take_out, pod=pod, asked="Drained"), options)


@click.command()
@click.argument("pod")
@click.option("--undo", is_flag=True, help="Let the pod serve again.")
@_how_options
def fence(pod: str, undo: bool, **options: Any) -> None:
    """Have a pod lead nothing in any case, and have clients not told of it, until --undo. Its volume stays.

    Its replicas go on to follow and count. Refused if a partition has no other replica that could lead it.
    """
    from muster_cli.drive.maintenance import take_back, take_out

    _run(partial(take_back if undo else take_out, pod=pod, asked="Fenced"), options)


@click.command()
@click.argument("pod", metavar="[POD]", default="")
@click.option("--all", "-a", "every", is_flag=True, help="All pods of the cluster.")
@click.option("--undo", is_flag=True, help="Replace no further pod.")
@_how_options
def restart(pod: str, every: bool, undo: bool, **options: Any) -> None:
    """Replace a pod, or all, one at a time: leaders first moved, the next one when all replicas follow again.

    The operator does it as in a rollout: it waits for spec.rollout.window, and for other clusters' rollouts.
    """
    from muster_cli.drive.restart import restart as restarted
    from muster_cli.drive.restart import undo_restart

    if every + undo + bool(pod) != 1:
        raise CliUsageError("give one of POD, --all and --undo")
    _run(undo_restart if undo else partial(restarted, pod=pod), options)


@click.command("allow-data-loss")
@click.argument("partition")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_how_options
def allow_data_loss(partition: str, yes: bool, **options: Any) -> None:
    """Lead a partition that has lost most of its logs for good from the best one that is left.

    It says what is left and what is lost, and asks. It is refused while the operator has not found that nothing else
    helps, and as long as pods may come back. The permission covers this loss only.
    """
    from muster_cli.drive.data_loss import allow_data_loss as allowed

    _run(partial(allowed, asked=partition), options, yes=yes)
