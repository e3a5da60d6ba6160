"""Step: record leaderships by compare-and-swap, then call the elections whose record was won."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from muster_coordinator.podapi.client import PodApiError
from muster_coordinator.podapi.models import CallStatus, Election, ElectionResult, ElectionsRequest
from muster_operator.api.conditions import Reason
from muster_operator.api.durations import format_time, parse_duration
from muster_operator.api.models import FailoverRecord, PartitionState
from muster_operator.plan.actions import Action, Elect, RecordLeadership
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome
from muster_operator.store.port import ConflictError, NotFoundError, StoreError

__all__ = ["lead"]

_REASONS = {
    CallStatus.STALE_EPOCH: Reason.STALE_EPOCH,
    CallStatus.WRONG_REPLICA: Reason.LOG_LOST,
    CallStatus.CANNOT_WRITE: Reason.CANNOT_WRITE,
    CallStatus.DAMAGED: Reason.LOG_DAMAGED,
    CallStatus.INVALID: Reason.ELECTING,
}


async def lead(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """All records run concurrently, and all elections of one pod go in one call.

    Repeating it is harmless: a record that is written already loses its compare-and-swap or is not planned again, and
    an election is idempotent. Raises StoreError, after the elections that it does not concern are on their way.
    """
    records = [each for each in actions if isinstance(each, RecordLeadership)]
    elections = [each for each in actions if isinstance(each, Elect)]
    if not records and not elections:
        return None
    failed = dict(await asyncio.gather(*(_record(context, each) for each in records)))
    by_pod: dict[str, list[Elect]] = defaultdict(list)
    for election in elections:
        if failed.get(election.partition) is None:
            by_pod[election.pod].append(election)
    for pod, calls in by_pod.items():
        for each in calls:
            context.memory.attempts.start(each.partition, pod, context.clock.monotonic())
        context.spawn(_elect(context, pod, calls))
    errors = [error for error in failed.values() if error is not None]
    serious = [error for error in errors if not isinstance(error, (ConflictError, NotFoundError))]
    if serious:
        raise serious[0]
    text = f"recorded {len(records) - len(errors)} leaderships, {len(errors)} lost to another writer, "
    text += f"called {sum(map(len, by_pod.values()))} elections on {len(by_pod)} pods"
    return Outcome("Elected" if by_pod else "Recorded", text)


async def _record(context: Context, record: RecordLeadership) -> tuple[str, StoreError | None]:
    name = record.seen.metadata.name
    try:
        await context.store.record_leadership(record.seen, record.status)
    except StoreError as error:
        if isinstance(error, ConflictError):
            context.metrics.conflicts.inc()
        return name, error
    _remember(context, record)
    return name, None


def _remember(context: Context, record: RecordLeadership) -> None:
    """How long the partition was without a leader, for status and metrics."""
    name, before, after = record.seen.metadata.name, record.seen.status, record.status
    memory, now = context.memory, context.clock.monotonic()
    if before.state is PartitionState.LED and after.state is not PartitionState.LED:
        memory.lost_at[name] = now
    elif after.state is PartitionState.LED:
        lost_at = memory.lost_at.pop(name, None)
        if lost_at is None and (before.state is not PartitionState.LED or before.epoch == after.epoch):
            return  # the first election
        gap_s = now - lost_at if lost_at is not None else 0.0
        context.metrics.failover_seconds.observe(gap_s)
        memory.failovers.appendleft(
            FailoverRecord(
                partition=name,
                epoch=after.epoch,
                time=format_time(context.clock.wall()),
                previous_leader=before.leader,
                leader=after.leader,
                reason=after.reason,
                duration_ms=round(gap_s * 1000),
            )
        )


async def _elect(context: Context, pod: str, elections: Sequence[Elect]) -> None:
    session = context.pods.get(context.key, pod)
    if session is None:
        _give_up(context, elections, f"pod {pod} is gone")
        return
    request = ElectionsRequest(
        context.seen.fencing_token,
        tuple(Election(each.index, each.epoch, each.replicas, bootstrap=each.bootstrap) for each in elections),
    )
    assert context.seen.cluster is not None
    timeout_s = parse_duration(context.seen.cluster.spec.failover.election_timeout)
    run = session.runs
    try:
        response = await session.client.elect(request, timeout_s)
    except PodApiError as error:
        context.metrics.elections.labels("unanswered").inc(len(elections))
        _give_up(context, elections, str(error))
        return
    _take(context, session, run, elections, response.results)


def _take(
    context: Context, session: PodSession, run: int, elections: Sequence[Elect], results: Sequence[ElectionResult]
) -> None:
    session.learn_elections(run, {each.index: each.epoch for each in elections}, results)
    by_index = {result.partition: result for result in results}
    now = context.clock.monotonic()
    for each in elections:
        result = by_index.get(each.index)
        if result is None:
            context.memory.attempts.answer(
                each.partition, now, Reason.ELECTING, f"pod {each.pod} did not answer for it"
            )
            continue
        context.metrics.elections.labels(result.status.value).inc()
        message = f"pod {each.pod} in epoch {each.epoch}: {result.status.value} {result.message}".rstrip()
        context.memory.attempts.answer(each.partition, now, _REASONS.get(result.status), message)


def _give_up(context: Context, elections: Sequence[Elect], message: str) -> None:
    now = context.clock.monotonic()
    for each in elections:
        context.memory.attempts.answer(each.partition, now, Reason.ELECTING, message)
