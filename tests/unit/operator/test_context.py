"""What is written for people waits for elections, and is not written all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace as with_status

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.models import CallResults, ElectionsRequest
from muster_operator.api.conditions import Condition
from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicSpec,
    OffsetsTopicStatus,
    PartitionState,
    TopicRef,
)
from muster_operator.attempts import SOON_S, Attempts
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.actions import Elect, RecordLeadership, WriteTopicStatus
from muster_operator.plan.observation import Observation
from muster_operator.pods.in_turn import InTurn
from muster_operator.steps.context import TELL_EVERY_S, Context, Memory
from muster_operator.steps.leadership import (
    CONFIRMED_S,
    LATER_AT_ONCE,
    LATER_EVERY_S,
    LATER_SHARE,
    LEAD_AT_ONCE,
    LEAD_TURNS,
    SETTLED_S,
    lead,
    record,
)
from muster_operator.steps.status import write_status
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


def test_status_is_told_at_most_every_quarter_of_a_second() -> None:
    time = Time()
    context = context_at(time)
    assert context.has_time_to_tell("write_status")
    assert context.has_turn("record", TELL_EVERY_S)
    time.now += TELL_EVERY_S / 2
    assert not context.has_time_to_tell("write_status")
    assert context.memory.steady_in_s == TELL_EVERY_S / 2
    time.now += TELL_EVERY_S
    assert context.has_time_to_tell("write_status")


def test_nothing_is_told_while_elections_are_about_to_be_answered() -> None:
    time = Time()
    context = context_at(time)
    context.memory.attempts.start("p", "c-0", 1, time.now)
    assert not context.has_time_to_tell("write_status")
    context.memory.attempts.answered("p", 1, time.now, CallResult(0, CallStatus.ACCEPTED))
    assert context.has_time_to_tell("write_status")


def test_election_that_is_not_answered_keeps_nobody_waiting_for_long() -> None:
    time = Time()
    context = context_at(time)
    context.memory.attempts.start("p", "c-0", 1, time.now)
    assert context.memory.attempts.next_due(time.now) == SOON_S
    time.now += SOON_S
    assert context.has_time_to_tell("write_status")


@dataclass
class Recorder:
    """A store that takes everything."""

    written: list[int] = field(default_factory=list)

    async def record_leadership(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> OffsetsPartition:
        self.written.append(seen.spec.index)
        await asyncio.sleep(0)
        return seen

    async def write_topic_status(self, seen: OffsetsTopic, status: OffsetsTopicStatus) -> None:
        pass


def counted(index: int, **more: Any) -> RecordLeadership:
    """A partition that is led as recorded, of which two replicas follow now."""
    status = OffsetsPartitionStatus(leader="c-0", epoch=1, led_epoch=1, state=PartitionState.LED, following=3)
    seen = OffsetsPartition(ObjectMeta(f"t-{index}", "ns"), OffsetsPartitionSpec(TopicRef("t"), index), status)
    return RecordLeadership(seen, with_status(status, following=2, **more))


def elected(index: int, *, led_epoch: int = 1) -> RecordLeadership:
    """A partition whose election succeeded. `led_epoch`: of its last leader, -1 when it had none."""
    status = OffsetsPartitionStatus(leader="c-1", epoch=2, led_epoch=led_epoch, state=PartitionState.ELECTING)
    seen = OffsetsPartition(ObjectMeta(f"t-{index}", "ns"), OffsetsPartitionSpec(TopicRef("t"), index), status)
    return RecordLeadership(seen, with_status(status, led_epoch=2, state=PartitionState.LED, following=2))


async def test_counts_are_written_a_few_at_a_time_once_they_have_settled_and_leaderships_all_at_once() -> None:
    time, store = Time(), Recorder()
    context = replace(context_at(time), store=cast(Any, store))
    leaderships = [counted(index, epoch=2, led_epoch=2) for index in range(100, 120)]
    counts = [counted(index) for index in range(20)]
    await record(context, [*leaderships, *counts])
    assert store.written == [*range(100, 120)]
    assert context.memory.steady_in_s == SETTLED_S
    time.now += SETTLED_S
    await record(context, counts)
    assert store.written[20:] == [*range(LATER_AT_ONCE)]
    await record(context, counts[LATER_AT_ONCE:])
    assert len(store.written) == 20 + LATER_AT_ONCE
    assert context.memory.steady_in_s == pytest.approx(LATER_EVERY_S)
    time.now += LATER_EVERY_S
    await record(context, counts[LATER_AT_ONCE:])
    assert store.written[20:] == [*range(2 * LATER_AT_ONCE)]


async def test_counts_that_are_as_recorded_again_are_not_written() -> None:
    time, store = Time(), Recorder()
    context = replace(context_at(time), store=cast(Any, store))
    await record(context, [counted(1)])
    time.now += SETTLED_S / 2
    await record(context, [])
    time.now += SETTLED_S / 2
    await record(context, [counted(2)])
    assert store.written == []


async def test_success_of_elections_is_written_a_few_at_a_time_and_the_failover_ended_when_it_was_seen() -> None:
    time, store = Time(), Recorder()
    context = replace(context_at(time), store=cast(Any, store))
    todo = [elected(index) for index in range(100)]
    ready = Condition("Ready", "True", "AllPartitionsLed", "all led", "", 1)
    led = WriteTopicStatus(
        OffsetsTopic(ObjectMeta("t", "ns"), OffsetsTopicSpec(ClusterRef("c"))), OffsetsTopicStatus(1, (ready,))
    )
    for each in todo:
        context.memory.lost_at[each.seen.metadata.name] = (time.now - 0.2, "c-0", False)
    await record(context, todo)
    assert store.written == []
    assert context.memory.steady_in_s == CONFIRMED_S
    time.now += CONFIRMED_S
    while todo:
        written = len(store.written)
        await record(context, todo)
        assert (await write_status(context, [led]) is None) == (len(store.written) < 100)
        assert len(store.written) - written == max(LATER_AT_ONCE, len(todo) // LATER_SHARE)
        del todo[: len(store.written) - written]
        time.now += LATER_EVERY_S
    assert store.written == [*range(100)]
    assert {each.duration_ms for each in context.memory.failovers} == {200}


async def test_success_of_a_first_election_is_written_at_once() -> None:
    store = Recorder()
    context = replace(context_at(Time()), store=cast(Any, store))
    await record(context, [elected(1), elected(2, led_epoch=-1)])
    assert store.written == [2]


@pytest.mark.parametrize(
    ("partitions", "sizes"),
    [(1, [1]), (9, [LEAD_AT_ONCE] * 3), (4 * LEAD_AT_ONCE, [LEAD_AT_ONCE] * 4), (20, [20 // LEAD_TURNS] * LEAD_TURNS)],
)
async def test_records_are_given_to_the_store_at_once_and_elections_called_in_portions_for_each_pod(
    partitions: int, sizes: list[int]
) -> None:
    store, calls = Recorder(), list[tuple[int, int]]()

    def spawn(call: Coroutine[Any, Any, None]) -> None:
        arguments = call.cr_frame.f_locals  # type: ignore[attr-defined]  # what the call is about
        calls.append((len(store.written), len(arguments["elections"])))
        call.close()

    context = replace(context_at(Time()), store=cast(Any, store), spawn=spawn)
    records = [counted(index, epoch=2) for index in range(2 * partitions)]
    elections = [Elect(f"t-{index}", index, f"c-{index % 2}", 2, ()) for index in range(2 * partitions)]
    await lead(context, [*records, *elections])
    assert sorted(store.written) == [*range(2 * partitions)]
    assert {written for written, _ in calls} == {2 * partitions}
    assert [size for _, size in calls] == [size for size in sizes for _ in range(2)]
    assert {*store.written[: 2 * sizes[0]]} == {*range(2 * sizes[0])}, "of both pods, in turn"


async def test_elections_that_are_recorded_already_are_called_again_at_once() -> None:
    store, calls = Recorder(), list[tuple[str, list[int]]]()

    def spawn(call: Coroutine[Any, Any, None]) -> None:
        arguments = call.cr_frame.f_locals  # type: ignore[attr-defined]  # what the call is about
        calls.append((arguments["pod"], [each.index for each in arguments["elections"]]))
        call.close()

    context = replace(context_at(Time()), store=cast(Any, store), spawn=spawn)
    elections = [Elect(f"t-{index}", index, f"c-{index % 2}", 2, ()) for index in range(10)]
    await lead(context, [*(counted(index, epoch=2) for index in range(0, 8, 2)), *elections])
    assert sorted(store.written) == [0, 2, 4, 6]
    assert sorted(calls) == [("c-0", [0, 2, 4, 8]), ("c-0", [6]), ("c-1", [1, 3, 5, 7, 9])]


@dataclass
class Pod:
    """A pod that answers when it is told to."""

    elections: InTurn = field(default_factory=lambda: InTurn(3600.0))
    runs: int = 1
    asked: list[tuple[int, ...]] = field(default_factory=list)
    answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    @property
    def client(self) -> Pod:
        return self

    async def elect(self, request: ElectionsRequest, timeout_s: float) -> CallResults:
        self.asked.append(tuple(each.partition for each in request.elections))
        await self.answers.acquire()
        return CallResults(())

    def learn_elections(self, run: int, asked: dict[int, int], results: tuple[CallResult, ...]) -> None:
        pass


async def test_pod_is_asked_for_the_next_portion_when_it_has_answered_the_one_before() -> None:
    pods = {"c-0": Pod(), "c-1": Pod()}
    sessions = SimpleNamespace(get=lambda key, name: pods[name])
    cluster = CoordinatorCluster(ObjectMeta("c", "ns"), CoordinatorClusterSpec())
    tasks: list[asyncio.Task[None]] = []
    context = replace(
        context_at(Time()),
        store=cast(Any, Recorder()),
        pods=cast(Any, sessions),
        seen=Observation("ns", "c", cluster=cluster),
        spawn=lambda call: tasks.append(asyncio.create_task(call)),
    )
    records = [counted(index, epoch=2) for index in range(18)]
    elections = [Elect(f"t-{index}", index, f"c-{index % 2}", 2, ()) for index in range(18)]
    await lead(context, [*records, *elections])
    for told in range(3):
        for _ in range(10):
            await asyncio.sleep(0)
        assert [len(pod.asked) for pod in pods.values()] == [told + 1, told + 1]
        for pod in pods.values():
            pod.answers.release()
    await asyncio.gather(*tasks)
    assert pods["c-1"].asked == [(1, 3, 5), (7, 9, 11), (13, 15, 17)]
