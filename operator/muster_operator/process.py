"""The operator as it runs in a process: `muster-operator` in Kubernetes, `muster local up` without it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TextIO

import aiohttp
import structlog

from muster_coordinator.podapi.client import new_session
from muster_coordinator.tracing.ports import Spans
from muster_operator.clock import SYSTEM_CLOCK, Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.pods.sessions import PodSessions
from muster_operator.reconcile import Reconciler
from muster_operator.store.port import Store
from muster_operator.store.workload import Workload
from muster_operator.turns import Turns


async def run_operator(
    store: Store,
    workload: Workload,
    metrics: OperatorMetrics,
    namespace: str | None = None,
    turns: Turns | None = None,
    clock: Clock = SYSTEM_CLOCK,
    random: Callable[[], float] = random.random,
    new_http: Callable[[], aiohttp.ClientSession] = new_session,
    spans: Spans | None = None,
) -> None:
    """Reconcile all clusters of `store`, or those in one namespace, until cancelled. Cancelling leaves the pods and
    their leaders as they are.

    `turns`: shared with the loops of other namespaces. `random` gives numbers in [0, 1). `new_http` opens the
    session for all calls of pods. `spans`: where elections and rollouts are traced.
    """
    async with new_http() as http:
        pods = PodSessions(http, clock)
        try:
            await Reconciler(store, workload, pods, clock, random, metrics, namespace, turns, spans).run()
        finally:
            await pods.close()


def configure_logging(file: TextIO) -> None:
    """Write structured logs to `file`, one JSON object per line."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=file),
    )
