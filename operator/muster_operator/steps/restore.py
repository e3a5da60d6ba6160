"""Step: make the volumes of a new cluster from a backup, before it has pods."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from muster_operator.plan.actions import Action, MakeClaim, MarkClaims, StartRestoreJob
from muster_operator.plan.restore import awaits_restore
from muster_operator.steps.context import Context, Outcome
from muster_operator.store.port import StoreError

log = structlog.get_logger(__name__)


async def restore(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Carries the restore on. A part that fails is tried again at the next look; no pod starts meanwhile."""
    cluster, restores = context.seen.cluster, context.workload.restores
    if restores is None:
        return None
    if cluster is None or not awaits_restore(cluster):
        restores.forget(context.key)
        return None
    done = []
    try:
        for each in actions:
            if isinstance(each, StartRestoreJob | MakeClaim | MarkClaims):
                done.append(await restores.carry_out(cluster, each))
        await restores.look(cluster)
    except StoreError as error:
        log.warning("not_restored", key=str(context.key), error=str(error))
    return Outcome("Restoring", "; ".join(done)) if done else None
