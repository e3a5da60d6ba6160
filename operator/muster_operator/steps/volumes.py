"""Step: have a pod get an empty volume in place of one that no node can use."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.plan.actions import Action, ReplaceVolume
from muster_operator.steps.context import Context, Outcome


async def replace_volume(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Replace the volume that the plan names; a plan names one at a time. Raises StoreError."""
    todo = next((each.volume for each in actions if isinstance(each, ReplaceVolume)), None)
    if todo is None:
        return None
    if not await context.workload.replace_volume(context.key, todo):
        return Outcome("VolumeKept", f"pod {todo.pod} can use {todo.names} again")
    return Outcome("VolumeReplaced", f"{todo.names} deleted, and pod {todo.pod} gets others: {todo.why}")
