"""Step: create the OffsetsPartition objects of a topic that do not exist."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.plan.actions import Action, CreatePartitions
from muster_operator.steps.context import Context, Outcome


async def create_partitions(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Creates partitions before replicas are placed, which needs the objects to record the place in. Existing ones are
    not touched.
    """
    todo = [each for each in actions if isinstance(each, CreatePartitions)]
    for each in todo:
        await context.store.create_partitions(each.topic, each.indexes)
    created = ", ".join(f"{len(each.indexes)} of topic {each.topic.metadata.name}" for each in todo)
    return Outcome("PartitionsCreated", created) if todo else None
