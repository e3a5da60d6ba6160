"""Step: make the declared pods exist."""

from __future__ import annotations

from collections.abc import Sequence

from muster_operator.plan.actions import Action
from muster_operator.steps.context import Context, Outcome

__all__ = ["ensure_pods"]


async def ensure_pods(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Always asks the workload, which knows if anything is to be done; behind leadership, because it can be slow."""
    cluster = context.seen.cluster
    if cluster is None or cluster.spec.suspend:
        return None
    return Outcome("PodsEnsured", await context.workload.ensure_pods(cluster))
