"""Steps: have pods create the logs of the replicas that were placed on them, and delete those that left their sets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from muster_coordinator.calls import CallStatus
from muster_coordinator.podapi.models import (
    RemovalRequest,
    RemovalsRequest,
    ReplicaRequest,
    ReplicasRequest,
)
from muster_operator.attempts import MAX_DELAY_S
from muster_operator.plan.actions import Action, CreateReplicas, RemoveReplicas
from muster_operator.plan.observation import CallKind
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.pod_calls import call_pod

log = structlog.get_logger(__name__)

CREATE_TIMEOUT_S = 30.0
"""The time-out in seconds: enough for a thousand logs with their fsyncs on a slow disk."""


async def create_replicas(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Have pods create logs on the places that are recorded for them. A pod keeps a log that it has already.

    After a crash between this call and the record of the log's id, the next plan finds the log by its place.
    """
    todo = [each for each in actions if isinstance(each, CreateReplicas)]
    if not todo:
        return None
    for each in todo:
        creating = partial(_create, context, each)
        call_pod(context, CallKind.CREATE, each.pod, creating, failed="replicas_not_created")
    return Outcome("ReplicasCreated", ", ".join(f"{len(each.indexes)} on {each.pod}" for each in todo))


async def _create(context: Context, todo: CreateReplicas, session: PodSession) -> bool:
    run = session.runs
    wanted = tuple(ReplicaRequest(index, todo.segment_bytes) for index in todo.indexes)
    request = ReplicasRequest(context.seen.fencing_token, wanted)
    response = await session.client.create_replicas(request, CREATE_TIMEOUT_S)
    session.learn_replicas(run, response.results)
    refused = [result for result in response.results if result.status is not CallStatus.ACCEPTED]
    for result in refused:
        log.warning("replica_not_created", pod=todo.pod, partition=result.partition, message=result.message)
    return not refused


async def remove_replicas(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Have pods delete logs whose replicas are recorded as gone from their sets.

    A pod keeps a log that may count again; its status says when a log is gone.
    """
    todo = [each for each in actions if isinstance(each, RemoveReplicas)]
    if not todo:
        return None
    for each in todo:
        removing = partial(_remove, context, each)
        call_pod(context, CallKind.REMOVE, each.pod, removing, failed="replicas_not_removed", rest_s=MAX_DELAY_S)
    return Outcome("RemovalsAsked", ", ".join(f"{len(each.removals)} on {each.pod}" for each in todo))


async def _remove(context: Context, todo: RemoveReplicas, session: PodSession) -> bool:
    removals = tuple(RemovalRequest(index, log_id, epoch) for index, log_id, epoch in todo.removals)
    response = await session.client.remove_replicas(RemovalsRequest(context.seen.fencing_token, removals))
    refused = [result for result in response.results if result.status is not CallStatus.ACCEPTED]
    context.metrics.removals.inc(len(response.results) - len(refused))
    for result in refused:
        log.info("replica_not_removed", pod=todo.pod, partition=result.partition, message=result.message)
    return not refused
