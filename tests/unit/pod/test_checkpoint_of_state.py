"""Checkpoints are made of the state that is there, where that is small and committed, of the log otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.replicas import AnyTopic, ReplicaPod, ReplicaPods
from tests.unit.log.offsets_history import state_of

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.checkpoint import NAME, CheckpointHead
from muster_coordinator.pod.chores import checkpointing
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.replication.messages import Append
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.tuning import pacing

NewPods = Callable[..., Awaitable[ReplicaPods]]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Partitions whose log was read for a checkpoint."""
    read: list[int] = []
    load_log = checkpointing.load_log

    def note(replica: Any, *arguments: Any, **limits: Any) -> Any:
        read.append(replica.partition)
        return load_log(replica, *arguments, **limits)

    monkeypatch.setattr(checkpointing, "load_log", note)
    return read


async def take(pod: ReplicaPod) -> None:
    checkpointer = next(b for b in pod.up._chores if isinstance(b, Checkpointer))
    await checkpointer.work()
    assert (checkpointer.counts.done, checkpointer.counts.failed) == (1, 0)


def head_of_the_right_state(pod: ReplicaPod) -> CheckpointHead:
    """The head of the pod's checkpoint, whose state is that of the log up to its offset."""
    file = pod.up.replicas[0].open_checkpoint(None)
    assert file is not None
    coordinator = GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix")
    for _ in ReplayedState(coordinator).restore(file.parts()):
        pass
    file.close()
    log = pod.up.replicas[0].log
    batches = [batch for batch in log.read_batches(0) if batch.end_offset <= file.head.offset]
    assert coordinator.durable_state() == state_of(batches)
    assert file.head.epoch == log.epochs.epoch_at(file.head.offset - 1)
    return file.head


async def followed(new_pods: NewPods) -> ReplicaPods:
    """Pods 1 and 2 have what pod 0 committed for two groups, in the log and in their standbys."""
    pods = await new_pods(3, checkpoints=True)
    for offset in range(30):
        assert await pods[0].commit(offset, group=f"g{offset % 2}") == 0
    await pods.caught_up()
    await pods.until(lambda: all(standby_end(pod) == pods[0].end() for pod in pods.pods[1:]))
    return pods


def standby_end(pod: ReplicaPod) -> int:
    at_rest = pod.up.hosts[0].role.state_at_rest
    return -1 if at_rest is None else at_rest[1]


@pytest.mark.parametrize("index", [0, 1])
async def test_small_state_of_leader_or_follower_is_taken_as_it_is(
    new_pods: NewPods, loads: list[int], index: int
) -> None:
    pods = await followed(new_pods)
    await take(pods[index])
    assert head_of_the_right_state(pods[index]).offset == pods[0].end()
    assert not loads
    assert await pods[0].commit(40) == 0
    await pods.caught_up()
    await pods[index].kill()
    await pods[index].start()
    await pods.elect(index, force=True)
    assert [await pods[index].fetch(group=group) for group in ("g0", "g1", "g")] == [28, 29, 40]


async def test_state_of_a_leader_is_written_once_it_is_committed(
    new_pods: NewPods, loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "COMMITTED_WITHIN_S", 30.0)
    pods = await followed(new_pods)
    committed = pods[0].end()
    pods.network.drop = lambda message: isinstance(message, Append)
    asked = pods[0].ask_commit(50)
    await pods.until(lambda: pods[0].end() > committed)
    taking = asyncio.create_task(take(pods[0]))
    await asyncio.sleep(5 * pacing.POLL_S)
    assert not (pods[0].up.replicas[0].directory / NAME).exists()
    pods.network.drop = lambda message: False
    await taking
    assert head_of_the_right_state(pods[0]).offset > committed
    assert not loads
    await asked.done


async def test_large_state_is_built_beside_it(
    new_pods: NewPods, loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "PART_ENTRIES", 1)
    monkeypatch.setattr(checkpointing, "PARTS_AT_ONCE", 1)
    pods = await followed(new_pods)
    await take(pods[1])
    assert head_of_the_right_state(pods[1]).offset == pods[0].end()
    assert loads == [0]


async def test_state_that_is_half_replayed_is_not_taken(new_pods: NewPods, loads: list[int]) -> None:
    pods = await followed(new_pods)
    standby = pods[1].up.hosts[0].role._standby
    assert standby is not None
    standby.stop()
    standby.replayed -= 1
    standby._target = standby.replayed + 1
    assert standby._next_steps() is not None
    await take(pods[1])
    assert head_of_the_right_state(pods[1]).offset == pods[0].end()
    assert loads == [0]


async def test_state_with_what_may_still_be_lost_is_not_taken(new_pods: NewPods, loads: list[int]) -> None:
    pods = await followed(new_pods)
    committed = pods[0].end()
    pods.network.isolate("pod-0")
    lost = pods[0].ask_commit(666, group="lost")
    await pods.until(lambda: pods[0].end() > committed and not pods[0].leads())
    assert lost.done.done()
    assert standby_end(pods[0]) > committed
    await take(pods[0])
    assert head_of_the_right_state(pods[0]).offset == committed
    assert loads == [0]
