"""Step: create the OffsetsPartition objects of a topic that do not exist."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.plan.actions import Action, CreatePartitions
from muster_operator.steps.context import Context, Outcome


async def create_partitions(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Before replicas are placed, which needs the objects to record the place in. Existing ones are not touched."""
    todo = next((each for each in actions if isinstance(each, CreatePartitions)), None)
    if todo is None:
        return None
    await context.store.create_partitions(todo.topic, todo.indexes)
    return Outcome("PartitionsCreated", f"{len(todo.indexes)} of topic {todo.topic.metadata.name}")
