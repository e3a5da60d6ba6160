"""`muster-operator`: the operator in Kubernetes."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import uvloop

from muster_coordinator.tracing.opening import TracingError, open_spans
from muster_operator.kube.run import KubeOptions, run
from muster_operator.metrics import OperatorMetrics
from muster_operator.process import configure_logging, run_operator
from muster_operator.store.port import Store
from muster_operator.store.workload import Workload
from muster_operator.turns import Turns


def main() -> None:
    """Entry point of `muster-operator`; environment variables configure it (`kube.run.KubeOptions`)."""
    if not __debug__:
        raise SystemExit("muster-operator: assertions are invariants; do not run it with -O")
    configure_logging(sys.stdout)
    options = KubeOptions.from_environment()
    metrics, turns = OperatorMetrics(), Turns()
    try:
        spans = open_spans(options.tracing_endpoint, "muster-operator", options.identity, version("muster"))
    except TracingError as error:
        raise SystemExit(f"muster-operator: MUSTER_OPERATOR_TRACING_ENDPOINT: {error}") from None

    async def reconcile(store: Store, workload: Workload, namespace: str) -> None:
        await run_operator(store, workload, metrics, namespace, turns, spans=spans)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(options, reconcile, metrics.render, metrics.hear, metrics.wrote))
    finally:
        if spans is not None:
            spans.close()


if __name__ == "__main__":
    main()
