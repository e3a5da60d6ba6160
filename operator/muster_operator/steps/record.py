"""Step: record leader, epoch and sets of all partitions that change, before any pod is called."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.plan.actions import Action, RecordLeadership
from muster_operator.steps.context import Context, Outcome


async def record_leadership(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """One compare-and-swap of each topic's status, however many partitions change.

    Raises StoreError, and ConflictError when another writer was faster: then no step of this plan may follow, because
    the plan was made from a record that is not the present one.
    """
    done = []
    for todo in actions:
        if isinstance(todo, RecordLeadership):
            await context.store.record_leadership(todo.seen, todo.leaderships)
            before = todo.seen.status.leaderships
            changed = [index for index, each in todo.leaderships.items() if before.get(index) != each]
            done.append(f"{len(changed)} leaderships of topic {todo.seen.metadata.name}")
    return Outcome("Recorded", ", ".join(done)) if done else None
