"""Steps: record leaderships by compare-and-swap, and call the elections whose record was won; then record the rest."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import msgspec
import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.client import PodApiError
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    Resignation,
    ResignationsRequest,
)
from muster_operator.api.conditions import PLANNED
from muster_operator.api.durations import format_time, parse_duration
from muster_operator.api.models import FailoverRecord, PartitionState
from muster_operator.plan.actions import Action, Elect, RecordLeadership
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome
from muster_operator.store.port import ConflictError, NotFoundError, StoreError

__all__ = ["lead", "record"]

log = structlog.get_logger(__name__)

RESIGN_TIMEOUT_S = 2.0
LEAD_AT_ONCE = 3
LEAD_TURNS = 4
"""A pod is asked to lead so many partitions in one call, or one of so many of all that it shall lead, one call behind
the other (`PodSession.elections`): between them it serves the groups that it had before.
"""
LATER_EVERY_S = 0.2
LATER_AT_ONCE = 2
LATER_SHARE = 10
"""What no election waits for is written in portions: so many records, or one of so many of all that there are, each so
many seconds. A pod that comes or goes changes the records of all partitions at the time at which groups move to other
pods, and what the API server needs to write them is taken from these.
"""
CONFIRMED_S = 2.0
"""That a partition has another leader is written when it has had it for so long: until then the container of the one
that died starts again, and what each record costs is taken from the pods that took over. The ledger knows it.
"""
SETTLED_S = 3.0
"""Counts and conditions are written when they have differed for so long: most pods that go are back by then."""


async def lead(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Records that an election waits for; each pod is called as soon as some of its own are written, the first ones of
    every pod before the next ones of any (ADR 19).

    Repeating it is harmless: a record that is written already loses its compare-and-swap or is not planned again, and
    an election is idempotent. Raises StoreError, after the elections that it does not concern are on their way.
    """
    elections = {each.partition: each for each in actions if isinstance(each, Elect)}
    if not elections:
        return None
    records = [each for each in actions if _is_record_of(each, elections)]
    by_pod: dict[str, list[RecordLeadership]] = defaultdict(list)
    for each in records:
        by_pod[elections[each.seen.metadata.name].pod].append(each)
    bare: dict[str, list[Elect]] = defaultdict(list)  # recorded before, and their calls are to be repeated
    new = {each.seen.metadata.name for each in records}
    for name, election in elections.items():
        if name not in new:
            bare[election.pod].append(election)
    portions = {pod: list(_portions(by_pod[pod])) for pod in (*by_pod, *bare)}
    results = await asyncio.gather(
        *(
            _lead(context, pod, todo[turn], elections, () if turn else bare[pod])
            for turn in range(LEAD_TURNS)
            for pod, todo in portions.items()
            if turn < len(todo)
        )
    )
    errors = [error for failed in results for error in failed]
    _raise_serious(errors)
    called = len(elections) - len(errors)
    text = f"called {called} elections on {len(portions)} pods, {len(errors)} records lost to another writer"
    return Outcome("Elected" if called else "Recorded", text)


async def record(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """What is recorded without an election: it must not be in the way of one. Raises StoreError.

    That an election succeeded, and what is for people only, is written in small portions; each brings the next
    reconcile.
    """
    elections = {each.partition: each for each in actions if isinstance(each, Elect)}
    records: list[RecordLeadership] = []
    confirmed: list[RecordLeadership] = []
    for_people: list[RecordLeadership] = []
    for each in actions:
        if isinstance(each, RecordLeadership) and not _is_record_of(each, elections):
            (confirmed if _confirms(each) else for_people if _is_for_people(each) else records).append(each)
    memory, now = context.memory, context.clock.monotonic()
    names = [each.seen.metadata.name for each in confirmed]
    memory.back_at = {name: memory.back_at.get(name, now) for name in names}
    memory.untold_since = (memory.untold_since or now) if for_people else None
    if memory.attempts.are_under_way(now):
        return None  # the elections' answers bring the next reconcile, and more to record at once
    later = _to_confirm(context, confirmed, now)
    if memory.untold_since is not None and not context.waits(memory.untold_since + SETTLED_S - now):
        later = later + for_people
    if later and context.has_turn("record", LATER_EVERY_S):
        records += later[: max(LATER_AT_ONCE, len(later) // LATER_SHARE)]
    if not records:
        return None
    errors = [error for _, error in await asyncio.gather(*(_record(context, each) for each in records)) if error]
    _raise_serious(errors)
    text = f"recorded {len(records) - len(errors)} leaderships, {len(errors)} lost to another writer"
    return Outcome("Recorded", text)


def _to_confirm(context: Context, confirmed: list[RecordLeadership], now: float) -> list[RecordLeadership]:
    """All of them when the one that has waited longest is due; before that, the first leaders of partitions."""
    if confirmed and context.waits(min(context.memory.back_at.values()) + CONFIRMED_S - now):
        return [each for each in confirmed if each.seen.status.led_epoch < 0]
    return confirmed


def _is_for_people(record: RecordLeadership) -> bool:
    """Nothing but counts and conditions is new."""
    before, after = record.seen.status, record.status
    return msgspec.structs.replace(before, following=after.following, conditions=after.conditions) == after


def _confirms(record: RecordLeadership) -> bool:
    """The pod that was elected leads in the epoch that was issued: nothing else that a plan depends on is new."""
    before, after = record.seen.status, record.status
    known = before.leader, before.epoch, before.replicas, before.previous_replicas, before.learners, before.left
    same = after.leader, after.epoch, after.replicas, after.previous_replicas, after.learners, after.left
    return before.state is PartitionState.ELECTING and after.state is PartitionState.LED and known == same


def _is_record_of(action: Action, elections: dict[str, Elect]) -> TypeGuard[RecordLeadership]:
    return isinstance(action, RecordLeadership) and action.seen.metadata.name in elections


def _raise_serious(errors: Sequence[StoreError]) -> None:
    serious = [error for error in errors if not isinstance(error, (ConflictError, NotFoundError))]
    if serious:
        raise serious[0]


def _portions(records: Sequence[RecordLeadership]) -> Iterator[Sequence[RecordLeadership]]:
    """LEAD_TURNS at most, and one if there is nothing."""
    size = max(LEAD_AT_ONCE, math.ceil(len(records) / LEAD_TURNS))
    for at in range(0, max(len(records), 1), size):
        yield records[at : at + size]


async def _lead(
    context: Context,
    pod: str,
    records: Sequence[RecordLeadership],
    elections: dict[str, Elect],
    bare: Sequence[Elect],
) -> list[StoreError]:
    """One pod: records of its own, then one call."""
    failed = dict(await asyncio.gather(*(_record(context, each) for each in records)))
    calls = [elections[name] for name, error in failed.items() if error is None] + [*bare]
    for each in calls:
        context.memory.attempts.start(each.partition, pod, each.epoch, context.clock.monotonic())
    if calls:
        context.spawn(_elect(context, pod, calls))
    return [error for error in failed.values() if error is not None]


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
    if after.reason in PLANNED and after.epoch != before.epoch:
        memory.moves[name] = after.epoch, now
    was_led = before.state is PartitionState.LED or name in memory.back_at
    back_at = memory.back_at.pop(name, now)
    if was_led and after.state is not PartitionState.LED:
        memory.lost_at[name] = (now, before.leader, after.reason in PLANNED)
    elif after.state is PartitionState.LED:
        lost_at, previous, planned = memory.lost_at.pop(name, (now, before.leader, False))
        if before.led_epoch < 0 or before.led_epoch == after.epoch:
            return  # the first election, or the same leader after all
        gap_s = max(back_at - lost_at, 0.0)
        context.metrics.failover_seconds.labels("planned" if planned else "lost").observe(gap_s)
        memory.failovers.appendleft(
            FailoverRecord(
                partition=name,
                epoch=after.epoch,
                time=format_time(context.clock.wall()),
                previous_leader=previous,
                leader=after.leader,
                reason=after.reason,
                planned=planned,
                duration_ms=round(gap_s * 1000),
            )
        )


async def _elect(context: Context, pod: str, elections: Sequence[Elect]) -> None:
    session = context.pods.get(context.key, pod)
    if session is None:
        _give_up(context, elections, f"pod {pod} is gone")
        return
    request = ElectionsRequest(context.seen.fencing_token, tuple(_call(each) for each in elections))
    assert context.seen.cluster is not None
    timeout_s = parse_duration(context.seen.cluster.spec.failover.election_timeout)
    try:
        async with session.elections.turn():
            run = session.runs
            response = await session.client.elect(request, timeout_s)
    except PodApiError as error:
        context.metrics.elections.labels("unanswered").inc(len(elections))
        _give_up(context, elections, str(error))
        return
    _take(context, session, run, elections, response.results)
    _tell_former_leaders(context, elections, response.results)


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
    """onResignation in the same epoch, best effort: the election has sealed them already, unless they were away."""
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
        await session.client.resign(ResignationsRequest(context.seen.fencing_token, resignations), RESIGN_TIMEOUT_S)
    except PodApiError as error:
        log.info("former leader not told", pod=pod, error=str(error))


def _give_up(context: Context, elections: Sequence[Elect], message: str) -> None:
    now = context.clock.monotonic()
    for each in elections:
        context.memory.attempts.unanswered(each.partition, each.epoch, now, message)
