"""Kubernetes Events: what `kubectl describe` shows of an object's history.

The operator posts an event when the reason of a Ready condition changes to one that lasts, when a pod finds damage in a
log, when certificates cannot be renewed, and when something is wrong with backups. Passing states (placing, electing,
moving) are only in the operator's log.
What is intended and goes on is Normal; a Warning is for what nobody wants. What was said last of an object is not said
again, also if passing states were in between; a deferral is told once, whatever is waited for meanwhile.
Posting is best effort, and one event at a time, so that it leaves the connections to a failover's writes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
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

REMEMBERED = 10_000
"""Objects and kinds of conditions of which it is known what was said last."""

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


INTENDED = frozenset(
    {
        Reason.SUSPENDED,
        Reason.HIBERNATED,
        Reason.CREATING_PODS,
        Reason.ROLLING_OUT,
        Reason.ROLLOUT_PAUSED,
        Reason.ROLLOUT_WAITS,
        Reason.AWAITING_ADDRESSES,
        Reason.GROWING_VOLUMES,
        Reason.SCALING_DOWN,
        Reason.CHANGING_REPLICAS,
        Reason.WAITS_FOR_RESHARD,
        Reason.RESHARD_PREPARING,
        Reason.RESHARD_FENCING,
        Reason.RESHARD_COPYING,
        Reason.RESHARD_OPENING,
        Reason.RESHARD_ABORTING,
        Reason.RETIRED,
        Reason.BACKING_UP,
        Reason.BACKUP_WAITS,
        Reason.RESTORING,
        Reason.RESTORED,
        Reason.RESTORE_WAITS,
        Reason.GIVING,
        Reason.MOVING_REPLICAS,
        Reason.REBALANCE_DEFERRED,
        Reason.GROUP_MOVING,
        Reason.MOVE_WAITS,
        Reason.RESET_WAITS,
        Reason.RESET_PAST,
    }
)
"""The reasons why an object is not ready, or not as it will be, that somebody has asked for: none is a warning."""

TROUBLES = (
    ConditionType.DAMAGED,
    ConditionType.CERTIFICATES_DUE,
    ConditionType.BYPASSED,
    ConditionType.BACKUP_FAILED,
    ConditionType.BACKUP_TOO_OLD,
    ConditionType.VERIFY_FAILED,
)
"""Conditions that are there only while something is wrong."""

DEFERRALS = frozenset({Reason.ROLLOUT_WAITS, Reason.REBALANCE_DEFERRED})


def noteworthy(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The conditions to post as events: troubles that are new, and Ready and OffsetsReset if its reason changed
    to one that lasts."""
    found = []
    for kind in TROUBLES:
        trouble, known = (find_condition(each, kind) for each in (after, before))
        if trouble is not None and (known is None or known.message != trouble.message):
            found.append(trouble)
    for kind in (ConditionType.READY, ConditionType.OFFSETS_RESET):
        now, was = (find_condition(each, kind) for each in (after, before))
        if now is not None and now.reason not in PASSING and (was is None or was.reason != now.reason):
            found.append(now)
    return tuple(found)


def rebalance_news(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> Condition | None:
    """The condition to post as an Event when replicas begin to move, are deferred, or have all moved; else None."""
    was, now = (find_condition(each, ConditionType.REBALANCING) for each in (before, after))
    if now is not None:
        return now if was is None or was.reason != now.reason else None
    ready = find_condition(after, ConditionType.READY)
    if was is None or ready is None or ready.status != "True":
        return None
    return Condition(ConditionType.READY, "True", Reason.REBALANCED, "every pod has its share of the replicas")


def is_normal(condition: Condition) -> bool:
    """Ready, or on the way to what somebody has asked for."""
    good = condition.type in (ConditionType.READY, ConditionType.OFFSETS_RESET) and condition.status == "True"
    return good or condition.reason in INTENDED


class EventRecorder:
    """Takes events with `put`; `run` posts them."""

    def __init__(self, client: KubeClient, instance: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._instance = instance
        self._said: OrderedDict[tuple[str, str], Condition] = OrderedDict()
        """The condition that was told last, by uid of the object and type of the condition."""
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue(PENDING_EVENTS)

    @property
    def pending(self) -> int:
        """Events that wait to be posted."""
        return self._queue.qsize()

    def put(self, kind: str, meta: ObjectMeta, condition: Condition) -> None:
        """Have an event about this object of this kind posted, unless it was said last."""
        if self._was_said(meta.uid, condition):
            return
        path = f"/apis/events.k8s.io/v1/namespaces/{meta.namespace}/events"
        try:
            self._queue.put_nowait((path, self._event(kind, meta, condition)))
        except asyncio.QueueFull:
            log.warning("event_dropped", name=meta.name, reason=condition.reason)

    def _was_said(self, uid: str, condition: Condition) -> bool:
        """Notes it as well."""
        rebalance = condition.reason == Reason.REBALANCED  # said of the condition that has ended
        key = (uid, ConditionType.REBALANCING if rebalance else condition.type)
        last = self._said.pop(key, None)
        self._said[key] = condition
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        if last is None or last.reason != condition.reason:
            return False
        return condition.reason in DEFERRALS or last.message == condition.message

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
            "type": "Normal" if is_normal(condition) else "Warning",
            "action": "Reconcile",
            "reason": condition.reason,
            "note": condition.message[:NOTE_LIMIT],
        }
