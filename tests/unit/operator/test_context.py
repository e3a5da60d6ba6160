"""What is written for people waits for elections, and is not written all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, cast

from msgspec.structs import replace as with_status

from muster_operator.api.models import (
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    PartitionState,
    TopicRef,
)
from muster_operator.attempts import SOON_S, Answer, Attempts
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.actions import Elect, RecordLeadership
from muster_operator.plan.observation import Observation
from muster_operator.steps.context import TELL_EVERY_S, Context, Memory
from muster_operator.steps.leadership import LEAD_AT_ONCE, RECORDS_AT_ONCE, TELL_AT_ONCE, lead, record
from muster_operator.store.port import ClusterKey


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def context_at(time: Time) -> Context:
    unused = cast(Any, None)
    memory = Memory(Attempts(lambda: 0.5))
    clock = replace(Clock(), monotonic=time.monotonic)
    key = ClusterKey("ns", "c")
    seen = Observation("ns", "c")
    return Context(key, seen, memory, unused, unused, unused, clock, OperatorMetrics(), unused)


def test_counts_are_told_at_most_every_quarter_of_a_second_by_each_step() -> None:
    time = Time()
    context = context_at(time)
    assert context.has_time_to_tell("record")
    assert context.has_time_to_tell("write_status")
    time.now += TELL_EVERY_S / 2
    assert not context.has_time_to_tell("record")
    assert context.memory.steady_in_s == TELL_EVERY_S / 2
    time.now += TELL_EVERY_S
    assert context.has_time_to_tell("record")


def test_nothing_is_told_while_elections_are_about_to_be_answered() -> None:
    time = Time()
    context = context_at(time)
    context.memory.attempts.start("p", "c-0", 1, time.now)
    assert not context.has_time_to_tell("record")
    context.memory.attempts.answer("p", 1, time.now, Answer())
    assert context.has_time_to_tell("record")


def test_election_that_is_not_answered_keeps_nobody_waiting_for_long() -> None:
    time = Time()
    context = context_at(time)
    context.memory.attempts.start("p", "c-0", 1, time.now)
    assert context.memory.attempts.next_due(time.now) == SOON_S
    time.now += SOON_S
    assert context.has_time_to_tell("record")


@dataclass
class Recorder:
    """A store that takes everything."""

    written: list[int] = field(default_factory=list)

    under_way: int = 0
    most_under_way: int = 0

    async def record_leadership(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> OffsetsPartition:
        self.written.append(seen.spec.index)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return seen


def counted(index: int, **more: Any) -> RecordLeadership:
    """A partition that is led as recorded, of which two replicas follow now."""
    status = OffsetsPartitionStatus(leader="c-0", epoch=1, led_epoch=1, state=PartitionState.LED, following=3)
    seen = OffsetsPartition(ObjectMeta(f"t-{index}", "ns"), OffsetsPartitionSpec(TopicRef("t"), index), status)
    return RecordLeadership(seen, with_status(status, following=2, **more))


async def test_counts_of_many_partitions_are_written_a_few_at_a_time_and_leaderships_all_at_once() -> None:
    time, store = Time(), Recorder()
    context = replace(context_at(time), store=cast(Any, store))
    leaderships = [counted(index, epoch=2, led_epoch=2) for index in range(100, 120)]
    await record(context, [*leaderships, *(counted(index) for index in range(20))])
    assert store.written == [*range(100, 120), *range(TELL_AT_ONCE)]
    await record(context, [counted(index) for index in range(TELL_AT_ONCE, 20)])
    assert len(store.written) == 20 + TELL_AT_ONCE
    assert context.memory.steady_in_s == TELL_EVERY_S
    time.now += TELL_EVERY_S
    await record(context, [counted(index) for index in range(TELL_AT_ONCE, 20)])
    assert store.written[-TELL_AT_ONCE:] == [*range(TELL_AT_ONCE, 2 * TELL_AT_ONCE)]


async def test_elections_of_the_first_records_of_every_pod_are_called_while_the_others_are_written() -> None:
    store, calls = Recorder(), list[tuple[int, int]]()

    def spawn(call: Coroutine[Any, Any, None]) -> None:
        arguments = call.cr_frame.f_locals  # type: ignore[attr-defined]  # what the call is about
        calls.append((len(store.written), len(arguments["elections"])))
        call.close()

    context = replace(context_at(Time()), store=cast(Any, store), spawn=spawn)
    records = [counted(index, epoch=2) for index in range(40)]
    elections = [Elect(f"t-{index}", index, f"c-{index % 2}", 2, ()) for index in range(40)]
    await lead(context, [*records, *elections])
    assert sorted(store.written) == [*range(40)]
    assert store.most_under_way == RECORDS_AT_ONCE
    assert [size for _, size in calls] == [LEAD_AT_ONCE] * 4 + [20 - 2 * LEAD_AT_ONCE] * 2
    assert all(written < 2 * LEAD_AT_ONCE + RECORDS_AT_ONCE for written, _ in calls[:1])
    assert {*store.written[: 2 * LEAD_AT_ONCE]} == {*range(2 * LEAD_AT_ONCE)}, "of both pods, in turn"
