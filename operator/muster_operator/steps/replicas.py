"""Steps: have pods create the logs of the replicas that were placed on them, and delete those that left their sets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from muster_coordinator.podapi.client import PodApiError
from muster_coordinator.podapi.models import (
    CallStatus,
    RemovalRequest,
    RemovalsRequest,
    ReplicaRequest,
    ReplicasRequest,
)
from muster_operator.plan.actions import Action, CreateReplicas, RemoveReplicas
from muster_operator.plan.observation import CREATE, REMOVE
from muster_operator.steps.context import Context, Outcome

__all__ = ["create_replicas", "remove_replicas"]

log = structlog.get_logger(__name__)

RETRY_S = 0.5
REMOVE_RETRY_S = 5.0
"""Nothing waits for it."""
CREATE_TIMEOUT_S = 30.0
"""A thousand logs with their fsyncs on a slow disk."""


async def create_replicas(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """The place is recorded before the log exists, so a log that nobody recorded is found again by the next plan, which
    records its id; a log that is there already is kept by the pod."""
    todo = [each for each in actions if isinstance(each, CreateReplicas)]
    if not todo:
        return None
    for each in todo:
        context.memory.busy.add((CREATE, each.pod))
        context.spawn(_create(context, each))
    return Outcome("ReplicasCreated", ", ".join(f"{len(each.indexes)} on {each.pod}" for each in todo))


async def _create(context: Context, todo: CreateReplicas) -> None:
    try:
        session = context.pods.get(context.key, todo.pod)
        if session is None:
            return
        run = session.runs
        wanted = tuple(ReplicaRequest(index, todo.segment_bytes) for index in todo.indexes)
        request = ReplicasRequest(context.seen.fencing_token, wanted)
        response = await session.client.create_replicas(request, CREATE_TIMEOUT_S)
        session.learn_replicas(run, response.results)
        for result in response.results:
            if result.status is not CallStatus.ACCEPTED:
                log.warning("replica not created", pod=todo.pod, partition=result.partition, message=result.message)
        if any(result.status is not CallStatus.ACCEPTED for result in response.results):
            await asyncio.sleep(RETRY_S)
    except PodApiError as error:
        log.info("replicas not created", pod=todo.pod, error=str(error))
        await asyncio.sleep(RETRY_S)
    finally:
        context.memory.busy.discard((CREATE, todo.pod))


async def remove_replicas(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """That they left is recorded, and the pod keeps a log that may count again; its status says when one is gone."""
    todo = [each for each in actions if isinstance(each, RemoveReplicas)]
    if not todo:
        return None
    for each in todo:
        context.memory.busy.add((REMOVE, each.pod))
        context.spawn(_remove(context, each))
    return Outcome("RemovalsAsked", ", ".join(f"{len(each.removals)} on {each.pod}" for each in todo))


async def _remove(context: Context, todo: RemoveReplicas) -> None:
    try:
        session = context.pods.get(context.key, todo.pod)
        if session is None:
            return
        removals = tuple(RemovalRequest(index, log_id, epoch) for index, log_id, epoch in todo.removals)
        response = await session.client.remove_replicas(RemovalsRequest(context.seen.fencing_token, removals))
        refused = [result for result in response.results if result.status is not CallStatus.ACCEPTED]
        context.metrics.removals.inc(len(response.results) - len(refused))
        for result in refused:
            log.info("replica not removed", pod=todo.pod, partition=result.partition, message=result.message)
        if refused:
            await asyncio.sleep(REMOVE_RETRY_S)
    except PodApiError as error:
        log.info("replicas not removed", pod=todo.pod, error=str(error))
        await asyncio.sleep(REMOVE_RETRY_S)
    finally:
        context.memory.busy.discard((REMOVE, todo.pod))
