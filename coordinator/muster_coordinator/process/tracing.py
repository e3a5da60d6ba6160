"""The spans of elections and slow requests that a pod sends, as its settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from muster_coordinator.listener.slow_requests import SlowRequests
from muster_coordinator.listener.state import Handler
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.pod.request_places import RequestPlaces
from muster_coordinator.shard.ports import Clock
from muster_coordinator.tracing.opening import open_spans
from muster_coordinator.tracing.ports import Spans

if TYPE_CHECKING:
    from muster_coordinator.process.options import ProcessOptions

SERVICE = "muster-coordinator"
"""The name of the pods among those who send spans."""


def pod_spans(options: ProcessOptions, version: str, stack: AsyncExitStack) -> Spans | None:
    """Returns None without a collector. Spans are sent to the end of `stack`. Raises TracingError."""
    instance = f"{options.cluster}/{options.pod}" if options.cluster else options.pod
    spans = open_spans(options.settings.tracing.tracing_endpoint, SERVICE, instance, version)
    if spans is not None:
        stack.push_async_callback(asyncio.to_thread, spans.close)
    return spans


def watched(
    handlers: Mapping[type, Handler],
    longest_ms: int,
    clock: Clock,
    view: ClusterView,
    manager: ReplicaManager,
    spans: Spans | None,
) -> Mapping[type, Handler]:
    """The handlers as they are, if no request is to be told: nothing is asked on its way then."""
    if not longest_ms:
        return handlers
    return SlowRequests(longest_ms, clock, RequestPlaces(view, manager), spans).watched(handlers)
