"""The steps of a reconcile, in their order: each carries out its kinds of actions and says in one line what it did.

Leadership comes first: a failover must not queue after the upkeep of pods or the writing of status.
Calls to pods run in the background, so that a pod that hangs delays no other; their end starts the next reconcile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from muster_operator.plan.actions import Action
from muster_operator.steps.backups import make_backups, write_backup_status
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.elect import elect
from muster_operator.steps.groups import look_at_groups, start_moves, write_group_status
from muster_operator.steps.metadata import publish_metadata
from muster_operator.steps.partitions import create_partitions
from muster_operator.steps.pods import ensure_pods, refresh, restart_pods
from muster_operator.steps.record import record_leadership
from muster_operator.steps.replicas import create_replicas, remove_replicas
from muster_operator.steps.resets import ask_resets
from muster_operator.steps.reshard import record_reshard, set_fences
from muster_operator.steps.restore import restore
from muster_operator.steps.show import show_partitions
from muster_operator.steps.status import write_status
from muster_operator.steps.users import give_access, keep_users, write_user_status
from muster_operator.steps.volumes import replace_volume

__all__ = ["STEPS", "Step"]

Step = Callable[[Context, Sequence[Action]], Awaitable[Outcome | None]]
"""None: there was nothing to do."""

STEPS: tuple[Step, ...] = (
    record_leadership,
    elect,
    publish_metadata,
    give_access,
    start_moves,
    look_at_groups,
    ask_resets,
    show_partitions,
    record_reshard,
    set_fences,
    refresh,
    restart_pods,
    replace_volume,
    keep_users,
    restore,
    ensure_pods,
    create_partitions,
    create_replicas,
    remove_replicas,
    write_status,
    write_user_status,
    write_group_status,
    make_backups,
    write_backup_status,
)
