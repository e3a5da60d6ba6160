"""Step: status and conditions of the topic and the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.api.conditions import ConditionType, find_condition
from muster_operator.plan.actions import Action, WriteClusterStatus, WriteTopicStatus
from muster_operator.steps.context import Context, Outcome
from muster_operator.store.port import ConflictError, NotFoundError


async def write_status(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Last: it tells what the other steps found and did. Nothing is shown as Ready before each partition is."""
    todo = [each for each in actions if isinstance(each, (WriteTopicStatus, WriteClusterStatus))]
    if context.memory.showing is not None:
        todo = [each for each in todo if not _says_ready(each)]
    if not todo or not context.has_time_to_tell("write_status"):
        return None
    done: list[str] = []
    for each in todo:
        try:
            if isinstance(each, WriteTopicStatus):
                await context.store.write_topic_status(each.seen, each.status)
            else:
                await context.store.write_cluster_status(each.seen, each.status)
        except (ConflictError, NotFoundError):
            continue  # changed or deleted meanwhile: what is there now is planned for anew
        ready = find_condition(each.status.conditions, ConditionType.READY)
        assert ready is not None
        kind = "topic" if isinstance(each, WriteTopicStatus) else "cluster"
        done.append(f"{kind} {each.seen.metadata.name}: {ready.reason}: {ready.message}")
    return Outcome("StatusWritten", "; ".join(done)) if done else None


def _says_ready(action: WriteTopicStatus | WriteClusterStatus) -> bool:
    ready = find_condition(action.status.conditions, ConditionType.READY)
    return ready is not None and ready.status == "True"
