"""The operator's loop over any store and workload, and `muster-operator`, which runs it in Kubernetes."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable

import structlog

from muster_coordinator.podapi.client import new_session
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.pods.sessions import PodSessions
from muster_operator.reconcile import Reconciler
from muster_operator.store.port import Store
from muster_operator.store.workload import Workload

__all__ = ["main", "run_operator"]


async def run_operator(
    store: Store,
    workload: Workload,
    *,
    metrics: OperatorMetrics | None = None,
    clock: Clock | None = None,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Act as the operator until cancelled. Leaves pods and their leaderships as they are."""
    clock = clock or Clock()
    async with new_session() as http:
        pods = PodSessions(http, clock)
        try:
            await Reconciler(store, workload, pods, clock, jitter, metrics or OperatorMetrics()).run()
        finally:
            await pods.close()


def main() -> None:
    """What `muster-operator` runs when all is imported (`__main__`)."""
    # Here, so that embedded mode needs neither kopf nor a Kubernetes client.
    import uvloop

    from muster_operator.kube.run import KubeOptions, run

    if not __debug__:
        raise SystemExit("muster-operator: assertions are invariants; do not run it with -O")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    )
    metrics = OperatorMetrics()

    async def reconcile(store: Store, workload: Workload) -> None:
        await run_operator(store, workload, metrics=metrics)

    # What the imports have made stays (kopf, the clients): to look for garbage in it takes 30 ms each time.
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(KubeOptions.from_environment(), reconcile, metrics.render))
