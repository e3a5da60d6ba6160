"""Steps: read what Jobs that make backups have left, begin the next one, and say how far each MusterBackup is."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from muster_operator.plan.actions import Action, StartBackup, WriteBackupStatus
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.telling import write_each
from muster_operator.store.port import StoreError

log = structlog.get_logger(__name__)


async def make_backups(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """A backup that cannot begin holds up nothing else, and is tried again at the next look."""
    cluster, backups = context.seen.cluster, context.workload.backups
    if cluster is None or cluster.spec.backup is None or backups is None:
        return None
    todo = next((each for each in actions if isinstance(each, StartBackup)), None)
    try:
        await backups.look(context.key)
        if todo is None:
            return None
        pods = await context.workload.pods(context.key)
        done = await backups.start(cluster, pods, todo.asked, todo.slot, verify=todo.verify)
    except StoreError as error:
        log.warning("backup_not_begun", key=str(context.key), error=str(error))
        return None
    return Outcome("BackupBegun", done)


async def write_backup_status(context: Context, actions: Sequence[Action]) -> Outcome | None:
    todo = [each for each in actions if isinstance(each, WriteBackupStatus)]
    store = context.store
    told = await write_each(
        context, "write_backup_status", todo, lambda each: store.write_backup_status(each.seen, each.status)
    )
    return Outcome("BackupsTold", f"{len(todo)} MusterBackups") if told else None
