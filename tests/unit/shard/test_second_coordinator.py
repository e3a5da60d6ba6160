"""The runtime runs any coordinator: one that only counts runs on the shard, its standby, its checkpoints and its
fences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.counters import UNKNOWN_RECORD, Add, CounterCoordinator, Get, Invalid, WaitFor
from tests.support.replicas import LIMIT_S, ReplicaPod, ReplicaPods
from tests.unit.shard.fake_world import World

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import Fence
from muster_coordinator.shard.fencing import Fencing
from muster_coordinator.state_machine import StateMachine
from muster_coordinator.states import ShardState

NewPods = Callable[..., Awaitable[ReplicaPods]]


def counting_world() -> tuple[World, CounterCoordinator]:
    machine = CounterCoordinator()
    world = World(machine)
    world.activate()
    world.turn()
    return world, machine


def test_read_waits_for_its_round_and_for_the_records_that_it_shows() -> None:
    world, machine = counting_world()
    world.writer.read_round = 3
    added, read = world.ask(Add("a", 5)), world.ask(Get("a"))
    world.turn()
    assert (machine.totals, added.got, read.got) == ({"a": 5}, [], [])
    world.commit()
    assert (added.got, read.got) == ([5], [])
    world.shard.parked.reads_confirmed(3)
    assert read.got == [5]


def test_parked_request_is_answered_by_a_later_one_and_refused_when_the_leadership_ends() -> None:
    world, machine = counting_world()
    first, second = world.ask(WaitFor("a", 2)), world.ask(WaitFor("a", 9))
    world.ask(Add("a", 1))
    world.turn()
    world.ask(Add("a", 1))
    world.turn()
    world.commit()
    assert (first.got, second.got) == ([2], [])
    world.shard.close("resigned")
    assert second.got == [ErrorCode.NOT_COORDINATOR]
    assert not machine.leads
    assert world.metrics.events([]) == {"additions": 2}


def test_timer_removes_a_counter_unless_it_was_set_again() -> None:
    world, machine = counting_world()
    world.ask(Add("a", 1, life_ms=50))
    world.ask(Add("b", 1, life_ms=50))
    world.turn()
    world.pod.now_ms += 40
    world.ask(Add("b", 1, life_ms=50))
    world.turn()
    world.pod.now_ms += 10
    world.shard.fire_timers()
    world.turn()
    assert machine.totals == {"b": 2}
    world.shard.notify("b")
    world.turn()
    assert machine.totals == {}


def test_request_that_is_wrong_in_itself_is_refused_while_loading() -> None:
    world = World(CounterCoordinator())
    world.shard.start_loading()
    assert world.ask(Add("", 1)).got == [Invalid()]
    assert world.ask(Add("a", 1)).got == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def ask(pod: ReplicaPod, request: Any) -> Any:
    return await asyncio.wait_for(pod.ask(request).done, LIMIT_S)


def machine_of(pod: ReplicaPod) -> Any:
    machine: StateMachine = pod.shard().machine
    assert isinstance(machine, CounterCoordinator)
    return machine


async def counting_pods(new_pods: NewPods, count: int = 3, **options: Any) -> ReplicaPods:
    pods = await new_pods(count, new_machine=CounterCoordinator, **options)
    for amount in (1, 2, 3):
        assert await ask(pods[0], Add("a", amount)) == sum(range(amount + 1))
    return pods


async def test_follower_goes_on_where_the_leader_stopped(new_pods: NewPods) -> None:
    pods = await counting_pods(new_pods)
    await pods.caught_up()
    await pods.until(lambda: pods[1].up.hosts[0].role.state_at_rest is not None)
    await pods[0].kill()
    await pods.elect(1)
    assert await ask(pods[1], Get("a")) == 6
    assert await ask(pods[1], Add("a", 1)) == 7
    assert machine_of(pods[1]).leads


async def test_read_of_a_leader_that_is_cut_off_is_not_answered(new_pods: NewPods) -> None:
    pods = await counting_pods(new_pods)
    pods.network.isolate("pod-0")
    read = pods[0].ask(Get("a"))
    await pods.elect(1, force=True)
    assert await ask(pods[1], Add("a", 1)) == 7
    pods.network.heal()
    assert await asyncio.wait_for(read.done, LIMIT_S) in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )


@pytest.mark.parametrize("checkpoints", [False, True])
async def test_state_is_loaded_from_log_and_checkpoint(new_pods: NewPods, checkpoints: bool) -> None:
    pods = await counting_pods(new_pods, count=1, checkpoints=checkpoints)
    if checkpoints:
        (checkpointer,) = (each for each in pods[0].up._chores if isinstance(each, Checkpointer))
        await checkpointer.work()
        assert checkpointer.counts.done == 1
    end = pods[0].end()
    assert await ask(pods[0], Add("b", 1)) == 1
    await pods[0].stop()
    await pods[0].start()
    await pods.elect(0)
    assert await ask(pods[0], Get("a")) == 6
    assert await ask(pods[0], Get("b")) == 1
    replayed = machine_of(pods[0]).offsets
    assert min(replayed) == (end if checkpoints else 1)


async def test_reshard_fills_closes_and_opens_a_partition_of_any_coordinator(new_pods: NewPods) -> None:
    pods = await new_pods(3, new_machine=CounterCoordinator)
    fencing = Fencing(pods[0].up.shards, lambda partition: None)
    await fencing.close(0, 1, importing=True)
    assert await ask(pods[0], Get("a")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    data = encode_batch([(b"a", b"41"), (b"b", b"1")], base_offset=0, leader_epoch=0, timestamp_ms=1)
    assert await fencing.take_in(0, 1, 0, data, last=True) == Fence(1, closed=True, imported=2, complete=True)
    await pods.caught_up()
    await pods.elect(1, force=True)
    assert pods[1].shard().state is ShardState.FENCED
    await Fencing(pods[1].up.shards, lambda partition: None).open(0, 1)
    assert await ask(pods[1], Get("a")) == 41
    assert await ask(pods[1], Add("a", 1)) == 42


async def test_record_of_a_later_version_is_skipped_and_counted(new_pods: NewPods) -> None:
    pods = await counting_pods(new_pods, count=1)
    shard = pods[0].shard()
    shard.writer.append([UNKNOWN_RECORD], shard.epoch, 1)
    assert await ask(pods[0], Add("a", 1)) == 7
    await pods[0].stop()
    await pods[0].start()
    await pods.elect(0)
    assert await ask(pods[0], Get("a")) == 7
    assert pods[0].up.metrics.unknown_records == 1
