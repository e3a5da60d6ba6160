"""Steps: record the next phase of a re-shard, and have partitions closed and opened as the recorded one says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from muster_coordinator.podapi.reshard import FenceCall, FencesRequest
from muster_operator.plan.actions import Action, RecordReshard, SetFences
from muster_operator.plan.observation import CallKind
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.pod_calls import call_pod
from muster_operator.store.port import ConflictError, NotFoundError

log = structlog.get_logger(__name__)


async def record_reshard(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Compare-and-swap the next phase. An operator that was overtaken plans anew. Raises StoreError."""
    todo = next((each for each in actions if isinstance(each, RecordReshard)), None)
    if todo is None:
        return None
    reshard, layout = todo.status.reshard, todo.status.layout
    what = f"layout {layout}" if reshard is None else f"re-shard {reshard.base}: {reshard.phase}: {reshard.message}"
    try:
        await context.store.write_topic_status(todo.seen, todo.status)
    except (ConflictError, NotFoundError) as error:
        context.metrics.conflicts.inc()
        return Outcome("Overtaken", f"{what}: {error}")
    return Outcome("Recorded", what)


async def set_fences(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Ask the leaders in the background; their status shows the result."""
    todo = [each for each in actions if isinstance(each, SetFences)]
    for each in todo:
        call_pod(context, CallKind.FENCE, each.pod, partial(_set, context, each), failed="fences_not_set")
    return Outcome("FencesAsked", ", ".join(f"{len(each.fences)} at {each.pod}" for each in todo)) if todo else None


async def _set(context: Context, todo: SetFences, session: PodSession) -> bool:
    calls = tuple(FenceCall(each.index, each.reshard, each.open, each.importing) for each in todo.fences)
    response = await session.client.fence(FencesRequest(context.seen.fencing_token, calls))
    refused = [result for result in response.results if result.fence is None]
    for result in refused:
        log.info("fence_refused", pod=todo.pod, partition=result.partition, why=result.reason, text=result.message)
    return not refused
