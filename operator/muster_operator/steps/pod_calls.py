"""Calls of pods in the background: one of a kind at a time for each pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from muster_coordinator.podapi.client import PodApiError
from muster_operator.plan.observation import CallKind
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import RETRY_S, Context

log = structlog.get_logger(__name__)


def call_pod(
    context: Context,
    kind: CallKind,
    pod: str,
    call: Callable[[PodSession], Coroutine[Any, Any, bool]],
    *,
    failed: str,
    rest_s: float = RETRY_S,
) -> None:
    """`call` says whether all of it was done; the next one of this kind comes `rest_s` after one that was not, or
    that failed, which is logged as the event `failed`. Nothing happens if there is no session with the pod.
    """
    context.memory.busy.add((kind, pod))
    context.spawn(_call(context, kind, pod, call, failed, rest_s))


async def _call(
    context: Context,
    kind: CallKind,
    pod: str,
    call: Callable[[PodSession], Coroutine[Any, Any, bool]],
    failed: str,
    rest_s: float,
) -> None:
    try:
        session = context.pods.get(context.key, pod)
        if session is None:
            return
        with context.metrics.pod_call(kind.value):
            done = await session.while_it_runs(call(session))
        if not done:
            await asyncio.sleep(rest_s)
    except PodApiError as error:
        log.info(failed, pod=pod, error=str(error))
        await asyncio.sleep(rest_s)
    finally:
        context.memory.busy.discard((kind, pod))
