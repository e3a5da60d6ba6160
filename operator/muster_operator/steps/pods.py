"""Steps: make the declared pods exist; restart those of an older template; ask for positions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from msgspec.structs import replace

from muster_coordinator.podapi.client import PodApiError
from muster_operator.plan.actions import Action, Refresh, RestartPod
from muster_operator.plan.observation import CallKind
from muster_operator.plan.restore import awaits_restore
from muster_operator.plan.rollout import image_of
from muster_operator.plan.scale import pods_to_run
from muster_operator.steps.context import PAUSE_S, Context, Outcome

log = structlog.get_logger(__name__)

RESTART_EVERY_S = 5.0
"""The time from one restart to the next, in seconds: the failure detector has noticed by then that the last pod has
ended.
"""


async def ensure_pods(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Ask the workload in every reconcile: it knows if anything is to be done. After leadership, as it can be slow.

    It is asked for more pods than are declared while a pod above the declared ones is still needed.
    """
    cluster = context.seen.cluster
    if cluster is None or cluster.spec.suspend:
        return None
    if awaits_restore(cluster):
        return Outcome("PodsWaitForRestore", "no pod starts before spec.restoreFrom is carried out")
    seen = context.seen
    spec = replace(cluster.spec, pods=pods_to_run(seen), image=image_of(seen) or None)
    wanted = replace(cluster, spec=spec)
    done = await context.workload.ensure_pods(wanted, keep_template=bool(seen.invalid_settings))
    return Outcome("PodsEnsured", done)


async def restart_pods(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Restart the pod that the plan names; a plan names one at a time. Raises StoreError."""
    todo = next((each for each in actions if isinstance(each, RestartPod)), None)
    if todo is None:
        return None
    await context.workload.restart_pod(context.key, todo.pod, todo.uid)
    context.memory.busy.add((CallKind.RESTART, todo.pod))
    context.spawn(_rest(context, (CallKind.RESTART, todo.pod), RESTART_EVERY_S))
    return Outcome("PodRestarted", f"pod {todo.pod} is replaced by one of the declared template")


async def refresh(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Ask leaders in the background how far their followers are; the next plan has the answer."""
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
            with context.metrics.pod_call("refresh"):
                session.learn_partitions(run, await session.client.partitions())
    except PodApiError as error:
        log.info("positions_not_known", pod=pod, error=str(error))
    context.spawn(_rest(context, (CallKind.REFRESH, pod), PAUSE_S))


async def _rest(context: Context, what: tuple[CallKind, str], pause_s: float) -> None:
    await asyncio.sleep(pause_s)
    context.memory.busy.discard(what)
