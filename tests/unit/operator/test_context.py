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
from muster_coordinator.podapi.client import PodTimeoutError
from muster_coordinator.podapi.models import CallResults, ElectionsRequest
from muster_operator.api.conditions import Condition, Reason
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
from muster_operator.failovers import Failovers
from muster_operator.metrics import OperatorMetrics
from muster_operator.phases import Phases
from muster_operator.plan.actions import Elect, WritePartitionStatus, WriteTopicStatus
from muster_operator.plan.observation import Observation
from muster_operator.steps import show
from muster_operator.steps.context import TELL_EVERY_S, Context, Memory
from muster_operator.steps.elect import elect
from muster_operator.steps.show import IN_PARALLEL, show_partitions
from muster_operator.steps.status import write_status
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError, StoreError


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def context_at(time: Time) -> Context:
    unused = cast(Any, None)
    metrics = OperatorMetrics()
    memory = Memory(Attempts(lambda: 0.5), Failovers(metrics), Phases(metrics))
    clock = replace(Clock(), monotonic=time.monotonic)
    key = ClusterKey("ns", "c")
    seen = Observation("ns", "c")
    return Context(key, seen, memory, unused, unused, unused, clock, metrics, unused)


def test_status_is_told_at_most_once_a_second() -> None:
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


class PodSaysNothing:
    """A pod that has been asked and has not answered."""

    runs = 1

    def __init__(self) -> None:
        self.asked: list[int] = []

    @property
    def client(self) -> PodSaysNothing:
        return self

    async def while_it_runs(self, call: Coroutine[Any, Any, CallResults]) -> CallResults:
        return await call

    async def elect(self, request: ElectionsRequest, timeout_s: float) -> CallResults:
        self.asked += [each.partition for each in request.elections]
        raise PodTimeoutError("no answer")


def partition(index: int, **status: Any) -> OffsetsPartition:
    meta = ObjectMeta(f"t-{index}", "ns")
    return OffsetsPartition(meta, OffsetsPartitionSpec(TopicRef("t"), index), OffsetsPartitionStatus(**status))


async def test_every_pod_is_called_at_once_for_all_of_its_partitions() -> None:
    pods = {"c-0": PodSaysNothing(), "c-1": PodSaysNothing()}
    tasks: list[asyncio.Task[None]] = []
    context = replace(
        context_at(Time()),
        pods=cast(Any, SimpleNamespace(get=lambda key, name: pods[name])),
        seen=Observation("ns", "c", cluster=CoordinatorCluster(ObjectMeta("c", "ns"), CoordinatorClusterSpec())),
        spawn=lambda call: tasks.append(asyncio.create_task(call)),
    )
    elections = [Elect(f"t-{index}", index, f"c-{index % 2}", 2, (), message="why") for index in range(34)]
    await elect(context, elections)
    attempts = context.memory.attempts.view(100.0)
    assert {(each.in_flight, each.reason, each.message) for each in attempts.values()} == {
        (True, Reason.ELECTING, "why")
    }
    await asyncio.gather(*tasks)
    assert [pod.asked for pod in pods.values()] == [[*range(0, 34, 2)], [*range(1, 34, 2)]]


@dataclass
class Statuses:
    """A store whose writes end when the test says so."""

    begun: list[tuple[int, int]] = field(default_factory=list)
    go_on: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    errors: list[StoreError] = field(default_factory=list)

    async def write_partition_status(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> None:
        self.begun.append((seen.spec.index, status.epoch))
        await self.go_on.acquire()
        if self.errors:
            raise self.errors.pop()

    async def write_topic_status(self, seen: OffsetsTopic, status: OffsetsTopicStatus) -> None:
        pass


class Shown:
    """Plans that show partitions, and the passes that write their statuses."""

    def __init__(self) -> None:
        self.store = Statuses()
        self.passes: list[asyncio.Task[None]] = []
        self.context = replace(
            context_at(Time()),
            store=cast(Any, self.store),
            spawn=lambda call: self.passes.append(asyncio.create_task(call)),
        )

    async def plan(self, *actions: WritePartitionStatus) -> None:
        await show_partitions(self.context, actions)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for _ in range(100):
            self.store.go_on.release()
        await asyncio.gather(*self.passes)


def led(index: int, epoch: int) -> WritePartitionStatus:
    seen = partition(index, leader="c-0", epoch=1, led_epoch=1, state=PartitionState.LED, following=3)
    after = with_status(seen.status, leader="c-1", epoch=epoch, led_epoch=epoch)
    return WritePartitionStatus(seen, after)


def counted(index: int) -> WritePartitionStatus:
    seen = partition(index, leader="c-0", epoch=1, led_epoch=1, state=PartitionState.LED, following=3)
    return WritePartitionStatus(seen, with_status(seen.status, following=2))


async def test_statuses_are_written_in_one_pass_new_leaders_first_a_few_at_a_time() -> None:
    shown = Shown()
    await shown.plan(*(counted(index) for index in range(10)), *(led(index, 2) for index in range(10, 20)))
    assert shown.store.begun == [(index, 2) for index in range(10, 10 + IN_PARALLEL)]
    await shown.end()
    assert [index for index, _ in shown.store.begun] == [*range(10, 20), *range(10)]
    assert len(shown.passes) == 1


async def test_newer_plan_replaces_what_is_not_being_written_yet() -> None:
    shown = Shown()
    await shown.plan(*(led(index, 2) for index in range(8)))
    await shown.plan(*(led(index, 3) for index in range(7)))
    await shown.end()
    # Of the partitions that were being written, the next plan says again what differs; number 7 differs no more.
    assert shown.store.begun == [(index, 2) for index in range(4)] + [(index, 3) for index in range(7)]
    assert len(shown.passes) == 1
    await shown.plan(led(7, 4))
    assert len(shown.passes) == 2
    await shown.end()


async def test_status_that_was_overtaken_is_left_to_the_next_plan() -> None:
    shown = Shown()
    shown.store.errors = [ConflictError("overtaken"), NotFoundError("gone")]
    await shown.plan(*(led(index, 2) for index in range(6)))
    await shown.end()
    assert sorted(index for index, _ in shown.store.begun) == [*range(6)]


async def test_store_that_does_not_answer_ends_the_pass_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "RETRY_S", 0.0)
    shown = Shown()
    shown.store.errors = [StoreError("away") for _ in range(IN_PARALLEL)]
    await shown.plan(*(led(index, 2) for index in range(10)))
    await shown.end()
    assert len(shown.store.begun) == IN_PARALLEL
    assert shown.context.memory.showing is None


async def test_nothing_is_told_to_be_ready_before_the_partitions_are() -> None:
    shown = Shown()
    ready = Condition("Ready", "True", "AllPartitionsLed", "all led", "", 1)
    topic = OffsetsTopic(ObjectMeta("t", "ns"), OffsetsTopicSpec(ClusterRef("c")))
    write = WriteTopicStatus(topic, OffsetsTopicStatus(1, (ready,)))
    await shown.plan(led(0, 2))
    assert await write_status(shown.context, [write]) is None
    await shown.end()
    assert await write_status(shown.context, [write]) is not None
