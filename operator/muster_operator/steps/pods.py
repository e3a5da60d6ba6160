"""Steps: make the declared pods exist; restart those of an older template; ask for positions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from muster_coordinator.podapi.client import PodApiError
from muster_operator.plan.actions import Action, Refresh, RestartPod
from muster_operator.plan.observation import CallKind
from muster_operator.steps.context import Context, Outcome

__all__ = ["ensure_pods", "refresh", "restart_pods"]

log = structlog.get_logger(__name__)

REFRESH_EVERY_S = 0.1
RESTART_EVERY_S = 5.0
"""The next one is not begun before the failure detector has seen the last one end."""


async def ensure_pods(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Always asks the workload, which knows if anything is to be done; behind leadership, because it can be slow."""
    cluster = context.seen.cluster
    if cluster is None or cluster.spec.suspend:
        return None
    return Outcome("PodsEnsured", await context.workload.ensure_pods(cluster))


async def restart_pods(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """One at a time, by the plan. Raises StoreError."""
    todo = next((each for each in actions if isinstance(each, RestartPod)), None)
    if todo is None:
        return None
    await context.workload.restart_pod(context.key, todo.pod, todo.uid)
    context.memory.busy.add((CallKind.RESTART, todo.pod))
    context.spawn(_rest(context, (CallKind.RESTART, todo.pod), RESTART_EVERY_S))
    return Outcome("PodRestarted", f"pod {todo.pod} is replaced by one of the declared template")


async def refresh(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """In the background; the plan that follows has the answer. A pod is asked at most once in REFRESH_EVERY_S."""
    pods = [each.pod for each in actions if isinstance(each, Refresh)]
    for pod in pods:
        context.memory.busy.add((CallKind.REFRESH, pod))
        context.spawn(_refresh(context, pod))
    return None


async def _refresh(context: Context, pod: str) -> None:
    try:
        session = context.pods.get(context.key, pod)
        if session is not None:
            run = session.runs
            session.learn_partitions(run, await session.client.partitions())
    except PodApiError as error:
        log.info("positions not known", pod=pod, error=str(error))
    context.spawn(_rest(context, (CallKind.REFRESH, pod), REFRESH_EVERY_S))


async def _rest(context: Context, what: tuple[CallKind, str], pause_s: float) -> None:
    await asyncio.sleep(pause_s)
    context.memory.busy.discard(what)
