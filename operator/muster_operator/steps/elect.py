"""Step: have pods lead the partitions that were recorded for them, and tell the former leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.client import PodApiError
from muster_coordinator.podapi.models import Election, ElectionsRequest, Resignation, ResignationsRequest
from muster_coordinator.tracing.ports import Span
from muster_operator.api.durations import parse_duration
from muster_operator.plan.actions import Action, Elect
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome

log = structlog.get_logger(__name__)


async def elect(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Call all pods at once, each for all of its partitions. Repeating it is harmless: an election is idempotent."""
    by_pod: dict[str, list[Elect]] = defaultdict(list)
    for each in actions:
        if isinstance(each, Elect):
            by_pod[each.pod].append(each)
    now = context.clock.monotonic()
    for pod, elections in by_pod.items():
        for each in elections:
            context.memory.attempts.start(each.partition, pod, each.epoch, now, each.reason, each.message)
        traces = context.memory.traces
        context.spawn(_traced(context, pod, elections, traces.call(pod, elections) if traces is not None else None))
    if not by_pod:
        return None
    return Outcome("Elected", f"called {sum(map(len, by_pod.values()))} elections on {len(by_pod)} pods")


async def _traced(context: Context, pod: str, elections: Sequence[Elect], span: Span | None) -> None:
    outcome = await _elect(context, pod, elections, span.trace if span is not None else "")
    if span is not None:
        span.end(outcome=outcome)


async def _elect(context: Context, pod: str, elections: Sequence[Elect], trace: str) -> str:
    """The outcome of the call."""
    session = context.pods.get(context.key, pod)
    if session is None:
        return _give_up(context, elections, f"pod {pod} is gone")
    request = ElectionsRequest(tuple(_call(each) for each in elections), trace)
    assert context.seen.cluster is not None
    timeout_s = parse_duration(context.seen.cluster.spec.failover.election_timeout)
    run = session.runs
    try:
        with context.metrics.pod_call("elect"):
            response = await session.while_it_runs(session.client.elect(request, timeout_s))
    except PodApiError as error:
        context.metrics.elections.labels("unanswered").inc(len(elections))
        return _give_up(context, elections, str(error))
    _take(context, session, run, elections, response.results)
    _tell_former_leaders(context, elections, response.results)
    return "answered"


def _call(each: Elect) -> Election:
    return Election(
        each.index,
        each.epoch,
        each.replicas,
        each.previous_replicas,
        bootstrap=each.bootstrap,
        force=each.force,
        allow_data_loss=each.allow_data_loss,
    )


def _take(
    context: Context, session: PodSession, run: int, elections: Sequence[Elect], results: Sequence[CallResult]
) -> None:
    session.learn_elections(run, {each.index: each.epoch for each in elections}, results)
    by_index = {result.partition: result for result in results}
    now = context.clock.monotonic()
    for each in elections:
        result = by_index.get(each.index)
        if result is None:
            message = f"pod {each.pod} did not answer for it"
            context.memory.attempts.unanswered(each.partition, each.epoch, now, message)
            continue
        context.metrics.elections.labels(result.status.value).inc()
        context.memory.attempts.answered(each.partition, each.epoch, now, result)


def _tell_former_leaders(context: Context, elections: Sequence[Elect], results: Sequence[CallResult]) -> None:
    """Call onResignation in the same epoch, best effort: the election has sealed their logs, unless they were away."""
    there = {result.partition for result in results if result.status in (CallStatus.ACCEPTED, CallStatus.LOADING)}
    by_pod: dict[str, list[Resignation]] = defaultdict(list)
    for each in elections:
        if each.resign and each.index in there:
            by_pod[each.resign].append(Resignation(each.index, each.epoch))
    for pod, resignations in by_pod.items():
        context.spawn(_resign(context, pod, tuple(resignations)))


async def _resign(context: Context, pod: str, resignations: tuple[Resignation, ...]) -> None:
    session = context.pods.get(context.key, pod)
    if session is None:
        return
    try:
        with context.metrics.pod_call("resign"):
            await session.client.resign(ResignationsRequest(resignations))
    except PodApiError as error:
        log.info("former_leader_not_told", pod=pod, error=str(error))


def _give_up(context: Context, elections: Sequence[Elect], message: str) -> str:
    now = context.clock.monotonic()
    for each in elections:
        context.memory.attempts.unanswered(each.partition, each.epoch, now, message)
    return message
