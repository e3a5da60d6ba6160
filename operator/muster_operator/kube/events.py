"""Kubernetes Events: what `kubectl describe` shows of an object's history.

The operator posts an event when the reason of a Ready condition changes to one that lasts, when a pod finds damage in a
log, and when certificates cannot be renewed. Passing states (placing, electing, moving) are only in the operator's log.
Posting is best effort, and one event at a time, so that it leaves the connections to a failover's writes.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from muster_operator.api.conditions import Condition, ConditionType, Reason, find_condition
from muster_operator.api.models import ObjectMeta
from muster_operator.clock import SYSTEM_CLOCK, Clock
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.objects import API_VERSION
from muster_operator.store.port import StoreError

log = structlog.get_logger(__name__)

PENDING_EVENTS = 200
"""Events that wait to be posted. New ones beyond this are dropped: the conditions show the present state anyway."""

NOTE_LIMIT = 1024
"""Characters of a note: the API server's limit."""

_NORMAL = ((ConditionType.READY, "True"), (ConditionType.REBALANCING, "True"))

PASSING = frozenset(
    {
        Reason.NOT_SEEN,
        Reason.PLACING,
        Reason.ELECTING,
        Reason.MOVING,
        Reason.LOADING,
        Reason.CREATING_PARTITIONS,
    }
)


def noteworthy(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> Condition | None:
    """The condition to post as an event: damage or trouble with certificates that is new, else Ready if its reason
    changed to one that lasts."""
    for kind in (ConditionType.DAMAGED, ConditionType.CERTIFICATES_DUE):
        trouble, known = (find_condition(each, kind) for each in (after, before))
        if trouble is not None and (known is None or known.message != trouble.message):
            return trouble
    now = find_condition(after, ConditionType.READY)
    was = find_condition(before, ConditionType.READY)
    if now is None or now.reason in PASSING or (was is not None and was.reason == now.reason):
        return None
    return now


def rebalance_news(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> Condition | None:
    """That replicas begin to move, are deferred, or have all moved: what to post of it as an event."""
    was, now = (find_condition(each, ConditionType.REBALANCING) for each in (before, after))
    if now is not None:
        return now if was is None or was.reason != now.reason else None
    ready = find_condition(after, ConditionType.READY)
    if was is None or ready is None or ready.status != "True":
        return None
    return Condition(ConditionType.READY, "True", Reason.REBALANCED, "every pod has its share of the replicas")


class EventRecorder:
    """Takes events with `put`; `run` posts them."""

    def __init__(self, client: KubeClient, instance: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue(PENDING_EVENTS)

    @property
    def pending(self) -> int:
        """Events that wait to be posted."""
        return self._queue.qsize()

    def put(self, kind: str, meta: ObjectMeta, condition: Condition) -> None:
        """Have an event about this object of this kind posted."""
        path = f"/apis/events.k8s.io/v1/namespaces/{meta.namespace}/events"
        try:
            self._queue.put_nowait((path, self._event(kind, meta, condition)))
        except asyncio.QueueFull:
            log.warning("event_dropped", name=meta.name, reason=condition.reason)

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            path, event = await self._queue.get()
            try:
                await self._client.create(path, event)
            except StoreError as error:
                log.warning("event_not_posted", error=str(error))

    def _event(self, kind: str, meta: ObjectMeta, condition: Condition) -> Json:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{meta.name}-", "namespace": meta.namespace},
            "eventTime": datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "muster.dev/operator",
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "type": "Normal" if (condition.type, condition.status) in _NORMAL else "Warning",
            "action": "Reconcile",
            "reason": condition.reason,
            "note": condition.message[:NOTE_LIMIT],
        }
